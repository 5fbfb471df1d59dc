"""The watermark of a stream made of substreams, each as far along as it is.

This is Jet's ``EventTimeMapper`` for a whole query: one policy for each substream (a Kafka partition, say), the least
of the active ones' watermarks, throttled. Two defaults of Jet that lose data are not taken over: nothing is idle unless
the user set a timeout, and what was emitted is never taken back, not even by a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError, RecoveryError, nearest
from sparkjet.time.durations import Duration, parse_duration
from sparkjet.time.frames import MAX, MIN
from sparkjet.time.states import Json, entry
from sparkjet.time.substream import Substream, SubstreamProgress
from sparkjet.time.throttling import NoThrottling, Throttle

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkjet.time.policies import PolicySettings

_OWNER = "the substreams"


@dataclass(frozen=True)
class Advance:
    """Answer of :meth:`SubstreamTracker.advance`.

    ``watermark`` is the one to emit now, None if there is nothing new. ``went_idle`` is true once at each transition to
    having no active substream at all; the watermark that comes with it is the highest that any substream had.
    """

    watermark: int | None = None
    went_idle: bool = False


class SubstreamTracker:
    """Tracks the substreams of a query on the driver; in an epoch the engine reports, then advances once.

    Clock readings are arguments, in the unit of the policies. A reading below an earlier one, of this run or a restored
    one, counts as the earlier one.

    Args:
        policy: Settings of the policies.
        throttle: Which watermarks are worth emitting.
        idle_timeout: Silence after which a substream is not waited for; None waits for ever.

    Raises:
        AnalysisError: The timeout is no positive duration.

    >>> from sparkjet.time import limiting_lag
    >>> tracker = SubstreamTracker(limiting_lag(3))
    >>> tracker.add("a", now=0); tracker.add("b", now=0)
    >>> tracker.report("a", 20, now=1)
    >>> tracker.advance(now=1)
    Advance(watermark=None, went_idle=False)
    >>> tracker.report("b", 10, now=2)
    >>> tracker.advance(now=2).watermark, [p.id for p in tracker.progress() if p.holds]
    (7, ['b'])
    """

    def __init__(
        self, policy: PolicySettings, throttle: Throttle | None = None, idle_timeout: Duration | None = None
    ) -> None:
        self._policy = policy
        self._throttle = NoThrottling() if throttle is None else throttle
        self._idle_timeout = None if idle_timeout is None else parse_duration(idle_timeout, "idleTimeout", minimum=1)
        self._substreams: dict[str, Substream] = {}
        self._emitted = MIN
        self._top = MIN
        self._all_idle = False
        self._now = MIN

    @property
    def watermark(self) -> int:
        """The last watermark emitted or forced, MIN if there was none."""
        return self._emitted

    def add(self, substream: str, now: int) -> None:
        """Wait for a substream from now on: it has no watermark until it has data. A known one stays as it is."""
        now = self._clock(now)
        if substream not in self._substreams:
            self._substreams[substream] = Substream(self._policy, now)

    def remove(self, substream: str, now: int) -> None:
        """Forget a substream that will have no more data; the next :meth:`advance` no longer waits for it.

        Raises:
            AnalysisError: There is no such substream.
        """
        self._clock(now)
        self._known(substream)
        del self._substreams[substream]

    def report(self, substream: str, timestamp: int, now: int) -> None:
        """Take note of a substream's (highest) timestamp; an unknown substream is added."""
        self.add(substream, now)
        self._substreams[substream].report(timestamp, self._clock(now))
        self._all_idle = False

    def advance(self, now: int, cap: int = MAX, caught_up: Collection[str] | None = None) -> Advance:
        """Poll every active substream and decide what to emit.

        Args:
            now: The clock.
            cap: No substream's watermark is moved above it in this call, so that a policy driven by the clock does not
                make the very events late that are being read.
            caught_up: The substreams known to have been read to their end; no other one is idle, however long it has
                been silent. None: the source cannot tell.

        Raises:
            AnalysisError: A throttle of the user's answered more than the ideal watermark.
        """
        now = self._clock(now)
        ideal: int | None = None
        for name, substream in self._substreams.items():
            substream.idle = self._is_idle(substream, now, caught_up is None or name in caught_up)
            if substream.idle:
                continue
            watermark = substream.poll(now, cap)
            self._top = max(self._top, watermark)
            ideal = watermark if ideal is None else min(ideal, watermark)
        went_idle = ideal is None and not self._all_idle
        self._all_idle = ideal is None
        if ideal is None:
            # Whichever substream turned idle last must not decide how far the watermark gets.
            ideal = self._top
        return Advance(self._emit(ideal) if went_idle or not self._all_idle else None, went_idle)

    def force(self, watermark: int) -> None:
        """Raise the watermark because windows up to it were closed at the end; it never goes back below."""
        self._emitted = max(self._emitted, watermark)

    def reinstate(self, substream: str, watermark: int) -> None:
        """Give a substream the watermark that an older run saved for it (Jet's ``restoreWatermark``).

        The least of all substreams' then counts as emitted already, also where a throttle had held it back.

        Raises:
            AnalysisError: There is no such substream.
        """
        self._known(substream).watermark = watermark
        self.force(min(each.watermark for each in self._substreams.values()))

    def resume(self, now: int) -> None:
        """Count silence anew from ``now``: after a restart nobody could have heard a substream while we were down."""
        now = self._clock(now)
        for substream in self._substreams.values():
            substream.silent_since = now

    def progress(self) -> list[SubstreamProgress]:
        """What a query's progress says of each substream, in the order in which they were added."""
        least = min((s.watermark for s in self._substreams.values() if not s.idle), default=None)
        return [
            substream.progress(name, holds=not substream.idle and substream.watermark == least)
            for name, substream in self._substreams.items()
        ]

    def snapshot(self) -> Json:
        """Everything but the settings: substreams with their policies, what was emitted, the last clock reading."""
        return {
            "substreams": {name: substream.snapshot() for name, substream in self._substreams.items()},
            "emitted": self._emitted,
            "top": self._top,
            "all_idle": self._all_idle,
            "now": self._now,
        }

    def restore(self, snapshot: Json) -> None:
        """Become exactly what a snapshot described, forgetting everything since; settings may have changed.

        After a restart follow it by :meth:`add` for each substream that the user lists, and :meth:`resume`.

        Raises:
            RecoveryError: It is not the snapshot of a tracker; nothing has changed.
        """
        saved = entry(snapshot, "substreams", dict, _OWNER)
        if not all(isinstance(name, str) for name in saved):
            raise RecoveryError(f"snapshot of {_OWNER}: an id is no string: {list(saved)}")
        substreams = {name: Substream.restored(self._policy, each) for name, each in saved.items()}
        emitted, top, now = (entry(snapshot, name, int, _OWNER) for name in ("emitted", "top", "now"))
        self._all_idle = entry(snapshot, "all_idle", bool, _OWNER)
        self._substreams, self._emitted, self._top, self._now = substreams, emitted, top, now

    def _clock(self, now: int) -> int:
        # A clock set back would otherwise make a substream idle later than promised, or a lull last longer.
        self._now = max(self._now, now)
        return self._now

    def _is_idle(self, substream: Substream, now: int, caught_up: bool) -> bool:
        if self._idle_timeout is None or not caught_up:
            return False
        return substream.silent_since + self._idle_timeout <= now

    def _emit(self, ideal: int) -> int | None:
        if ideal <= self._emitted:
            return None
        answer = self._throttle.throttle(ideal, self._emitted)
        if answer > ideal:
            raise AnalysisError(
                f"{self._throttle!r} answered {answer} for the ideal watermark {ideal}: rows on time would be dropped; "
                f"a throttle must answer at most the ideal watermark"
            )
        if answer <= self._emitted:
            return None
        self._emitted = answer
        return answer

    def _known(self, substream: str) -> Substream:
        if substream not in self._substreams:
            raise AnalysisError(f"no substream {substream!r}: {nearest(substream, self._substreams)}")
        return self._substreams[substream]
