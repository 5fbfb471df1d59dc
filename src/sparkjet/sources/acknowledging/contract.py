"""The contract of a source whose broker keeps a message until it is acknowledged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

NOTICES_WITHIN = 200.0
"""Seconds in which a broker is believed to notice a dead client if its source does not say."""


class Message(NamedTuple):
    """A message as a broker delivers it.

    Attributes:
        id: The id that its producer gave it, unlike any other message's in the queue; None if it has none.
        queue: Where it was read.
        values: Its values, in the order of the source's columns.
        redelivered: Whether it may have been delivered before; True if the broker cannot tell for sure.
        origin: The queue from which the broker has moved it to this one, as a dead letter; None if it has not.
    """

    id: str | None
    queue: str
    values: tuple[Any, ...]
    redelivered: bool = True
    origin: str | None = None


class ConnectionLostError(Exception):
    """The connection to the broker is gone, or could not be opened; it is opened again after a pause."""


def unreadable(id_: str | None, queue: str, reason: object) -> str:
    """What to say of a message that cannot be read, by which the query ends: to leave it out would be to lose it."""
    return (
        f"message {id_!r} of queue {queue!r} cannot be read: {reason}. It is not acknowledged, nor are those after it: "
        "take it out of the queue, or have the broker move it to one of dead letters, and start the query again."
    )


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

    @property
    def broker(self) -> str:
        """A name of what keeps the queues, the same at every address of it; asked for when the source is open.

        Messages of another broker are others, though their queues and ids are the same.
        """
        return ""

    @property
    def notices_within(self) -> float:
        """Seconds after which the broker delivers again what a client was given that is dead; asked for when open.

        Until then, at least, the ids of what was given to it are kept. Follows from what client and broker have agreed
        on, such as heartbeats.
        """
        return NOTICES_WITHIN

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

    @property
    def alone(self) -> bool:
        """Whether nobody else had a message of the queues, or could get one, when :meth:`ready` was called last.

        Then what was given to a connection that is lost is back in them. False if the broker does not tell.
        """
        return False

    @abstractmethod
    def close(self) -> None:
        """End the connection, if there is one; a second call does nothing."""
