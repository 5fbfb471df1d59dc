"""Processing time: what clock readings mean for timers, where the clock may be set."""

from __future__ import annotations

from sparkjet.time.frames import MIN

TOLERANCE = 10_000_000
"""Ten seconds: how far a clock may go back and processing time stands still until it has caught up.

More than a clock that is kept in order ever goes back: NTP slews what is less than 128 ms, a leap second is one second,
and two machines of one time service differ by less than either. Less than what people set as a timeout, so that what
stands still meanwhile is not missed.
"""


class ProcessingTime:
    """The time that policies and timeouts count by; it is never more than ``tolerance`` ahead of the clock.

    A reading that is a little below an earlier one leaves it where it is, so that nobody is silent for a negative time.
    If it is further below, one of the two was wrong, and only the new one goes on: processing time is set back, and
    whoever keeps times of it moves them with :func:`moved`.

    Args:
        now: The last reading; MIN before the first.
        tolerance: In the unit of the readings.

    >>> time = ProcessingTime(100, tolerance=10)
    >>> [(time.is_set_back(reading), time.take(reading)) for reading in (90, 89, 95)]
    [(False, 100), (True, 89), (False, 95)]
    """

    def __init__(self, now: int = MIN, tolerance: int = TOLERANCE) -> None:
        self.now = now
        self._tolerance = tolerance

    def is_set_back(self, reading: int) -> bool:
        """Whether a reading sets processing time back."""
        return reading < self.now - self._tolerance

    def after(self, reading: int) -> int:
        """What it will be after a reading."""
        return reading if self.is_set_back(reading) else max(self.now, reading)

    def take(self, reading: int) -> int:
        """Go on to a reading and answer the time it is then."""
        self.now = self.after(reading)
        return self.now


def moved(stamp: int, before: int, now: int) -> int:
    """A time that was noted before processing time was set back, as it is to be counted from since.

    One that lies in the future now was noted by the same clock as ``before``: as much time has passed since as had by
    then. So a timer that counts from it is at most as long in coming as if it were started anew.

    Args:
        stamp: What was noted, at most ``before``.
        before: Processing time until it was set back.
        now: Processing time since.

    >>> moved(940, before=1000, now=500), moved(430, before=1000, now=500)
    (440, 430)
    """
    return stamp if stamp <= now else stamp - (before - now)
