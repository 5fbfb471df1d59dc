"""The finished block of a large state: the frames that the next windows lose, and all others of it combined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CompiledColumns, Once
from sparkjet.catalyst.constants import constant
from sparkjet.state.partitions import hold, release
from sparkjet.state.segments import overlapping
from sparkjet.windows.accumulators import ROW_COUNT
from sparkjet.windows.blocks import Blocks
from sparkjet.windows.spans import ClosingRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.catalyst.kept_plans import KeptPlans
    from sparkjet.state.segments import Segment
    from sparkjet.time import WindowGrid
    from sparkjet.windows.accumulators import Accumulators

MANY = 500_000
"""Partial rows in the state from which on sorting them all, for suffixes, would hold up an epoch."""


@dataclass(frozen=True)
class Staying:
    """What each window that ends above ``boundary`` and up to ``upto`` has of the block that ends at ``boundary``.

    Attributes:
        table: A span of each key, a checkpointed DataFrame.
        left: The newest frame that is not in it.
    """

    table: DataFrame
    boundary: int
    upto: int
    left: int


class FinishedBlock:
    """What a few windows have of the block before the current one, straight from the frames; on the driver.

    A block has as many suffixes as the state has partial rows. Computing them sorts all of these at once, which
    takes seconds where there are millions, each time that a block is complete. Here, frames that leave with one of the
    next *n* windows are combined anew for each window, and those that stay in all *n* of them once. With *n* the
    square root of the window's steps, either reads about *n* / 2 frames for each window.

    Args:
        window: Length, step and offset in microseconds.
        keys: Names of the key columns.
        accumulators: The fields.
        kept: The plans of the strategy.
    """

    def __init__(self, window: WindowGrid, keys: Sequence[str], accumulators: Accumulators, kept: KeptPlans) -> None:
        self._window = window
        self._keys = tuple(keys)
        self._accumulators = accumulators
        self._kept = kept
        self._blocks = Blocks(window)
        # For Columns of this window; the accumulators' own may also be used by another window.
        self._once = Once()
        self._reach = math.isqrt(window.size // window.step) * window.step
        self._staying: Staying | None = None
        self._garbage: list[DataFrame] = []

    def serves(self, closing: ClosingRange, rows: int) -> bool:
        """Whether this is faster than suffixes: the state has many rows, and few windows close."""
        return rows >= MANY and closing.after is not None and closing.upto - closing.after <= self._reach

    def staying(self, segments: Sequence[Segment], after: int, upto: int) -> Staying:
        """What stays in the windows above ``after`` up to ``upto``, and in those that will close soon."""
        boundary = self._blocks.before(upto)
        known = self._staying
        if known is None or known.boundary != boundary or upto > known.upto:
            last = after + self._reach
            left = last - self._window.size
            constants = left, boundary, last
            frames = overlapping(segments, left, boundary)
            table = self._kept("staying", inputs=[frames], constants=constants, build=self._combined, held=True)
            self.reset()
            self._staying = known = Staying(table, boundary, last, left)
        return known

    def leaving(self, frames: DataFrame, floor: int, left: int) -> DataFrame:
        """The frames above ``floor`` up to ``left`` as spans, over the windows that end behind their block."""
        bounds = self._once("leaving", build=self._leaving)
        return bounds.select(frames.where(ClosingRange.within(floor, left)))

    def _leaving(self) -> CompiledColumns:
        size, length = self._window.size, self._window.frame
        low = (self._blocks.column() + size + length).alias("low")
        high = (F.col("frame") + size - length).alias("high")
        return CompiledColumns([*self._keys, low, high, *self._accumulators.fields])

    def _combined(self, frames: DataFrame, left: int, boundary: int, last: int) -> DataFrame:
        rows = self._accumulators.group(frames.where(ClosingRange.within(left, boundary)), *self._keys)
        first = F.expr(f"{constant(boundary, ROW_COUNT)} + {self._window.frame}L")
        return rows.withColumns({"low": first, "high": F.expr(constant(last, ROW_COUNT))})

    def reset(self) -> None:
        """Discard what stays, because the frames or the window changed, or other windows have come."""
        if self._staying is not None:
            self._garbage.append(self._staying.table)
        self._staying = None

    def release(self) -> None:
        """Free the memory of earlier epochs; what stays now is persisted, even if no job has read it."""
        if self._staying is not None:
            hold(self._staying.table)
        for checkpointed in self._garbage:
            release(checkpointed)
        self._garbage.clear()
