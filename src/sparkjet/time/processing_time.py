"""Processing time: what clock readings mean for timers if the clock may be set."""

from __future__ import annotations

from sparkjet.time.frames import MIN

TOLERANCE = 10_000_000
"""Ten seconds: how far a clock may go back while processing time stands still until it has caught up.

More than a well-kept clock ever goes back: NTP slews corrections below 128 ms, a leap second is one second, and two
machines on one time service differ by less than either. Less than any usual timeout, so that standing still in the
meantime goes unnoticed.
"""


class ProcessingTime:
    """The time by which policies and timeouts count, never more than ``tolerance`` ahead of the clock.

    A reading slightly below an earlier one leaves it where it is, so that no silence has a negative length. If it is
    further below, one of the two was wrong, and only the new one counts: processing time is set back, and times noted
    before are moved with :func:`moved`.

    Args:
        now: The last reading; MIN before the first.
        tolerance: The tolerance, in the unit of the readings.

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
        """Processing time after a reading."""
        return reading if self.is_set_back(reading) else max(self.now, reading)

    def take(self, reading: int) -> int:
        """Move on to a reading and return the new processing time."""
        self.now = self.after(reading)
        return self.now


def moved(stamp: int, before: int, now: int) -> int:
    """The time from which to count after processing time was set back, for a time noted before.

    A time that now lies in the future was noted by the same clock as ``before``: its age stays the same. So a timer
    that counts from it takes at most as long as a newly started one.

    Args:
        stamp: The time noted, at most ``before``.
        before: Processing time until it was set back.
        now: Processing time since.

    >>> moved(940, before=1000, now=500), moved(430, before=1000, now=500)
    (440, 430)
    """
    return stamp if stamp <= now else stamp - (before - now)
