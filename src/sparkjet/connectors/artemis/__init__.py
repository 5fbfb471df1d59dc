"""ActiveMQ Artemis (extra ``artemis``): queues as a stream, and rows as messages."""
