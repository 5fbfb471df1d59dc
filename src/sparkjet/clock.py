"""Clocks: where the wall-clock time of policies and idle timeouts comes from."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta, timezone
from typing import Protocol, runtime_checkable

from sparkjet.time import TOLERANCE, ProcessingTime

logger = logging.getLogger("sparkjet")

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


class SteadyClock:
    """The processing time of a query, by a clock that may be set, over all its runs.

    It stands still where the clock goes back by up to ten seconds; see :class:`sparkjet.time.ProcessingTime`.

    Args:
        clock: The clock.
        latest: The last reading of the runs before.
    """

    def __init__(self, clock: Clock, latest: int) -> None:
        self._clock = clock
        self._time = ProcessingTime(latest)

    def now(self) -> int:
        """Microseconds since the Unix epoch, as policies are to hear them."""
        reading, before = self._clock.now(), self._time.now
        if self._time.is_set_back(reading):
            logger.warning(
                "The clock went back from %s to %s, by more than %d s, so the earlier reading is taken for wrong: "
                "timeouts and delays go on by the new one. No watermark goes back: what the earlier reading has closed "
                "stays closed, and rows of it are late.",
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
