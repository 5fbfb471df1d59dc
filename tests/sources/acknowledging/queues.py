"""A broker in memory, whose connections can be cut; and a source that reads it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

import pyarrow as pa

from sparkjet.sources.acknowledging.contract import AcknowledgingSource, ConnectionLostError, Message

SCHEMA = pa.schema([pa.field("body", pa.string())])


class Broker:
    """Queues of messages, from which one connection reads."""

    def __init__(self, *queues: str) -> None:
        self.queues: dict[str, list[Message]] = {queue: [] for queue in queues}
        self.unacknowledged: list[Message] = []
        self.held: frozenset[str] = frozenset()
        self.connections = 0
        self.refuses = 0
        self.loses_answer = self.withholds = False
        self.breaks_at: str | None = None
        self._changed = threading.Condition()

    def send(self, queue: str, *ids: str | None) -> None:
        with self._changed:
            self.queues[queue] += [Message(each, queue, (f"body of {each}",), redelivered=False) for each in ids]
            self._changed.notify_all()

    def cut(self) -> None:
        """End the connection; what was not acknowledged is delivered again, first."""
        with self._changed:
            self.connections += 1
            for message in reversed(self.unacknowledged):
                self.queues[message.queue].insert(0, message._replace(redelivered=True))
            self.unacknowledged.clear()
            self._changed.notify_all()

    def connect(self) -> int:
        with self._changed:
            if self.refuses:
                self.refuses -= 1
                raise ConnectionLostError("refused")
            return self.connections

    def take(self, connection: int, most: int, seconds: float) -> list[Message]:
        with self._changed:
            self._changed.wait_for(lambda: self.connections != connection or any(self._given()), seconds)
            self._check(connection)
            there = (each for queue in self._given() for each in queue if not self.withholds)
            taken = list(islice(there, most))
            for message in taken:
                self.queues[message.queue].remove(message)
            self.unacknowledged += taken
        if self.breaks_at is not None and self.breaks_at in [message.id for message in taken]:
            self.cut()
            self._check(connection)
        return taken

    def _given(self) -> list[list[Message]]:
        return [queue for name, queue in self.queues.items() if name not in self.held]

    def hold(self, connection: int, queues: Collection[str]) -> None:
        with self._changed:
            self._check(connection)
            self.held = frozenset(queues)
            self._changed.notify_all()

    def acknowledge(self, connection: int, count: int) -> None:
        with self._changed:
            self._check(connection)
            assert count <= len(self.unacknowledged)
            del self.unacknowledged[:count]
            lost, self.loses_answer = self.loses_answer, False
        if lost:
            self.cut()
            self._check(connection)

    def ready(self) -> Mapping[str, int]:
        with self._changed:
            return {name: len(queue) for name, queue in self.queues.items()}

    def _check(self, connection: int) -> None:
        if connection != self.connections:
            raise ConnectionLostError("cut")


class BrokerSource(AcknowledgingSource):
    """Reads all queues of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connection = -1
        self.closed = 0

    @property
    def queues(self) -> Sequence[str]:
        return list(self._broker.queues)

    def open(self) -> None:
        self._connection = self._broker.connect()

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        return self._broker.take(self._connection, most, seconds)

    def hold(self, queues: Collection[str]) -> None:
        self._broker.hold(self._connection, queues)

    def acknowledge(self, count: int) -> None:
        self._broker.acknowledge(self._connection, count)

    def ready(self) -> Mapping[str, int]:
        return self._broker.ready()

    def close(self) -> None:
        self.closed += 1
        self._broker.cut()
