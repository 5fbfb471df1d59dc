"""The history of the top timestamp: what the highest timestamp was some time ago."""

from __future__ import annotations

import msgspec

from sparkjet.errors import AnalysisError
from sparkjet.time.frames import MIN
from sparkjet.time.processing_time import moved
from sparkjet.time.states import StateReader


class HistoryState(msgspec.Struct, frozen=True):
    """Snapshot of a history: its samples, oldest first, and the clock reading at which the ring moves on."""

    interval: int
    slots: list[int]
    advance_at: int


_read = StateReader(HistoryState, "TimestampHistory")


class TimestampHistory:
    """A ring of samples that returns a value observed about ``delay`` ago (Jet's ``TimestampHistory``).

    Each sample covers an interval of ``delay // samples`` and keeps the last value put into it. With dense polling, the
    result is more than ``delay`` minus one interval old and at most ``delay``, so that an observed timestamp is reached
    within the delay, provided it is polled. The clock is passed in, in the unit of ``delay``.

    Args:
        delay: Age of the result, at least ``samples``.
        samples: Number of samples kept, at least 1.

    Raises:
        AnalysisError: A sample would cover less than one time unit.

    >>> history = TimestampHistory(delay=6, samples=3)
    >>> [history.sample(now, 10 * now) for now in (1, 3, 5, 7)][-1]
    10
    """

    def __init__(self, delay: int, samples: int) -> None:
        if samples < 1:
            raise AnalysisError(f"samples = {samples}: a history needs at least 1")
        if delay < samples:
            raise AnalysisError(
                f"delay = {delay}: less than one time unit for each of {samples} samples; "
                f"make the delay at least {samples} or take fewer samples"
            )
        self._interval = delay // samples
        # Oldest first. The last slot is being written, so one more than `samples` is needed.
        self._slots = [MIN] * (samples + 1)
        self._advance_at = MIN

    def sample(self, now: int, value: int) -> int:
        """Put in the highest timestamp so far; returns that of about ``delay`` ago, MIN if unknown.

        Called on every report and poll. A second call at the same time changes only the value for that time; a clock
        that went back counts as standing still, unless :meth:`set_back` was called.
        """
        length = len(self._slots)
        if self._advance_at <= now:
            # Computed, not looped: the first call would take 2^63 steps from MIN.
            due = (now - self._advance_at) // self._interval + 1
            steps = min(due, length)
            self._slots = self._slots[steps:] + [self._slots[-1]] * steps
            # After a gap longer than the ring, the grid of samples restarts at the present.
            self._advance_at = now + self._interval if steps == length else self._advance_at + steps * self._interval
        self._slots[-1] = value
        return self._slots[0]

    def set_back(self, before: int, now: int) -> None:
        """Continue at ``now`` after the clock was set back from ``before``, keeping the age of the newest sample."""
        self._advance_at = moved(self._advance_at - self._interval, before, now) + self._interval

    def snapshot(self) -> HistoryState:
        """The entire state."""
        return HistoryState(self._interval, list(self._slots), self._advance_at)

    def restore(self, snapshot: object) -> None:
        """Continue a saved history; one with another delay or number of samples restarts instead.

        Raises:
            RecoveryError: It is not the snapshot of a history; nothing has changed.
        """
        state = _read(snapshot)
        if state.interval == self._interval and len(state.slots) == len(self._slots):
            self._slots, self._advance_at = list(state.slots), state.advance_at
        else:
            # Samples of other ages would return a value younger than the requested delay.
            self._slots, self._advance_at = [MIN] * len(self._slots), MIN
