"""The two-stacks strategy: suffixes of the finished block and prefixes of the current one.

Frames are cut into blocks of one window length. A window spans at most two blocks, so it is one suffix of the earlier
block combined with one prefix of the later one: two accumulators, whatever the length, and never a deduct
(Tangwongsan et al., "General Incremental Sliding-Window Aggregation"; Jet recombines the whole window instead).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CompiledColumns, Once
from sparkjet.catalyst.constants import constant
from sparkjet.state.segments import hold, release
from sparkjet.windows.accumulators import Accumulators
from sparkjet.windows.running import Running
from sparkjet.windows.spans import ClosingRange, windows_of

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.time import WindowGrid


@dataclass(frozen=True)
class _View:
    """A part of a checkpointed DataFrame that later epochs read."""

    rows: DataFrame
    backing: DataFrame


class StacksStrategy:
    """Windows as suffix and prefix, for every aggregate with a bounded accumulator.

    Suffixes are computed when a block is complete, prefixes grow epoch by epoch; both are derived state, not part of
    a snapshot: after :meth:`reset` they are recomputed from the frames.
    """

    name = "stacks"

    def __init__(self, window: WindowGrid, keys: Sequence[str], accumulators: Accumulators) -> None:
        self._window = window
        self._keys = tuple(keys)
        self._accumulators = accumulators
        # For Columns of this window; the accumulators' own may also be used by another window.
        self._once = Once()
        self._cumulative = Running(accumulators)
        self._suffixes: _View | None = None
        self._prefixes: _View | None = None
        self._garbage: list[DataFrame] = []

    def reset(self) -> None:
        """Discard both stacks, because the frames or the window changed."""
        self._replace(None, None)

    def close(self, frames: DataFrame, closing: ClosingRange) -> DataFrame:
        """Accumulators of every key's windows in ``closing``; ``frames`` has one or more rows per key and frame."""
        size = self._window.size
        current = None if closing.after is None else self._block_start(closing.after)
        next_block = self._block_start(closing.upto)
        live = self._prefixes
        # After a restore, both stacks are recomputed from the frames.
        floor = current if live is not None or current is None else current - size
        if live is None:
            items = self._select(frames, closing, floor)
        else:
            items = self._select(frames, closing, closing.after).unionByName(self._blocked(live.rows))
        prefixes = self._prefix_spans(items, closing).localCheckpoint(eager=False)
        stacks = [prefixes]
        suffixes = self._suffixes
        if live is None or next_block != current:
            complete = self._select(frames, closing, floor).where(f"block < {constant(next_block, 'block')}")
            finished = self._suffix_spans(complete).localCheckpoint(eager=False)
            stacks.append(finished)
            newest = finished.where(f"block = {constant(next_block - size, 'block')}")
            suffixes = _View(self._spans(newest), finished)
        spans = [self._spans(stack) for stack in stacks]
        if self._suffixes is not None:
            spans.append(self._suffixes.rows)
        self._replace(suffixes, self._open_prefixes(prefixes, next_block))
        united = reduce(DataFrame.unionByName, spans)
        return windows_of(united, closing, self._keys, self._accumulators, unique=False)

    def release(self) -> None:
        """Free the memory of earlier epochs; the rows of the last :meth:`close` must not be read afterwards."""
        for view in (self._suffixes, self._prefixes):
            if view is not None:
                hold(view.backing)
        for checkpointed in self._garbage:
            release(checkpointed)
        self._garbage.clear()

    def _block_start(self, end: int) -> int:
        """Start of the block of the first frame after ``end``."""
        return end - (end - self._window.offset) % self._window.size

    def _select(self, frames: DataFrame, closing: ClosingRange, floor: int | None) -> DataFrame:
        """One row per key and frame, with the block that the frame is in."""
        chosen = frames.where(closing.within(floor, closing.upto))
        return self._blocked(self._accumulators.group(chosen, *self._keys, "frame"))

    def _blocked(self, frames: DataFrame) -> DataFrame:
        return frames.withColumn("block", self._once("block", build=self._block))

    def _block(self) -> Column:
        start = F.col("frame") - self._window.frame
        return start - F.pmod(start - self._window.offset, F.lit(self._window.size))

    def _prefix_spans(self, frames: DataFrame, closing: ClosingRange) -> DataFrame:
        """Spans from each frame of a block up to the next, with all of the block's frames so far."""
        keys = (*self._keys, "block")
        prefixes = self._cumulative.of_rows(frames, keys, "frame")
        last = F.expr(f"least(block + {self._window.size}L, {constant(closing.upto, 'block')})")
        high = F.coalesce(self._once("before next", build=partial(self._before_next, keys)), last)
        return self._with_span(prefixes, self._once("frame", build=lambda: F.col("frame")), high)

    def _before_next(self, keys: Sequence[str]) -> Column:
        return self._cumulative.following(keys, "frame") - self._window.frame

    def _suffix_spans(self, frames: DataFrame) -> DataFrame:
        """Spans over the windows that begin with each frame of a block, with this frame and all that follow it."""
        size, length = self._window.size, self._window.frame
        keys = (*self._keys, "block")
        suffixes = self._cumulative.of_rows(frames, keys, "frame", backwards=True)
        earlier = self._cumulative.following(keys, "frame", backwards=True)
        low = F.coalesce(earlier + size, F.col("block") + size + length)
        return self._with_span(suffixes, low, F.col("frame") + size - length).where("low <= high")

    def _with_span(self, stack: DataFrame, low: Column, high: Column) -> DataFrame:
        values = self._once.columns(*self._keys, "block", "frame", *self._accumulators.fields)
        return values.select(stack, low.alias("low"), high.alias("high"))

    def _spans(self, stack: DataFrame) -> DataFrame:
        return self._once.columns(*self._keys, "low", "high", *self._accumulators.fields).select(stack)

    def _open_prefixes(self, prefixes: DataFrame, block: int) -> _View:
        """The newest prefix of each key in the open block, as a frame to continue from."""
        latest = self._once("latest", build=self._latest)
        current = prefixes.where(f"block = {constant(block, 'block')}")
        rows = latest.agg(current, self._once.columns(*self._keys))
        return _View(self._once.columns(*self._keys, "item.*").select(rows), prefixes)

    def _latest(self) -> CompiledColumns:
        return CompiledColumns([F.max_by(self._accumulators.item("frame"), "frame").alias("item")])

    def _replace(self, suffixes: _View | None, prefixes: _View | None) -> None:
        kept = {id(view.backing) for view in (suffixes, prefixes) if view is not None}
        for view in (self._suffixes, self._prefixes):
            if view is not None and id(view.backing) not in kept:
                self._garbage.append(view.backing)
        self._suffixes, self._prefixes = suffixes, prefixes
