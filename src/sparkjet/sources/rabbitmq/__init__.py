"""The source ``sparkjet-rabbitmq``: RabbitMQ's queues as a stream."""
