"""The watermark of a query of several inputs, each made of substreams with its own settings.

A union in Jet: every input has its mapper (:class:`SubstreamTracker`), and where they meet, a coalescer takes the
minimum of those that are not idle. The name of an input is the prefix of its substreams' full names, which are the only
ones used here.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from sparkjet.errors import AnalysisError, RecoveryError, nearest
from sparkjet.time.coalescing import IDLE, CoalescerState, WatermarkCoalescer
from sparkjet.time.frames import MIN
from sparkjet.time.frontier import FrontierState, Member
from sparkjet.time.processing_time import TOLERANCE, ProcessingTime
from sparkjet.time.states import StateReader
from sparkjet.time.substreams import SubstreamsState, SubstreamTracker
from sparkjet.time.watermark_emitter import Advance

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkjet.time.substream import SubstreamProgress


class InputsState(msgspec.Struct, frozen=True):
    """Snapshot of all inputs by prefix, of their common watermark, and the last clock reading."""

    inputs: dict[str, SubstreamsState]
    coalescer: CoalescerState
    now: int

    def goes_on_like(self, other: InputsState) -> bool:
        """Whether a tracker would do the same from both, whatever they say that the next ``advance`` is told.

        That is the clock, which is at no earlier reading than theirs, and what sources say of their ends.
        """
        return _untold(self) == _untold(other)

    def among(self, inputs: Mapping[str, str | None], fresh: InputsState) -> InputsState:
        """The state of a query with other inputs, which goes on from the same watermark.

        Args:
            inputs: Of each of its inputs, by prefix, the one here that it goes on from; None of a new one.
            fresh: The state of that query before it has begun.
        """
        frontier, places = self.coalescer.frontier, {prefix: place for place, prefix in enumerate(sorted(self.inputs))}
        members = {
            str(place): Member() if before is None else frontier.members[str(places[before])]
            for place, before in enumerate(inputs[prefix] for prefix in sorted(inputs))
        }
        # A new input is waited for, so that going idle is to be told again.
        quiet = frontier.quiet and None not in inputs.values()
        pending = self.coalescer.idle_pending and None not in inputs.values()
        return InputsState(
            {
                prefix: fresh.inputs[prefix] if before is None else self.inputs[before]
                for prefix, before in inputs.items()
            },
            CoalescerState(len(inputs), FrontierState(members, frontier.top, quiet), self.coalescer.emitted, pending),
            self.now,
        )


_read = StateReader(InputsState, "the inputs")


def _untold(state: InputsState) -> bytes:
    inputs = {}
    for prefix, each in state.inputs.items():
        substreams = {
            name: msgspec.structs.replace(substream, caught_up=None) for name, substream in each.substreams.items()
        }
        inputs[prefix] = msgspec.structs.replace(each, substreams=substreams, now=0)
    # As text: what a policy has written may come back with other types of sequences.
    return msgspec.json.encode(msgspec.structs.replace(state, inputs=inputs, now=0), order="deterministic")


class InputTracker:
    """Tracks the inputs of a query on the driver; in an epoch the engine reports, then advances once.

    Clock readings are arguments; one a little below an earlier one, of whatever input or run, counts as the earlier
    one, and one further below sets processing time back for all. A single input, named by the empty string, has the
    watermark of its tracker.

    Args:
        trackers: A new tracker for each input; without any, as in a query without windows, there is no watermark.
        tolerance: How far a reading may go back and count as the earlier one.

    Raises:
        AnalysisError: A substream's name could belong to two.

    >>> from sparkjet.time import limiting_lag
    >>> orders, trades = SubstreamTracker(limiting_lag(0)), SubstreamTracker(limiting_lag(5), idle_timeout=9)
    >>> inputs = InputTracker({"orders/": orders, "trades/": trades})
    >>> inputs.report("orders/a", 20, now=1); inputs.report("trades/a", 20, now=1)
    >>> inputs.advance(now=1).watermark, [p.id for p in inputs.progress() if p.holds]
    (15, ['trades/a'])
    >>> inputs.advance(now=10).watermark
    20
    """

    def __init__(self, trackers: Mapping[str, SubstreamTracker], tolerance: int = TOLERANCE) -> None:
        for shorter, longer in pairwise(sorted(trackers)):
            if longer.startswith(shorter):
                raise AnalysisError(
                    f"inputs {shorter!r} and {longer!r}: a substream {longer!r} could be of either; "
                    f"no input's prefix may begin with another's"
                )
        self._trackers = dict(trackers)
        # By name: the same inputs in another order must find their own state after a restart.
        self._places = {prefix: place for place, prefix in enumerate(sorted(trackers))}
        self._coalescer = WatermarkCoalescer(len(trackers))
        self._tolerance = tolerance
        self._time = ProcessingTime(MIN, tolerance)

    @property
    def watermark(self) -> int:
        """The last watermark emitted or forced, MIN if there was none."""
        return self._coalescer.coalesced

    @property
    def reached(self) -> int:
        """Where the watermark would be without a throttle.

        >>> from sparkjet.time import emit_by_frame, limiting_lag
        >>> inputs = InputTracker({"": SubstreamTracker(limiting_lag(1), emit_by_frame(10))})
        >>> inputs.report("a", 18, now=1); inputs.advance(now=1).watermark, inputs.reached
        (10, 17)
        """
        least = [tracker.least for tracker in self._trackers.values()]
        return max(self.watermark, min((each for each in least if each is not None), default=MIN))

    def watermark_of(self, prefixes: Collection[str]) -> int:
        """The watermark of some of the inputs: the minimum of theirs, or the query's where that is higher.

        It is higher where they are idle, and the query does not wait for them.

        >>> from sparkjet.time import limiting_lag
        >>> inputs = InputTracker({"a/": SubstreamTracker(limiting_lag(0)), "b/": SubstreamTracker(limiting_lag(0))})
        >>> inputs.report("a/1", 20, now=1); inputs.report("b/1", 30, now=1)
        >>> inputs.advance(now=1).watermark, inputs.watermark_of(["a/"]), inputs.watermark_of(["b/"])
        (20, 20, 30)
        """
        return max(self.watermark, min(self._trackers[prefix].watermark for prefix in prefixes))

    def discovering(self, now: int) -> bool:
        """Whether an input, and with it the query, emits nothing new yet because unknown substreams may show up."""
        time = self._time.after(now)
        return any(tracker.discovering(time) for tracker in self._trackers.values())

    def add(self, substream: str, now: int) -> None:
        """Wait for a substream from now on, as :meth:`SubstreamTracker.add` does.

        Raises:
            AnalysisError: It belongs to no input.
        """
        prefix, name = self._split(substream)
        self._trackers[prefix].add(name, self._clock(now))

    def retire(self, substream: str, now: int) -> None:
        """Forget a substream, as :meth:`SubstreamTracker.retire` does.

        Raises:
            AnalysisError: There is no such substream.
        """
        self.check_known(substream)
        prefix, name = self._split(substream)
        self._trackers[prefix].retire(name, self._clock(now))

    def check_known(self, substream: str) -> None:
        """Refuse a name that no substream has or had, as :meth:`SubstreamTracker.check_known` does.

        Raises:
            AnalysisError: Naming the nearest of all inputs.
        """
        prefix, name = self._split(substream)
        try:
            self._trackers[prefix].check_known(name)
        except AnalysisError as error:
            # The tracker's own message would name substreams without their input, and only those of this one.
            known = [progress.id for progress in self.progress()]
            raise AnalysisError(f"no substream {substream!r}: {nearest(substream, known)}") from error

    def report(self, substream: str, timestamp: int, now: int) -> None:
        """Take note of a substream's (highest) timestamp; its input is waited for again if it was idle.

        Raises:
            AnalysisError: It belongs to no input.
        """
        prefix, name = self._split(substream)
        self._trackers[prefix].report(name, timestamp, self._clock(now))
        self._coalescer.event(self._places[prefix])

    def hold(self, substream: str, now: int) -> None:
        """Take note that a substream is held back, as :meth:`SubstreamTracker.hold` does.

        Raises:
            AnalysisError: It belongs to no input.
        """
        prefix, name = self._split(substream)
        self._trackers[prefix].hold(name, self._clock(now))

    def carry(self, substream: str, watermark: int | None, now: int) -> None:
        """Take note of a watermark that a source carries, as :meth:`SubstreamTracker.carry` does.

        Raises:
            AnalysisError: The substream belongs to no input.
        """
        prefix, name = self._split(substream)
        self._trackers[prefix].carry(name, watermark, self._clock(now))

    def advance(self, now: int, caught_up: Mapping[str, bool | None] | None = None) -> Advance:
        """Advance every input and decide what to emit; the query goes idle when its last active input does.

        Args:
            now: The clock.
            caught_up: Of each substream, as for :meth:`SubstreamTracker.advance`.

        Raises:
            AnalysisError: A throttle answered too much, or ``caught_up`` names a substream of no input.
        """
        now = self._clock(now)
        known: dict[str, dict[str, bool | None]] = {prefix: {} for prefix in self._trackers}
        for substream, value in (caught_up or {}).items():
            prefix, name = self._split(substream)
            known[prefix][name] = value
        advances = {prefix: tracker.advance(now, caught_up=known[prefix]) for prefix, tracker in self._trackers.items()}
        for prefix, tracker in self._trackers.items():
            # Before anything is released: an input that waits for a substream without data holds the others too.
            if not tracker.idle:
                self._coalescer.event(self._places[prefix])
        answers = [
            self._coalescer.watermark(self._places[prefix], advance.watermark)
            for prefix, advance in advances.items()
            if advance.watermark is not None
        ]
        # After the watermarks: an input that goes idle last must not release less than the others have reached.
        answers += [self._coalescer.idle(self._places[prefix]) for prefix, each in advances.items() if each.went_idle]
        answers.append(self._coalescer.poll())
        return Advance(max((each for each in answers if isinstance(each, int)), default=None), IDLE in answers)

    def force(self, watermark: int) -> None:
        """Raise the watermark of the query and of every input, as :meth:`SubstreamTracker.force` does."""
        for tracker in self._trackers.values():
            tracker.force(watermark)
        self._coalescer.force(watermark)

    def resume(self, now: int) -> None:
        """Count silence again from ``now``: nothing could be read while the query was down."""
        now = self._clock(now)
        for tracker in self._trackers.values():
            tracker.resume(now)

    def progress(self) -> list[SubstreamProgress]:
        """The progress of each substream; those hold the watermark that are the minimum over all inputs."""
        found = [(prefix, each) for prefix, tracker in self._trackers.items() for each in tracker.progress()]
        least = min((each.watermark for _, each in found if not each.idle), default=None)
        return [
            replace(each, id=prefix + each.id, holds=not each.idle and each.watermark == least)
            for prefix, each in found
        ]

    def snapshot(self) -> InputsState:
        """Everything but the settings."""
        return InputsState(
            inputs={prefix: tracker.snapshot() for prefix, tracker in self._trackers.items()},
            coalescer=self._coalescer.snapshot(),
            now=self._time.now,
        )

    def restore(self, snapshot: object) -> None:
        """Become exactly what a snapshot described, forgetting everything since; settings may have changed.

        After a restart follow it by :meth:`add` for each substream that the user lists, and :meth:`resume`.

        Raises:
            RecoveryError: It is the snapshot of other inputs, or of something else; nothing has changed.
        """
        state = _read(snapshot)
        if state.inputs.keys() != self._trackers.keys():
            appeared = sorted(self._trackers.keys() - state.inputs.keys())
            disappeared = sorted(state.inputs.keys() - self._trackers.keys())
            raise RecoveryError(
                f"the query has other inputs than its snapshot: appeared {appeared}, disappeared {disappeared}; "
                f"run it with the inputs it had, or start from scratch with another checkpointLocation"
            )
        before = self.snapshot()
        try:
            self._assume(state)
        except Exception:
            # A user's policy may refuse its snapshot after other inputs have taken theirs.
            self._assume(before)
            raise

    def _assume(self, state: InputsState) -> None:
        for prefix, tracker in self._trackers.items():
            tracker.restore(state.inputs[prefix])
        self._coalescer.restore(state.coalescer)
        self._time = ProcessingTime(state.now, self._tolerance)

    def _clock(self, now: int) -> int:
        # Inputs with a last reading each would disagree on how long a substream has been silent.
        if self._time.is_set_back(now):
            for tracker in self._trackers.values():
                tracker.set_back(self._time.now, now)
        return self._time.take(now)

    def _split(self, substream: str) -> tuple[str, str]:
        if not self._trackers:
            raise AnalysisError(f"substream {substream!r}: a query without windows has no watermark and no substreams")
        for prefix in self._trackers:
            if substream.startswith(prefix):
                return prefix, substream.removeprefix(prefix)
        raise AnalysisError(
            f"substream {substream!r} is of no input: its name must begin with an input's prefix; "
            f"{nearest(substream, self._trackers)}"
        )
