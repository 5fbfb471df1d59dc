"""The sink ``artemis``: results as messages of ActiveMQ Artemis."""
