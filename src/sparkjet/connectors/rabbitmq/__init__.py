"""RabbitMQ (extra ``rabbitmq``): queues as a stream, and rows as messages that the broker confirms."""
