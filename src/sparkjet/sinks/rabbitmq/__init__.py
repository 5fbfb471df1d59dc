"""The sink ``rabbitmq``: rows as messages, confirmed by the broker."""
