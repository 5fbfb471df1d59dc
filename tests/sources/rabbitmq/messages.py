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
