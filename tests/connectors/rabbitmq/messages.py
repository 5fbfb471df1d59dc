"""Messages in a RabbitMQ queue: sending them, and counting those that are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pika

if TYPE_CHECKING:
    from tests.servers.rabbitmq import RabbitServer


def ids(start: int, end: int) -> list[str]:
    """The ids of so many messages."""
    return [f"m{number}" for number in range(start, end)]


def send(server: RabbitServer, queue: str, *ids: str | None) -> None:
    """Send persistent messages, and wait until the broker has them."""
    connection = server.connection()
    channel = connection.channel()
    channel.confirm_delivery()
    for each in ids:
        channel.basic_publish(
            "", queue, f"body of {each}".encode(), pika.BasicProperties(message_id=each, delivery_mode=2)
        )
    connection.close()


def ready(server: RabbitServer, *queues: str) -> Sequence[int]:
    """How many messages each queue has that nobody was given."""
    connection = server.connection()
    channel = connection.channel()
    counts = [channel.queue_declare(queue, passive=True).method.message_count for queue in queues]
    connection.close()
    return counts


def held(server: RabbitServer, queue: str) -> list[tuple[pika.BasicProperties, bytes]]:
    """Properties and bodies of all messages that nobody was given; the queue keeps them."""
    (count,) = ready(server, queue)
    connection = server.connection()
    channel = connection.channel()
    # Without a limit, a quorum queue has one of 2,000.
    channel.basic_qos(prefetch_count=65_535)
    found = []
    while len(found) < count:
        _, properties, body = next(channel.consume(queue))
        found.append((properties, body))
    channel.basic_nack(0, multiple=True, requeue=True)
    # Its answer comes when they are back.
    channel.queue_declare(queue, passive=True)
    connection.close()
    return found
