"""The watermarks of a query's inputs, event by event: the minimum over the substreams that are waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkjet.time import MIN
from tests.engine.run import Event


@dataclass
class _Substream:
    reached: int = MIN
    silent_since: int = 0


class _Input:
    """One input; a substream without events for so long, by the clock, is not waited for."""

    def __init__(self, lag: int, idle: int, listed: Sequence[str]) -> None:
        self._lag = lag
        self._idle = idle
        self.substreams = {name: _Substream() for name in listed}
        self.waited_for = True
        self.watermark = MIN

    def after(self, events: Sequence[Event], now: int) -> None:
        """Take an epoch's events."""
        for event in events:
            known = self.substreams.setdefault(event.substream, _Substream())
            known.reached = max(known.reached, event.time - self._lag)
            known.silent_since = now
        active = [each.reached for each in self.substreams.values() if now - each.silent_since < self._idle]
        self.waited_for = bool(active)
        top = max(each.reached for each in self.substreams.values())
        self.watermark = max(self.watermark, min(active, default=top))


class NaiveWatermarks:
    """The watermark of each input and of the query, where each input has the same settings.

    Args:
        inputs: Their number.
        lag: Of the policy, in microseconds.
        idle: The idle timeout.
        listed: The substreams that are waited for from the start.
    """

    def __init__(self, inputs: int, lag: int, idle: int, listed: Sequence[str]) -> None:
        self._inputs = [_Input(lag, idle, listed) for _ in range(inputs)]
        self.query = MIN
        self.idled = 0
        """How often a substream was not waited for."""

    def after(self, epoch: Sequence[Sequence[Event]], now: int) -> tuple[int, ...]:
        """The watermark of each input at the end of an epoch: its own, or the query's where that is higher."""
        for each, events in zip(self._inputs, epoch, strict=True):
            each.after(events, now)
            self.idled += sum(now - known.silent_since >= each._idle for known in each.substreams.values())
        waited_for = [each.watermark for each in self._inputs if each.waited_for]
        top = max(each.watermark for each in self._inputs)
        self.query = max(self.query, min(waited_for, default=top))
        return tuple(max(self.query, each.watermark) for each in self._inputs)

    def restarted(self, now: int) -> None:
        """Silence counts from here: nothing could be read while the query was down."""
        for each in self._inputs:
            for known in each.substreams.values():
                known.silent_since = now
