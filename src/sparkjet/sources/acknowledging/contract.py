"""The contract of a source whose broker keeps a message until it is acknowledged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

NOTICES_WITHIN = 200.0
"""Seconds within which a broker is assumed to notice a dead client if its source does not say."""


class Message(NamedTuple):
    """A message as a broker delivers it.

    Attributes:
        id: The id that its producer gave it, unique in the queue; None if it has none.
        queue: The queue it was read from.
        values: Its values, in the order of the source's columns.
        redelivered: Whether it may have been delivered before; True if the broker cannot tell for sure.
        origin: The queue from which the broker has moved it to this one as a dead letter; None if it has not.
    """

    id: str | None
    queue: str
    values: tuple[Any, ...]
    redelivered: bool = True
    origin: str | None = None


class ConnectionLostError(Exception):
    """The connection to the broker is gone, or could not be opened; it is reopened after a pause."""


def unreadable(id_: str | None, queue: str, reason: object) -> str:
    """Message for a message that cannot be read, which ends the query: to skip it would be to lose it."""
    return (
        f"message {id_!r} of queue {queue!r} cannot be read: {reason}. It is not acknowledged, nor are those after it: "
        "take it out of the queue, or have the broker move it to one of dead letters, and start the query again."
    )


class AcknowledgingSource(ABC):
    """A consumer of a broker's queues.

    sparkjet creates one in a process on the driver's machine and calls it from one thread. It decides when a message is
    acknowledged: after the record of the epoch that holds it. Messages that are not acknowledged when the connection is
    lost, or the process ends, must be delivered again by the broker, to any next reader and in any order.
    """

    @property
    @abstractmethod
    def queues(self) -> Sequence[str]:
        """The queues, each of which is a substream; known before the first message."""

    @property
    def broker(self) -> str:
        """Name of the broker that keeps the queues, the same at all its addresses; asked for when the source is open.

        Messages of another broker are different ones, even if their queues and ids are the same.
        """
        return ""

    @property
    def notices_within(self) -> float:
        """Seconds after which the broker redelivers the messages of a dead client; asked for when the source is open.

        The ids of these messages are kept at least until then. Follows from what client and broker have agreed on, such
        as heartbeats.
        """
        return NOTICES_WITHIN

    @abstractmethod
    def open(self) -> None:
        """Connect, and have the broker deliver; called again after :class:`ConnectionLostError`.

        Raises:
            ConnectionLostError: The broker cannot be reached at the moment.
            SourceError: It can never be reached as configured: a wrong password, a queue that does not exist.
        """

    @abstractmethod
    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        """Messages that have arrived; waits for the first one, and keeps the connection alive in the meantime.

        Args:
            most: Maximum number to return; 0 only keeps the connection alive.
            seconds: How long to wait; the result is empty if none came.

        Raises:
            ConnectionLostError: The connection is gone.
            SourceError: The queue is gone.
        """

    def hold(self, queues: Collection[str]) -> None:
        """Have the broker keep the messages of these queues, and deliver those of all others; also when opened again.

        What it has delivered of them already is received and acknowledged as ever. Only sources with the option
        ``maxWatermarkDrift`` need it.

        Raises:
            ConnectionLostError: The connection is gone.
            SourceError: A queue cannot be held back without losing messages.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot hold back {sorted(queues)}")

    @abstractmethod
    def acknowledge(self, count: int) -> None:
        """Acknowledge the oldest messages of this connection that were received and not acknowledged.

        Returns when the broker has confirmed it: until then sparkjet drops redelivered ones.

        Raises:
            ConnectionLostError: The connection is gone, and it is unknown whether the broker has received it.
        """

    @abstractmethod
    def ready(self) -> Mapping[str, int]:
        """The number of messages in each queue that have not been delivered to any client; of those held back, too."""

    @property
    def alone(self) -> bool:
        """Whether no other client had, or could get, messages from the queues at the last call of :meth:`ready`.

        If so, the messages given to a lost connection are back in them. False if the broker does not tell.
        """
        return False

    @abstractmethod
    def close(self) -> None:
        """End the connection, if there is one; a second call does nothing."""
