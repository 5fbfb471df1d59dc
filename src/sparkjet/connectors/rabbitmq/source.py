"""A consumer of RabbitMQ queues: one connection, one channel."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pika.exceptions import ChannelClosedByBroker

from sparkjet.connectors.rabbitmq.channel import RabbitChannel
from sparkjet.connectors.rabbitmq.connection import FAILURES, explain, is_refused
from sparkjet.connectors.rabbitmq.examination import Examined, examine
from sparkjet.connectors.rabbitmq.frames import UnreadableProperties
from sparkjet.connectors.rabbitmq.headers import further
from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.arrived import Arrived
from sparkjet.sources.acknowledging.contract import AcknowledgingSource, ConnectionLostError, Message, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkjet.connectors.rabbitmq.source_settings import RabbitSettings

_TOGETHER = 5_000
"""Number of messages to return at once if there are as many: they are stored together."""
_LOOKS = 3
"""Heartbeats within which the broker looks twice, whenever the client has died."""
_RETURNS = 10
"""Seconds within which it puts back the messages of that client."""
_NO_HEADERS: Mapping[str, Any] = {}
_REFUSED = {403, 404, 405}
"""AMQP reply codes that recur: no permission, no queue, a queue that another consumer has exclusively."""


class RabbitSource(AcknowledgingSource):
    """Reads durable and quorum queues; messages are acknowledged in the order in which they came.

    All queues share a channel, in which delivery tags number the messages: acknowledging the newest one of an epoch
    covers all before it.
    """

    def __init__(self, settings: RabbitSettings) -> None:
        self._settings = settings
        self._line: RabbitChannel | None = None
        self._arrived = Arrived[int]()
        self._tags: deque[int] = deque()
        self._deleted: str | None = None
        self._examined: Examined | None = None
        self._held: frozenset[str] = frozenset()
        # By queue; the messages of a consumer that has ended are still acknowledged.
        self._consumers: dict[str, str] = {}
        self._begun = 0
        # Of each consumer, and those that delivered the messages in the order of their tags.
        self._unacknowledged = Counter[str]()
        self._delivered_by: deque[str] = deque()
        self._poison: str | None = None
        self._opened = self._alone = False

    @property
    def queues(self) -> Sequence[str]:
        """The queues in the option."""
        return self._settings.queues

    @property
    def broker(self) -> str:
        """The cluster, by the name that its nodes share, and the virtual host."""
        connection = self._settings.connection
        told = self._connected.server_properties or {}
        name = told.get("cluster_name", f"{connection.host}:{connection.port}")
        return f"{name}/{connection.virtual_host}"

    @property
    def notices_within(self) -> float:
        """The broker looks once per agreed heartbeat, and notices if it has heard nothing between two looks."""
        return float(_LOOKS * self._connected.params.heartbeat + _RETURNS)

    def open(self) -> None:
        """Connect and consume; a queue that has never existed, or cannot be read exactly once, is an error."""
        self.close()
        self._arrived.clear()
        self._tags.clear()
        self._consumers.clear()
        self._unacknowledged.clear()
        self._delivered_by.clear()
        self._deleted = self._poison = None
        with self._judged():
            if self._examined is None:
                self._examined = examine(self._settings.connection, self.queues)
            self._line = line = RabbitChannel(self._settings.connection)
            channel = line.channel
            # Per consumer: quorum queues know no other.
            line.ask(lambda answered: channel.basic_qos(prefetch_count=self._settings.prefetch, callback=answered))
            channel.add_on_cancel_callback(self._cancelled)
            for queue in self.queues:
                if self._declared(queue).consumer_count and queue in self._examined.single:
                    message = (
                        f"queue {queue!r} gives its messages to one consumer (x-single-active-consumer), and that is "
                        "another one: end it"
                    )
                    raise ConnectionLostError(message)
            for queue in self.queues:
                if queue not in self._held:
                    self._consume(line, queue)
        self._opened = True

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        """Messages that have arrived; the connection's heartbeats are sent in the meantime."""
        assert self._line is not None  # noqa: S101 - opened first
        with self._judged():
            self._line.wait(0 if self._arrived and most else seconds)
            there, most = 0, min(most, _TOGETHER)
            while there < len(self._arrived) and not self._arrived.is_enough(most):
                there = len(self._arrived)
                self._line.wait(0)
            self._end_consumers()
        if self._poison is not None:
            raise SourceError(self._poison)
        self._check_deleted()
        taken = self._arrived.take(most)
        self._tags.extend(tag for tag, _ in taken)
        return [message for _, message in taken]

    def hold(self, queues: Collection[str]) -> None:
        """End the consumers of these queues when they can be, and begin those of all others."""
        # That may have arrived with the answer to an acknowledgement.
        self._check_deleted()
        assert self._line is not None  # noqa: S101 - opened first
        assert self._examined is not None  # noqa: S101 - as above
        lost = sorted(self._examined.single.union(self._examined.passing).intersection(queues))
        if lost:
            message = (
                f"maxWatermarkDrift: queue {lost[0]!r} is ahead and cannot be without a consumer, as it has "
                "auto-delete or x-single-active-consumer: the broker would delete it, or turn to another consumer. "
                "Declare it again without that, or leave the option out."
            )
            raise SourceError(message)
        self._held = frozenset(queues)
        with self._judged():
            begun = [queue for queue in self.queues if queue not in self._held and queue not in self._consumers]
            if begun:
                # Without a consumer, nobody was told whether it is the same queue, or one of that name declared since.
                self._examined = self._examined.but_for(examine(self._settings.connection, begun), begun)
            for queue in begun:
                self._consume(self._line, queue)
            self._end_consumers()

    def acknowledge(self, count: int) -> None:
        """Acknowledge, and wait for the response to another request on the same channel: it comes after."""
        assert self._line is not None  # noqa: S101 - opened first
        with self._judged():
            self._end_consumers()
            for _ in range(count):
                newest = self._tags.popleft()
                self._unacknowledged[self._delivered_by.popleft()] -= 1
            self._line.channel.basic_ack(newest, multiple=True)
            self._declared(self.queues[0])

    def ready(self) -> Mapping[str, int]:
        """The messages held by each queue, plus those that have arrived here without being received."""
        with self._judged():
            found = {queue: self._declared(queue) for queue in self.queues}
            # A response may overtake messages that the queue has given to the channel before; the next one does not.
            self._declared(self.queues[0])
        # One consumer is this one. A queue lets go of another, and gets its messages back, in one step.
        self._alone = all(each.consumer_count == (queue in self._consumers) for queue, each in found.items())
        counts: dict[str, int] = {queue: each.message_count for queue, each in found.items()}
        for message in self._arrived:
            counts[message.queue] += 1
        return counts

    @property
    def alone(self) -> bool:
        """Whether each queue had only this consumer."""
        return self._alone

    def close(self) -> None:
        """End the connection; the broker redelivers what was not acknowledged."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _check_deleted(self) -> None:
        if self._deleted is not None:
            message = f"queue {self._deleted!r} was deleted, or its node is down"
            raise ConnectionLostError(message)

    @property
    def _connected(self) -> Any:
        assert self._line is not None  # noqa: S101 - opened first
        return self._line.channel.connection

    def _declared(self, queue: str) -> Any:
        """The number of undelivered messages in a queue, and the number of consumers."""
        assert self._line is not None  # noqa: S101 - opened first
        line = self._line
        answer = line.ask(lambda answered: line.channel.queue_declare(queue, passive=True, callback=answered))
        return answer.method

    def _consume(self, line: RabbitChannel, queue: str) -> None:
        # A tag is used once: a quorum queue ends the connection if a consumer that it has ended, and some of whose
        # messages are not acknowledged yet, begins again.
        self._begun += 1
        self._unacknowledged = +self._unacknowledged
        tag = self._consumers[queue] = f"sparkjet-{self._begun}"
        line.consume(queue, tag, partial(self._accept, queue))

    def _end_consumers(self) -> None:
        """End the consumers of queues that are held back, of those that have delivered all that they may.

        Others may have messages under way, which are withheld from the channel if they belong to a quorum queue: they
        come out of order, as rows that are late, or only over the next connection.
        """
        assert self._line is not None  # noqa: S101 - opened first
        for queue in self._held.intersection(self._consumers):
            if self._unacknowledged[self._consumers[queue]] >= self._settings.prefetch:
                self._line.cancel(self._consumers.pop(queue))

    def _accept(self, queue: str, method: Any, properties: Any, body: bytes) -> None:
        if isinstance(properties, UnreadableProperties) and self._poison is None:
            reason = f"its headers cannot be decoded ({properties.reason})"
            self._poison = unreadable(properties.message_id, queue, reason)
        time = properties.timestamp
        values = (
            body,
            properties.message_id,
            queue,
            method.exchange,
            method.routing_key,
            None if time is None else int(time) * 1_000_000,
            properties.content_type,
            properties.correlation_id,
            *(further(method, properties) if self._settings.headers else ()),
        )
        headers = properties.headers or _NO_HEADERS
        # A dead letter may have been delivered before, though not in this queue.
        moved = headers.get("x-first-death-queue")
        # Producers may send any header.
        origin = moved if isinstance(moved, str) else None
        redelivered = method.redelivered or origin is not None or "x-delivery-count" in headers
        self._unacknowledged[method.consumer_tag] += 1
        self._delivered_by.append(method.consumer_tag)
        self._arrived.append(method.delivery_tag, Message(properties.message_id, queue, values, redelivered, origin))
        self._wake()

    def _cancelled(self, frame: Any) -> None:
        tag = frame.method.consumer_tag
        self._deleted = next((queue for queue, own in self._consumers.items() if own == tag), tag)
        # A queue of the same name may be of another kind.
        self._examined = None
        self._wake()

    def _wake(self) -> None:
        if self._line is not None:
            self._line.wake()

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """Distinguish errors that may be retried from those that may not."""
        try:
            yield
        except ChannelClosedByBroker as error:
            # Nobody is told that a queue without a consumer was deleted.
            self._examined = None
            # If it existed before, the same response may mean that its node is down.
            if error.reply_code in _REFUSED and not self._opened:
                raise SourceError(f"the broker refuses queues {', '.join(self.queues)}: {error.reply_text}") from error
            raise ConnectionLostError(str(error)) from error
        except FAILURES as error:
            failure = SourceError if is_refused(error) else ConnectionLostError
            raise failure(explain(self._settings.connection, error)) from error
