"""Clocks: where the wall-clock time of policies and idle timeouts comes from."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """A source of processing time, called on the driver once per epoch."""

    def now(self) -> int:
        """Microseconds since the Unix epoch."""
        ...


class SystemClock:
    """The wall clock of the driver's machine."""

    def now(self) -> int:
        """Microseconds since the Unix epoch."""
        return time.time_ns() // 1000


class ManualClock:
    """A clock that stands still until it is advanced, for tests.

    >>> clock = ManualClock(10)
    >>> clock.advance(5)
    >>> clock.now()
    15
    """

    def __init__(self, start: int = 0) -> None:
        self._now = start

    def now(self) -> int:
        """Microseconds set so far."""
        return self._now

    def advance(self, microseconds: int) -> None:
        """Let time pass; a negative amount sets the clock back, as a badly kept machine does."""
        self._now += microseconds
