"""Throttling: which ideal watermarks are worth emitting.

Every emitted watermark costs an evaluation of windows, so small advances are held back (Jet manual 004, "Watermark
Throttling"; Jet's ``WatermarkEmissionPolicy``). By frame is right for windows, which close only at frame ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sparkjet.errors import AnalysisError
from sparkjet.time.durations import Duration, parse_duration
from sparkjet.time.frames import FrameGrid


@runtime_checkable
class Throttle(Protocol):
    """Decides what is emitted for an ideal watermark; users may implement their own.

    It is not saved, and one object may serve many runs of a query: it must be stateless.
    """

    def throttle(self, ideal: int, last_emitted: int) -> int:
        """The watermark to emit for ``ideal``; a value not above ``last_emitted`` emits nothing.

        Called on the driver once per epoch if ``ideal`` is above ``last_emitted`` (MIN: nothing emitted yet). The value
        must not be above ``ideal``: rows that are still on time would be dropped.
        """
        ...


@dataclass(frozen=True)
class NoThrottling:
    """Settings of :func:`no_throttling`."""

    def throttle(self, ideal: int, last_emitted: int) -> int:
        """The ideal watermark, if it is new."""
        return max(ideal, last_emitted)


@dataclass(frozen=True)
class EmitByFrame:
    """Settings of :func:`emit_by_frame`."""

    step: int
    offset: int = 0

    def __post_init__(self) -> None:
        parse_duration(self.step, "emit_by_frame: step")
        parse_duration(self.offset, "emit_by_frame: offset")
        if self.step:
            FrameGrid(self.step, self.offset)
        elif self.offset:
            raise AnalysisError(f"emit_by_frame: offset {self.offset} without frames; make the step greater than it")

    def throttle(self, ideal: int, last_emitted: int) -> int:
        """The ideal watermark floored to its frame, if that frame is new."""
        if not self.step:
            return last_emitted
        return max(FrameGrid(self.step, self.offset).floor_frame(ideal), last_emitted)


@dataclass(frozen=True)
class EmitByMinStep:
    """Settings of :func:`emit_by_min_step`."""

    step: int

    def __post_init__(self) -> None:
        parse_duration(self.step, "emit_by_min_step: step")

    def throttle(self, ideal: int, last_emitted: int) -> int:
        """The ideal watermark once it is at least a step above the last."""
        return ideal if self.step and ideal >= last_emitted + self.step else last_emitted


def no_throttling() -> NoThrottling:
    """Emit every new watermark.

    >>> no_throttling().throttle(7, 5), no_throttling().throttle(4, 5)
    (7, 5)
    """
    return NoThrottling()


def emit_by_frame(step: Duration, offset: Duration = 0) -> EmitByFrame:
    """Emit only frame ends, floored, each once; a jump over several frames emits the last of them.

    Args:
        step: Length of a frame; 0 emits no watermark at all, so that no window ever closes.
        offset: Where the grid of frames starts.

    >>> emit_by_frame(3).throttle(13, 6), emit_by_frame(3).throttle(14, 12)
    (12, 12)
    """
    return EmitByFrame(parse_duration(step, "emit_by_frame: step"), parse_duration(offset, "emit_by_frame: offset"))


def emit_by_min_step(step: Duration) -> EmitByMinStep:
    """Emit a watermark as it is once it is at least ``step`` above the last one; 0 emits no watermark at all.

    >>> emit_by_min_step(3).throttle(7, 5), emit_by_min_step(3).throttle(8, 5)
    (5, 8)
    """
    return EmitByMinStep(parse_duration(step, "emit_by_min_step: step"))
