"""A consumer of RabbitMQ's queues: one connection, one channel."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pika
from pika.exceptions import (
    AMQPError,
    ChannelClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.contract import AcknowledgingSource, ConnectionLostError, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pika.adapters.blocking_connection import BlockingChannel

    from sparkjet.sources.rabbitmq.settings import RabbitSettings

# Its errors are raised too; the log would repeat each with several tracebacks.
logging.getLogger("pika").setLevel(logging.CRITICAL)

_REFUSED = {403, 404, 405}
"""AMQP's reply codes that come again: no permission, no queue, a queue that another consumer has for itself."""


class RabbitSource(AcknowledgingSource):
    """Reads durable and quorum queues; messages are acknowledged in the order in which they came.

    All queues share a channel, in which delivery tags count messages: acknowledging the newest of an epoch covers all
    before it.
    """

    def __init__(self, settings: RabbitSettings) -> None:
        self._settings = settings
        self._connection: pika.BlockingConnection | None = None
        self._channel: BlockingChannel | None = None
        self._arrived: deque[tuple[int, Message]] = deque()
        self._tags: deque[int] = deque()
        self._deleted: str | None = None
        self._opened = False

    @property
    def queues(self) -> Sequence[str]:
        """The queues in the option."""
        return self._settings.queues

    def open(self) -> None:
        """Connect and consume; a queue that has never been there is an error."""
        self.close()
        self._arrived.clear()
        self._tags.clear()
        self._deleted = None
        with self._judged():
            self._connection = pika.BlockingConnection(self._settings.connection)
            self._channel = channel = self._connection.channel()
            # Of each consumer: quorum queues know no other.
            channel.basic_qos(prefetch_count=self._settings.prefetch)
            channel.add_on_cancel_callback(self._cancelled)
            for queue in self.queues:
                channel.queue_declare(queue, passive=True)
            for queue in self.queues:
                channel.basic_consume(queue, self._accept, consumer_tag=queue)
        self._opened = True

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        """What has arrived; the connection's heartbeats are sent meanwhile."""
        assert self._connection is not None  # noqa: S101 - opened first
        with self._judged():
            self._connection.process_data_events(0 if self._arrived and most else seconds)
        if self._deleted is not None:
            message = f"queue {self._deleted!r} was deleted, or its node is down"
            raise ConnectionLostError(message)
        taken = [self._arrived.popleft() for _ in range(min(most, len(self._arrived)))]
        self._tags.extend(tag for tag, _ in taken)
        return [message for _, message in taken]

    def acknowledge(self, count: int) -> None:
        """Acknowledge, and wait for the answer to another question in the same channel: it comes after."""
        assert self._channel is not None  # noqa: S101 - opened first
        for _ in range(count):
            newest = self._tags.popleft()
        with self._judged():
            self._channel.basic_ack(newest, multiple=True)
            self._channel.queue_declare(self.queues[0], passive=True)

    def ready(self) -> Mapping[str, int]:
        """What each queue holds, and what has arrived here and was not received."""
        assert self._channel is not None  # noqa: S101 - opened first
        assert self._connection is not None  # noqa: S101 - as the channel
        with self._judged():
            counts = {
                queue: self._channel.queue_declare(queue, passive=True).method.message_count for queue in self.queues
            }
            # An answer may overtake messages that the queue has given to the channel before; the next one does not.
            self._channel.queue_declare(self.queues[0], passive=True)
            # Only this has what came with the answers accepted.
            self._connection.process_data_events(0)
        for _, message in self._arrived:
            counts[message.queue] += 1
        return counts

    def close(self) -> None:
        """End the connection; the broker delivers again what was not acknowledged."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None and connection.is_open:
            try:
                connection.close()
            except AMQPError:
                # It was lost: the broker knows, or will.
                return

    def _accept(self, _: BlockingChannel, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        time = properties.timestamp
        values = (
            body,
            properties.message_id,
            method.consumer_tag,
            method.exchange,
            method.routing_key,
            None if time is None else int(time) * 1_000_000,
            properties.content_type,
            properties.correlation_id,
        )
        self._arrived.append((method.delivery_tag, Message(properties.message_id, method.consumer_tag, values)))

    def _cancelled(self, frame: Any) -> None:
        self._deleted = frame.method.consumer_tag

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """Tell what may be tried again from what may not."""
        try:
            yield
        except ChannelClosedByBroker as error:
            # Once it was there, the same answer may mean that its node is down.
            if error.reply_code in _REFUSED and not self._opened:
                message = f"the broker refuses queues {', '.join(self.queues)}: {error.reply_text}"
                raise SourceError(message) from error
            raise ConnectionLostError(str(error)) from error
        except (ProbableAuthenticationError, ProbableAccessDeniedError) as error:
            message = (
                f"user {self._settings.connection.credentials.username!r} may not connect to virtual host "
                f"{self._settings.connection.virtual_host!r}: {error!r}"
            )
            raise SourceError(message) from error
        except (AMQPError, OSError) as error:
            message = f"{self._settings.connection.host}:{self._settings.connection.port}: {error!r}"
            raise ConnectionLostError(message) from error
