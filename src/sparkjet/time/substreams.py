"""The watermark of a stream made of substreams, each of which progresses at its own pace.

This is Jet's ``EventTimeMapper`` for a whole query: one policy per substream (a Kafka partition, say), the minimum of
the active ones' watermarks, throttled. Two defaults of Jet that lose data are not adopted: nothing is idle unless the
user has set a timeout, and what was emitted is never taken back, not even by a restart. Discovery, and retirement after
a silence, are not in Jet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from sparkjet.errors import AnalysisError, RecoveryError, nearest
from sparkjet.time.durations import Duration, parse_duration
from sparkjet.time.frames import MAX, MIN
from sparkjet.time.frontier import Frontier, FrontierState
from sparkjet.time.processing_time import TOLERANCE, ProcessingTime, moved
from sparkjet.time.states import StateReader
from sparkjet.time.substream import Substream, SubstreamProgress, SubstreamState
from sparkjet.time.throttling import NoThrottling, Throttle
from sparkjet.time.watermark_emitter import Advance, WatermarkEmitter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkjet.time.policies import PolicySettings


class SubstreamsState(msgspec.Struct, frozen=True):
    """Snapshot of a tracker: its substreams, retired ones, what was emitted, and the first and last reading."""

    substreams: dict[str, SubstreamState]
    frontier: FrontierState
    retired: list[str]
    emitted: int
    started: int | None
    now: int


_read = StateReader(SubstreamsState, "the substreams")


class SubstreamTracker:
    """Tracks the substreams of a query on the driver; in an epoch the engine reports, then advances once.

    Clock readings are arguments, in the unit of the policies. A reading slightly below an earlier one, of this run or a
    restored one, counts as the earlier one; one further below sets back processing time, but never a watermark.

    Args:
        policy: Settings of the policies.
        throttle: Decides which watermarks are worth emitting.
        idle_timeout: Silence after which a substream is not waited for; None waits forever.
        discover: Time from the first clock reading of all runs during which nothing is emitted, so that unlisted
            substreams can show up before their first rows would be late.
        substream_timeout: Silence after which a substream is retired.
        tolerance: How far back a reading may go and still count as the earlier one.

    Raises:
        AnalysisError: One of these times is not a positive duration.

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
        self,
        policy: PolicySettings,
        throttle: Throttle | None = None,
        idle_timeout: Duration | None = None,
        *,
        discover: Duration | None = None,
        substream_timeout: Duration | None = None,
        tolerance: int = TOLERANCE,
    ) -> None:
        self._policy = policy
        self._throttle = NoThrottling() if throttle is None else throttle
        self._emitter = WatermarkEmitter(self._throttle)
        self._frontier = Frontier()
        self._idle_timeout = _optional_time(idle_timeout, "idleTimeout")
        self._discover = _optional_time(discover, "discover")
        self._substream_timeout = _optional_time(substream_timeout, "substreamTimeout")
        self._substreams: dict[str, Substream] = {}
        # A dict for its order; a name stays until the substream has data again.
        self._retired: dict[str, None] = {}
        self._started: int | None = None
        self._tolerance = tolerance
        self._time = ProcessingTime(MIN, tolerance)

    @property
    def watermark(self) -> int:
        """The last watermark emitted or forced, MIN if there was none."""
        return self._emitter.emitted

    @property
    def least(self) -> int | None:
        """The least watermark of the substreams that are not idle; None without any."""
        return self._frontier.least

    @property
    def idle(self) -> bool:
        """Whether the last :meth:`advance` left no substream to wait for and there has been no data since."""
        return self._frontier.quiet

    def discovering(self, now: int) -> bool:
        """Whether nothing is emitted at that time yet, because unknown substreams may show up."""
        if self._discover is None:
            return False
        if self._started is None:
            return True
        time = self._time.after(now)
        return time < moved(self._started, self._time.now, time) + self._discover

    def add(self, substream: str, now: int) -> None:
        """Wait for a substream from now on: it has no watermark until it has data.

        A known one stays as it is, and so does a retired one: after a restart the user's list may still name it.
        """
        now = self._clock(now)
        if substream not in self._substreams and substream not in self._retired:
            self._substreams[substream] = Substream(self._policy, now)
            self._frontier.insert(substream)

    def retire(self, substream: str, now: int) -> None:
        """Forget a substream that will have no more data; the next :meth:`advance` no longer waits for it.

        Its name is remembered; if it has data again it is a new substream. A retired one stays as it is.

        Raises:
            AnalysisError: There is no such substream.
        """
        self._clock(now)
        self.check_known(substream)
        if substream in self._substreams:
            self._forget(substream)

    def check_known(self, substream: str) -> None:
        """Refuse a name that no substream has or, if retired, had.

        Raises:
            AnalysisError: There is none; the message names the nearest.
        """
        if substream not in self._retired:
            self._check_known(substream)

    def report(self, substream: str, timestamp: int, now: int) -> None:
        """Take note of a substream's (highest) timestamp; an unknown or retired substream is added."""
        self._retired.pop(substream, None)
        self.add(substream, now)
        self._substreams[substream].report(timestamp, self._clock(now))
        self._frontier.mark_active(substream)

    def hold(self, substream: str, now: int) -> None:
        """Take note that the source holds back a substream that has rows: its silence counts from here.

        An unknown, retired or idle one stays as it is.
        """
        now = self._clock(now)
        if substream in self._substreams:
            self._substreams[substream].hold(now)

    def carry(self, substream: str, watermark: int | None, now: int) -> None:
        """Take note of the watermark that the source carries for a substream; an unknown or retired one stays so.

        Args:
            substream: Its name.
            watermark: None if the source carries none for it, MIN if that has not begun yet.
            now: The clock.
        """
        now = self._clock(now)
        if substream in self._substreams and self._substreams[substream].carry(watermark, now):
            self._frontier.mark_active(substream)

    def advance(self, now: int, cap: int = MAX, caught_up: Mapping[str, bool | None] | None = None) -> Advance:
        """Retire substreams that were silent for too long, poll every active substream and decide what to emit.

        Args:
            now: The clock.
            cap: No substream's watermark is moved above it in this call, so that a policy driven by the clock does not
                make the very events late that are being read.
            caught_up: Whether a substream has been read to its end: one that has not is never idle, however long it has
                been silent. If it is missing or None, the source does not know: the timeout alone decides.

        Raises:
            AnalysisError: The throttle returned more than the ideal watermark.
        """
        now = self._clock(now)
        self._retire_silent(now)
        self._poll(now, cap, caught_up or {})
        if self.discovering(now):
            # If it were reported now, going idle would not be reported once nothing holds it back, and the highest
            # watermark would never leave.
            self._frontier.quiet = False
            return Advance()
        return self._emitter.offer(self._frontier.ideal())

    def force(self, watermark: int) -> None:
        """Raise the watermark because windows up to it were closed at the end; it never goes back below."""
        self._emitter.force(watermark)

    def resume(self, now: int) -> None:
        """Restart counting silence at ``now``: nothing could be read while the query was down."""
        now = self._clock(now)
        for substream in self._substreams.values():
            substream.resume(now)

    def set_back(self, before: int, now: int) -> None:
        """Continue at ``now``, though processing time was ``before``: no timer takes longer than if it started now.

        What was emitted stays so, and a watermark that follows the clock stands still until the clock has caught up.
        """
        for substream in self._substreams.values():
            substream.set_back(before, now)
        if self._started is not None:
            self._started = moved(self._started, before, now)
        self._time.now = min(self._time.now, now)

    def progress(self) -> list[SubstreamProgress]:
        """Each substream's part of a query's progress, in the order in which they were added."""
        least, members = self._frontier.least, self._frontier.members
        return [
            SubstreamProgress(
                name,
                members[name].watermark,
                members[name].idle,
                not members[name].idle and members[name].watermark == least,
                substream.last_data_at,
                substream.caught_up,
            )
            for name, substream in self._substreams.items()
        ]

    def snapshot(self) -> SubstreamsState:
        """Everything but the settings."""
        return SubstreamsState(
            substreams={name: substream.snapshot() for name, substream in self._substreams.items()},
            frontier=self._frontier.snapshot(),
            retired=list(self._retired),
            emitted=self._emitter.emitted,
            started=self._started,
            now=self._time.now,
        )

    def restore(self, snapshot: object) -> None:
        """Take over exactly the state in a snapshot, forgetting everything since; settings may have changed.

        After a restart, follow it by :meth:`add` for each substream that the user lists, and :meth:`resume`.

        Raises:
            RecoveryError: It is not the snapshot of a tracker; nothing has changed.
        """
        state = _read(snapshot)
        if state.substreams.keys() != state.frontier.members.keys():
            raise RecoveryError("snapshot of the substreams does not fit: its frontier has other members")
        self._substreams = {name: Substream.restored(self._policy, each) for name, each in state.substreams.items()}
        self._frontier = Frontier(state.frontier)
        self._retired = dict.fromkeys(state.retired)
        self._emitter = WatermarkEmitter(self._throttle, state.emitted)
        self._started, self._time = state.started, ProcessingTime(state.now, self._tolerance)

    def _clock(self, now: int) -> int:
        if self._time.is_set_back(now):
            self.set_back(self._time.now, now)
        time = self._time.take(now)
        if self._started is None:
            self._started = time
        return time

    def _retire_silent(self, now: int) -> None:
        if self._substream_timeout is None:
            return
        for name, substream in list(self._substreams.items()):
            if substream.silent_since + self._substream_timeout <= now:
                self._forget(name)

    def _forget(self, name: str) -> None:
        del self._substreams[name]
        self._frontier.remove(name)
        self._retired[name] = None

    def _poll(self, now: int, cap: int, caught_up: Mapping[str, bool | None]) -> None:
        for name, substream in self._substreams.items():
            substream.caught_up = caught_up.get(name)
            if self._is_idle(substream, now):
                self._frontier.mark_idle(name)
            else:
                self._frontier.advance(name, min(substream.poll(now), cap))

    def _is_idle(self, substream: Substream, now: int) -> bool:
        if self._idle_timeout is None or substream.caught_up is False:
            return False
        return substream.silent_since + self._idle_timeout <= now

    def _check_known(self, substream: str) -> None:
        if substream not in self._substreams:
            raise AnalysisError(f"no substream {substream!r}: {nearest(substream, self._substreams)}")


def _optional_time(value: Duration | None, option: str) -> int | None:
    return None if value is None else parse_duration(value, option, minimum=1)
