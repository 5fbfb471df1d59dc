"""The recombine strategy: each frame is combined into every window it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.state.segments import overlapping
from sparkjet.windows.spans import ClosingRange, Finish, windows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.state.segments import Segment
    from sparkjet.time import WindowGrid
    from sparkjet.windows.accumulators import Accumulators


class RecombineStrategy:
    """Windows by combining all their frames.

    For tumbling windows, which have one frame, and for accumulators that grow with their input (collect_list,
    collect_set), whose windows cost as much as their output with any strategy.
    """

    name = "recombine"

    def __init__(self, window: WindowGrid, keys: Sequence[str], accumulators: Accumulators) -> None:
        self._window = window
        self._keys = tuple(keys)
        self._accumulators = accumulators
        self._kept = KeptPlans()

    def close(self, segments: Sequence[Segment], closing: ClosingRange, finish: Finish) -> DataFrame:
        """The finished rows of every key's windows in ``closing``; segments may have several rows per key and frame."""
        return self._kept(
            "windows",
            inputs=[overlapping(segments, self._floor(closing.after), closing.upto)],
            constants=(closing.after, closing.upto),
            build=lambda rows, *ends: finish(self._windows(rows, closing.moved(*ends))),
            used=lambda *ends: (self._floor(ends[0]), *closing.moved(*ends).used),
        )

    def _windows(self, frames: DataFrame, closing: ClosingRange) -> DataFrame:
        values = self._accumulators.once.columns(*self._keys, *self._accumulators.fields)
        span = F.expr("frame AS low"), F.expr(f"frame + {self._window.size - self._window.frame}L AS high")
        spans = values.select(frames.where(closing.within(self._floor(closing.after), closing.upto)), *span)
        return windows_of(spans, closing, self._keys, self._accumulators, unique=False)

    def _floor(self, after: int | None) -> int | None:
        return None if after is None else after + self._window.step - self._window.size

    def reset(self) -> None:
        """Does nothing: this strategy derives no state."""

    def release(self) -> None:
        """Does nothing: this strategy holds no state."""
