"""The recombine strategy: each frame is combined into every window that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.windows.spans import ClosingRange, windows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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

    def close(self, frames: DataFrame, closing: ClosingRange) -> DataFrame:
        """Accumulators of every key's windows in ``closing``; ``frames`` has one or more rows per key and frame."""
        floor = None if closing.after is None else closing.after + self._window.step - self._window.size
        values = self._accumulators.once.columns(*self._keys, *self._accumulators.fields)
        span = F.expr("frame AS low"), F.expr(f"frame + {self._window.size - self._window.frame}L AS high")
        spans = values.select(frames.where(closing.within(floor, closing.upto)), *span)
        return windows_of(spans, closing, self._keys, self._accumulators, unique=False)

    def reset(self) -> None:
        """Does nothing: this strategy derives no state."""

    def release(self) -> None:
        """Does nothing: this strategy holds no state."""
