"""What a connection has brought and nobody has received: it is handed on in parts that can be stored together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from sparkjet.sources.acknowledging.contract import Message

TOGETHER = 1 << 23
"""Bytes: beyond, a spool would be larger than it may be by all that a broker sends ahead."""
_T = TypeVar("_T")


class Arrived(Generic[_T]):
    """Messages whose first value is their body, each with what acknowledges it, in the order in which they came.

    >>> arrived = Arrived[int]()
    >>> for number in range(3):
    ...     arrived.append(number, Message(None, "q", (bytes(TOGETHER - 1),)))
    >>> [number for number, _ in arrived.take(9)], len(arrived)
    ([0, 1], 1)
    """

    def __init__(self) -> None:
        self._messages: deque[tuple[_T, Message]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return (message for _, message in self._messages)

    def append(self, receipt: _T, message: Message) -> None:
        """Keep a message."""
        self._messages.append((receipt, message))
        self._size += len(message.values[0])

    def is_enough(self, most: int) -> bool:
        """Whether :meth:`take` would return no more if more came."""
        return len(self._messages) >= most or self._size >= TOGETHER

    def take(self, most: int) -> list[tuple[_T, Message]]:
        """The oldest: so many at most, and fewer if they are large, but one at least."""
        if len(self._messages) <= most and self._size < TOGETHER:
            # Nearly always.
            every = list(self._messages)
            self.clear()
            return every
        taken: list[tuple[_T, Message]] = []
        size = 0
        while self._messages and len(taken) < most and size < TOGETHER:
            each = self._messages.popleft()
            size += len(each[1].values[0])
            taken.append(each)
        self._size -= size
        return taken

    def clear(self) -> None:
        """Let go of all of them."""
        self._messages.clear()
        self._size = 0
