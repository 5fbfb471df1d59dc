"""Coalescing: one watermark out of those of several inputs.

What a Jet task does where edges meet (``WatermarkCoalescer``). sparkjet uses it where streams are united whose
watermarks were made elsewhere; the substreams of one stream meet in :class:`sparkjet.time.SubstreamTracker`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

from sparkjet.errors import AnalysisError, RecoveryError, SparkjetError
from sparkjet.time.frames import MIN
from sparkjet.time.states import Json, entries, entry

_OWNER = "a coalescer"


class Signal(Enum):
    """What an input or output says instead of a watermark."""

    IDLE = "idle"
    """No watermark will come until there are events again; nobody should wait for it."""


IDLE: Final = Signal.IDLE


class WatermarkOrderError(SparkjetError, ValueError):
    """An input's watermark went back, or something came after its end: a fault of what feeds the coalescer."""


class WatermarkCoalescer:
    """The least watermark of the active inputs, never going back.

    Each call answers what to pass on: a watermark, IDLE, or None. A single input is passed on as it is. State may be
    saved, which Jet does not do: without it the output would start at MIN again.

    Args:
        inputs: Number of inputs, at least 0; they are named 0, 1, ….

    >>> coalescer = WatermarkCoalescer(2)
    >>> coalescer.watermark(0, 10), coalescer.watermark(1, 7), coalescer.idle(1), coalescer.event(1)
    (None, 7, 10, None)
    """

    def __init__(self, inputs: int) -> None:
        if inputs < 0:
            raise AnalysisError(f"inputs = {inputs}: their number must not be negative")
        self._watermarks = [MIN] * inputs
        self._idle = [False] * inputs
        self._done = [False] * inputs
        self._emitted = MIN
        self._top = MIN
        self._all_idle = False
        self._idle_pending = False

    @property
    def coalesced(self) -> int:
        """The last watermark passed on or forced, MIN if there was none."""
        return self._emitted

    @property
    def top(self) -> int:
        """The highest watermark of any input, MIN if there was none."""
        return self._top

    def event(self, source: int) -> None:
        """An input had an event: it is waited for again, from the watermark it had; that alone passes nothing on."""
        self._check_open(source)
        self._activate(source)

    def watermark(self, source: int, watermark: int) -> int | Literal[Signal.IDLE] | None:
        """An input's watermark moved, which makes it active.

        Raises:
            WatermarkOrderError: It is not above the input's last one, or the input has ended.
        """
        self._check_open(source)
        if watermark <= self._watermarks[source]:
            raise WatermarkOrderError(
                f"watermark {watermark} on input {source} after {self._watermarks[source]}: each must be above the last"
            )
        self._activate(source)
        self._watermarks[source] = watermark
        self._top = max(self._top, watermark)
        return self._evaluate()

    def idle(self, source: int) -> int | Literal[Signal.IDLE] | None:
        """An input is idle: not waiting for it may release a watermark at once."""
        self._check_open(source)
        self._idle[source] = True
        if len(self._idle) == 1:
            return IDLE
        return self._evaluate()

    def done(self, source: int) -> int | Literal[Signal.IDLE] | None:
        """An input has ended; once all have, the highest watermark is passed on, and IDLE never."""
        self._check_open(source)
        self._done[source] = True
        if all(self._done):
            # Nobody is left that could be idle.
            self._idle_pending = False
        return self._evaluate()

    def poll(self) -> int | Literal[Signal.IDLE] | None:
        """Ask for what could not be said at once: the IDLE that follows the highest watermark."""
        pending, self._idle_pending = self._idle_pending, False
        return IDLE if pending else None

    def force(self, watermark: int) -> None:
        """Count a watermark as passed on, because windows up to it were closed; only higher ones follow."""
        self._emitted = max(self._emitted, watermark)

    def snapshot(self) -> Json:
        """All state."""
        return {
            "watermarks": list(self._watermarks),
            "idle": list(self._idle),
            "done": list(self._done),
            "emitted": self._emitted,
            "top": self._top,
            "all_idle": self._all_idle,
            "idle_pending": self._idle_pending,
        }

    def restore(self, snapshot: Json) -> None:
        """Become what a snapshot described.

        Raises:
            RecoveryError: It is not the snapshot of a coalescer of as many inputs; nothing has changed.
        """
        watermarks = entries(snapshot, "watermarks", int, _OWNER)
        idle = entries(snapshot, "idle", bool, _OWNER)
        done = entries(snapshot, "done", bool, _OWNER)
        if not len(self._watermarks) == len(watermarks) == len(idle) == len(done):
            raise RecoveryError(f"snapshot of {_OWNER} of {len(watermarks)} inputs, but there are {len(self._done)}")
        emitted, top = (entry(snapshot, name, int, _OWNER) for name in ("emitted", "top"))
        all_idle, idle_pending = (entry(snapshot, name, bool, _OWNER) for name in ("all_idle", "idle_pending"))
        self._watermarks, self._idle, self._done = watermarks, idle, done
        self._emitted, self._top, self._all_idle, self._idle_pending = emitted, top, all_idle, idle_pending

    def _evaluate(self) -> int | Literal[Signal.IDLE] | None:
        active = [
            w for w, idle, done in zip(self._watermarks, self._idle, self._done, strict=True) if not (idle or done)
        ]
        if active:
            return self._emit(min(active))
        if self._all_idle:
            return None
        self._all_idle = True
        # Whichever input turned idle last must not decide how far the watermark gets.
        top = self._emit(self._top)
        if all(self._done):
            return top
        self._idle_pending = top is not None
        return IDLE if top is None else top

    def _emit(self, watermark: int) -> int | None:
        if watermark <= self._emitted:
            return None
        self._emitted = watermark
        return watermark

    def _activate(self, source: int) -> None:
        self._idle[source] = False
        self._all_idle = False
        # A revived input must be waited for: the IDLE that was still to be said is no longer true.
        self._idle_pending = False

    def _check_open(self, source: int) -> None:
        if not 0 <= source < len(self._done):
            raise WatermarkOrderError(f"input {source} does not exist: there are {len(self._done)}")
        if self._done[source]:
            raise WatermarkOrderError(f"input {source} has ended: nothing may follow")
