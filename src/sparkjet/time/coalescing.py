"""Coalescing: one watermark from those of several inputs.

This is what a Jet task does where edges meet (``WatermarkCoalescer``). sparkjet uses it to unite streams whose
watermarks were made elsewhere; the substreams of one stream meet in :class:`sparkjet.time.SubstreamTracker`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

import msgspec

from sparkjet.errors import AnalysisError, RecoveryError, SparkjetError
from sparkjet.time.frontier import Frontier, FrontierState
from sparkjet.time.states import StateReader
from sparkjet.time.throttling import NoThrottling
from sparkjet.time.watermark_emitter import WatermarkEmitter


class Signal(Enum):
    """Sent by an input or output instead of a watermark."""

    IDLE = "idle"
    """No watermark will come until there are events again; do not wait for one."""


IDLE: Final = Signal.IDLE
"""The input is silent, and is not waited for."""


class WatermarkOrderError(SparkjetError, ValueError):
    """An input's watermark went back, or something came after its end: an error in what feeds the coalescer."""

    condition = "SPARKJET_WATERMARK_ORDER"


class CoalescerState(msgspec.Struct, frozen=True):
    """Snapshot of a coalescer with this number of inputs; the frontier holds those that have not ended."""

    inputs: int
    frontier: FrontierState
    emitted: int
    idle_pending: bool


_read = StateReader(CoalescerState, "a coalescer")


class WatermarkCoalescer:
    """The minimum watermark of the active inputs, which never goes back.

    Each call returns what to pass on: a watermark, IDLE, or None. A single input is passed on unchanged. Unlike in Jet,
    the state can be saved: otherwise the output would start at MIN again.

    Args:
        inputs: Number of inputs, at least 0; they are named 0, 1, ….

    >>> coalescer = WatermarkCoalescer(2)
    >>> coalescer.watermark(0, 10), coalescer.watermark(1, 7), coalescer.idle(1), coalescer.event(1)
    (None, 7, 10, None)
    """

    def __init__(self, inputs: int) -> None:
        if inputs < 0:
            raise AnalysisError(f"inputs = {inputs}: their number must not be negative")
        self._inputs = inputs
        self._frontier = Frontier()
        for source in range(inputs):
            self._frontier.insert(str(source))
        self._emitter = WatermarkEmitter(NoThrottling())
        self._idle_pending = False

    @property
    def coalesced(self) -> int:
        """The last watermark passed on or forced, MIN if there was none."""
        return self._emitter.emitted

    @property
    def top(self) -> int:
        """The highest watermark of any input, MIN if there was none."""
        return self._frontier.top

    def event(self, source: int) -> None:
        """An input had an event: it is waited for again, from its last watermark; this alone passes nothing on."""
        self._frontier.mark_active(self._open(source))
        # A revived input must be waited for: the pending IDLE is no longer true.
        self._idle_pending = False

    def watermark(self, source: int, watermark: int) -> int | Literal[Signal.IDLE] | None:
        """An input's watermark moved, which makes it active.

        Raises:
            WatermarkOrderError: It is not above the input's last one, or the input has ended.
        """
        last = self._frontier[self._open(source)].watermark
        if watermark <= last:
            raise WatermarkOrderError(
                f"watermark {watermark} on input {source} after {last}: each must be above the last"
            )
        self.event(source)
        self._frontier.advance(str(source), watermark)
        return self._evaluate()

    def idle(self, source: int) -> int | Literal[Signal.IDLE] | None:
        """An input is idle: no longer waiting for it may release a watermark at once."""
        self._frontier.mark_idle(self._open(source))
        if self._inputs == 1:
            return IDLE
        return self._evaluate()

    def done(self, source: int) -> int | Literal[Signal.IDLE] | None:
        """An input has ended; once all have, the highest watermark is passed on, and IDLE never."""
        self._frontier.remove(self._open(source))
        if not self._frontier.members:
            # No input is left that could be idle.
            self._idle_pending = False
        return self._evaluate()

    def poll(self) -> int | Literal[Signal.IDLE] | None:
        """Ask for what could not be passed on at once.

        That is the IDLE that follows the highest watermark; or what an input has held that is no longer there, as it
        was retired between two runs.
        """
        pending, self._idle_pending = self._idle_pending, False
        if pending:
            return IDLE
        least = self._frontier.least
        held = self._frontier.top if least is None else least
        return self._evaluate() if self._frontier.members and held > self._emitter.emitted else None

    def force(self, watermark: int) -> None:
        """Count a watermark as passed on, because windows up to it were closed; only higher ones follow."""
        self._emitter.force(watermark)

    def snapshot(self) -> CoalescerState:
        """The entire state."""
        return CoalescerState(self._inputs, self._frontier.snapshot(), self._emitter.emitted, self._idle_pending)

    def restore(self, snapshot: object) -> None:
        """Take over the state in a snapshot.

        Raises:
            RecoveryError: It is not the snapshot of a coalescer with as many inputs; nothing has changed.
        """
        state = _read(snapshot)
        if state.inputs != self._inputs or not state.frontier.members.keys() <= {str(n) for n in range(self._inputs)}:
            raise RecoveryError(f"snapshot of a coalescer of {state.inputs} inputs, but there are {self._inputs}")
        self._frontier = Frontier(state.frontier)
        self._emitter = WatermarkEmitter(NoThrottling(), state.emitted)
        self._idle_pending = state.idle_pending

    def _evaluate(self) -> int | Literal[Signal.IDLE] | None:
        advance = self._emitter.offer(self._frontier.ideal())
        if not advance.went_idle or not self._frontier.members:
            return advance.watermark
        self._idle_pending = advance.watermark is not None
        return IDLE if advance.watermark is None else advance.watermark

    def _open(self, source: int) -> str:
        """The name of an input in the frontier."""
        if not 0 <= source < self._inputs:
            raise WatermarkOrderError(f"input {source} does not exist: there are {self._inputs}")
        if str(source) not in self._frontier:
            raise WatermarkOrderError(f"input {source} has ended: nothing may follow")
        return str(source)
