"""The source ``sparkjet-artemis``: the queues of ActiveMQ Artemis as a stream."""
