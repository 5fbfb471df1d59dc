"""The contract of a source whose broker keeps a message until it is acknowledged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Message(NamedTuple):
    """A message as a broker delivers it.

    Attributes:
        id: The id that its producer gave it, unlike any other message's; None if it has none.
        queue: Where it was read.
        values: Its values, in the order of the source's columns.
    """

    id: str | None
    queue: str
    values: tuple[Any, ...]


class ConnectionLostError(Exception):
    """The connection to the broker is gone, or could not be opened; it is opened again after a pause."""


class AcknowledgingSource(ABC):
    """A consumer of a broker's queues.

    sparkjet makes one in a process on the driver's machine and calls it from one thread. It decides when a message is
    acknowledged: after the record of the epoch that holds it. What is not acknowledged when the connection is lost, or
    the process ends, the broker must deliver again, to whoever reads next and in any order.
    """

    @property
    @abstractmethod
    def queues(self) -> Sequence[str]:
        """The queues, each of which is a substream; known before the first message."""

    @abstractmethod
    def open(self) -> None:
        """Connect, and have the broker deliver; called again after :class:`ConnectionLostError`.

        Raises:
            ConnectionLostError: The broker cannot be reached now.
            SourceError: It never will be, as it is asked: a wrong password, a queue that does not exist.
        """

    @abstractmethod
    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        """Messages that have arrived, waiting so long for the first one; keeps the connection alive meanwhile.

        Args:
            most: Return no more than these; 0 only keeps the connection alive.
            seconds: How long to wait; the answer is empty if none came.

        Raises:
            ConnectionLostError: The connection is gone.
            SourceError: The queue is.
        """

    @abstractmethod
    def acknowledge(self, count: int) -> None:
        """Acknowledge the oldest messages of this connection that were received and not acknowledged.

        It returns when the broker has confirmed it: until then sparkjet drops them if they are delivered again.

        Raises:
            ConnectionLostError: The connection is gone, and nobody knows whether the broker has heard it.
        """

    @abstractmethod
    def ready(self) -> Mapping[str, int]:
        """How many messages each queue holds that were not delivered to anybody."""

    @abstractmethod
    def close(self) -> None:
        """End the connection, if there is one; a second call does nothing."""
