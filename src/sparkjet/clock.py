"""Clocks: the source of processing time for policies and idle timeouts."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Protocol, runtime_checkable

from sparkjet.query_log import logger
from sparkjet.time import TOLERANCE, ProcessingTime

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


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

    def __repr__(self) -> str:
        return "SystemClock()"


class ManualClock:
    """A clock that stands still until it is advanced, for tests.

    >>> clock = ManualClock(10)
    >>> clock.advance(5)
    >>> clock.now()
    15
    """

    def __init__(self, start: int = 0) -> None:
        self._now = start

    def __repr__(self) -> str:
        return f"ManualClock({self._now})"

    def now(self) -> int:
        """Microseconds set so far."""
        return self._now

    def advance(self, microseconds: int) -> None:
        """Advance the time; a negative amount sets the clock back, as on a misconfigured machine."""
        self._now += microseconds


class SteadyClock:
    """The processing time of a query over all its runs, from a clock that may be set.

    It stands still if the clock goes back by up to ten seconds; see :class:`sparkjet.time.ProcessingTime`.

    Args:
        clock: The clock.
        latest: Last reading in earlier runs.
    """

    def __init__(self, clock: Clock, latest: int) -> None:
        self._clock = clock
        self._time = ProcessingTime(latest)

    def now(self) -> int:
        """Microseconds since the Unix epoch, for policies."""
        reading, before = self._clock.now(), self._time.now
        if self._time.is_set_back(reading):
            logger.warning(
                "The clock went back from %s to %s, by more than %d s, so the earlier reading is considered wrong: "
                "timeouts and delays continue from the new one. No watermark goes back: windows that the earlier "
                "reading has closed stay closed, and their rows are late.",
                _readable(before),
                _readable(reading),
                TOLERANCE // 1_000_000,
            )
        return self._time.take(reading)


def _readable(microseconds: int) -> str:
    try:
        return str(_EPOCH + timedelta(microseconds=microseconds))
    except OverflowError:
        return f"{microseconds} µs"
