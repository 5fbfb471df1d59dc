"""Messages that a connection has brought and that are not yet received, handed on in parts to be stored together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from sparkjet.sources.acknowledging.contract import Message

TOGETHER = 1 << 23
"""Bytes; beyond this, a spool would exceed its limit by everything that a broker sends ahead."""
_T = TypeVar("_T")


class Arrived(Generic[_T]):
    """Messages in order of arrival, each with its receipt; the first value of a message is its body.

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
        """Whether :meth:`take` would not return more if more came."""
        return len(self._messages) >= most or self._size >= TOGETHER

    def take(self, most: int) -> list[tuple[_T, Message]]:
        """The oldest messages: at most this many, fewer if they are large, but at least one."""
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
        """Discard all of them."""
        self._messages.clear()
        self._size = 0
