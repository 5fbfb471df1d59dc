"""The state of each watermark policy, for one substream.

Created by the settings in :mod:`sparkjet.time.policies`; its protocol ``WatermarkPolicy`` documents who calls what. The
watermarks of these policies only grow (except for the real-time lag, which has no state) and are clamped to 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from sparkjet.time.frames import MIN, clamp
from sparkjet.time.history import HistoryState, TimestampHistory
from sparkjet.time.processing_time import moved
from sparkjet.time.states import Json, StateReader

if TYPE_CHECKING:
    from sparkjet.time.policies import PolicySettings, WatermarkPolicy


@runtime_checkable
class ResumablePolicy(Protocol):
    """A policy that measures silence, and is notified when a query continues after downtime."""

    def resume(self, now: int) -> None:
        """Count silence from ``now``; called on the driver once per start, after ``restore``."""
        ...


@runtime_checkable
class ClockedPolicy(Protocol):
    """A policy that keeps clock readings, and is notified when processing time is set back."""

    def set_back(self, before: int, now: int) -> None:
        """Continue at ``now``, which is less than ``before``, the last reading; called on the driver."""
        ...


@runtime_checkable
class CarryingPolicy(Protocol):
    """A policy that is notified of the watermark that a source carries."""

    def carry(self, watermark: int | None) -> bool:
        """Take note of a watermark, and return whether it differs from the last one.

        Called on the driver in each epoch with a batch of such a source, after ``report``. None if the source carries
        no watermark for the substream, MIN if that has not begun yet.
        """
        ...


class LagState(msgspec.Struct, frozen=True):
    """Snapshot of a policy whose only state is its watermark."""

    watermark: int


class LagAndDelayState(msgspec.Struct, frozen=True):
    """Snapshot of :class:`LagAndDelayPolicy`: watermark, highest timestamp and its history."""

    watermark: int
    top: int
    history: HistoryState


class CarriedState(msgspec.Struct, frozen=True):
    """Snapshot of :class:`CarriedPolicy`: the carried watermark, and the other policy with its type."""

    watermark: int | None
    otherwise_type: str | None = None
    otherwise: Json = None


class LagAndLullState(msgspec.Struct, frozen=True):
    """Snapshot of :class:`LagAndLullPolicy`: watermark, and the clock reading from which it moves on."""

    watermark: int
    lull_at: int | None


_read_lag = StateReader(LagState, "limiting_lag")
_read_lag_and_delay = StateReader(LagAndDelayState, "limiting_lag_and_delay")
_read_lag_and_lull = StateReader(LagAndLullState, "limiting_lag_and_lull")
_read_carried = StateReader(CarriedState, "carried")
_read_wall_clock = StateReader(LagState, "limiting_timestamp_and_wall_clock_lag")


class LagPolicy:
    """The highest timestamp less a lag (Jet's ``limitingLag``)."""

    def __init__(self, lag: int) -> None:
        self._lag = lag
        self._watermark = MIN

    def report(self, timestamp: int, now: int) -> None:  # noqa: ARG002 - the protocol's
        """Move up to the timestamp less the lag; ignores a timestamp that is less than the lag above MIN."""
        self._watermark = max(self._watermark, clamp(timestamp - self._lag))

    def current(self, now: int) -> int:  # noqa: ARG002 - the protocol's
        """The watermark; a lull does not move it."""
        return self._watermark

    def snapshot(self) -> Json:
        """The watermark."""
        return msgspec.to_builtins(LagState(self._watermark))

    def restore(self, snapshot: Json) -> None:
        """Continue at the saved watermark, whatever the lag was then."""
        self._watermark = _read_lag(snapshot).watermark


class LagAndDelayPolicy:
    """The highest timestamp less a lag, or the highest timestamp of a delay ago (``limitingLagAndDelay``)."""

    def __init__(self, lag: int, delay: int, samples: int) -> None:
        self._lag = lag
        self._watermark = MIN
        self._top = MIN
        self._history = TimestampHistory(delay, samples)

    def report(self, timestamp: int, now: int) -> None:
        """Move up to the timestamp less the lag, and start its delay."""
        self._top = max(self._top, timestamp)
        self._watermark = max(self._watermark, clamp(timestamp - self._lag), self._history.sample(now, self._top))

    def current(self, now: int) -> int:
        """The watermark, at least the highest timestamp of a delay ago."""
        self._watermark = max(self._watermark, self._history.sample(now, self._top))
        return self._watermark

    def set_back(self, before: int, now: int) -> None:
        """Count delays from ``now``: the clock was set back."""
        self._history.set_back(before, now)

    def snapshot(self) -> Json:
        """Watermark, highest timestamp and its history."""
        return msgspec.to_builtins(LagAndDelayState(self._watermark, self._top, self._history.snapshot()))

    def restore(self, snapshot: Json) -> None:
        """Continue; a changed delay starts a new history at the saved highest timestamp."""
        state = _read_lag_and_delay(snapshot)
        self._history.restore(state.history)
        self._watermark, self._top = state.watermark, state.top


class LagAndLullPolicy:
    """The highest timestamp less a lag, moving on with the clock in a lull (``limitingLagAndLull``)."""

    def __init__(self, lag: int, lull: int) -> None:
        self._lag = lag
        self._lull = lull
        self._watermark = MIN
        self._lull_at: int | None = None

    def report(self, timestamp: int, now: int) -> None:
        """Move up to the timestamp less the lag, and end the lull; old timestamps end it too.

        The part of a lull that was not polled is lost: the watermark does not jump when events return.
        """
        self._lull_at = now + self._lull
        self._watermark = max(self._watermark, clamp(timestamp - self._lag))

    def current(self, now: int) -> int:
        """The watermark, moved on by the part of a lull that has passed since the last poll."""
        if self._lull_at is None:
            self._lull_at = now + self._lull
        past = max(0, now - self._lull_at)
        self._lull_at += past
        # MIN is not a time: a substream without events has no watermark that could move on.
        if self._watermark > MIN:
            self._watermark = clamp(self._watermark + past)
        return self._watermark

    def resume(self, now: int) -> None:
        """Count a lull from ``now``: no event could be read while the query was down."""
        if self._lull_at is not None:
            self._lull_at = max(self._lull_at, now + self._lull)

    def set_back(self, before: int, now: int) -> None:
        """Count a lull from ``now``: the clock was set back; the watermark stays where it is."""
        if self._lull_at is not None:
            self._lull_at = moved(self._lull_at - self._lull, before, now) + self._lull

    def snapshot(self) -> Json:
        """Watermark, and the clock reading from which it moves on."""
        return msgspec.to_builtins(LagAndLullState(self._watermark, self._lull_at))

    def restore(self, snapshot: Json) -> None:
        """Continue; a changed lull counts from the next report."""
        state = _read_lag_and_lull(snapshot)
        self._watermark, self._lull_at = state.watermark, state.lull_at


class TimestampAndWallClockLagPolicy:
    """The higher of the highest timestamp and the clock, each less a lag (``limitingTimestampAndWallClockLag``)."""

    def __init__(self, timestamp_lag: int, wall_clock_lag: int) -> None:
        self._timestamp_lag = timestamp_lag
        self._wall_clock_lag = wall_clock_lag
        self._watermark = MIN

    def report(self, timestamp: int, now: int) -> None:
        """Move up to the timestamp less its lag."""
        self._watermark = max(self.current(now), clamp(timestamp - self._timestamp_lag))

    def current(self, now: int) -> int:
        """The watermark, at least the clock less its lag; a clock that goes back changes nothing."""
        self._watermark = max(self._watermark, clamp(now - self._wall_clock_lag))
        return self._watermark

    def snapshot(self) -> Json:
        """The watermark."""
        return msgspec.to_builtins(LagState(self._watermark))

    def restore(self, snapshot: Json) -> None:
        """Continue at the saved watermark, whatever the lags were then."""
        self._watermark = _read_wall_clock(snapshot).watermark


class RealTimeLagPolicy:
    """The clock less a lag (``limitingRealTimeLag``); stateless, and the only one that goes back with its clock."""

    def __init__(self, lag: int) -> None:
        self._lag = lag

    def report(self, timestamp: int, now: int) -> None:
        """Events change nothing."""

    def current(self, now: int) -> int:
        """The clock less the lag."""
        return clamp(now - self._lag)

    def snapshot(self) -> Json:
        """Nothing."""
        return {}

    def restore(self, snapshot: Json) -> None:
        """Nothing to restore."""


class CarriedPolicy:
    """The source's watermark for the substream, or another policy's as long as the source has none.

    Args:
        otherwise: Settings of the other policy; without one, there is no watermark until the source has one.
    """

    def __init__(self, otherwise: PolicySettings | None) -> None:
        self._watermark: int | None = None
        self._otherwise_type = None if otherwise is None else type(otherwise).__qualname__
        self._otherwise: WatermarkPolicy | None = None if otherwise is None else otherwise.create()

    def carry(self, watermark: int | None) -> bool:
        """Take note of the source's watermark; it may go back when another writer has joined."""
        changed = watermark != self._watermark
        self._watermark = watermark
        return changed

    def report(self, timestamp: int, now: int) -> None:
        """Events move the other policy only."""
        if self._otherwise is not None:
            self._otherwise.report(timestamp, now)

    def current(self, now: int) -> int:
        """The carried watermark, otherwise that of the other policy."""
        other = MIN if self._otherwise is None else self._otherwise.current(now)
        return other if self._watermark is None else self._watermark

    def resume(self, now: int) -> None:
        """Tell the other policy of a restart."""
        if self._otherwise is not None and isinstance(self._otherwise, ResumablePolicy):
            self._otherwise.resume(now)

    def set_back(self, before: int, now: int) -> None:
        """Tell the other policy that the clock was set back."""
        if self._otherwise is not None and isinstance(self._otherwise, ClockedPolicy):
            self._otherwise.set_back(before, now)

    def snapshot(self) -> Json:
        """The carried watermark and the state of the other policy."""
        other = None if self._otherwise is None else self._otherwise.snapshot()
        return msgspec.to_builtins(CarriedState(self._watermark, self._otherwise_type, other))

    def restore(self, snapshot: Json) -> None:
        """Continue; the other policy restarts if its type has changed."""
        state = _read_carried(snapshot)
        if self._otherwise is not None and state.otherwise_type == self._otherwise_type:
            self._otherwise.restore(state.otherwise)
        self._watermark = state.watermark
