"""The two-stacks strategy: suffixes of the finished block and prefixes of the current one.

Frames are cut into blocks of one window length. A window spans at most two blocks, so it is one suffix of the earlier
block combined with one prefix of the later one: two accumulators, whatever the length, and never a deduct
(Tangwongsan et al., "General Incremental Sliding-Window Aggregation"; Jet recombines the whole window instead).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CompiledColumns, Once
from sparkjet.catalyst.constants import constant
from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.catalyst.tables import Rows
from sparkjet.state.segments import hold, overlapping, release
from sparkjet.windows.accumulators import Accumulators
from sparkjet.windows.running import Running
from sparkjet.windows.spans import ClosingRange, Finish, windows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.state.segments import Segment
    from sparkjet.time import WindowGrid

_MANY = 500_000
"""Partial rows in the state from which on suffixes are read in slices."""


@dataclass(frozen=True)
class _Stack:
    """A checkpointed DataFrame of which later epochs read the rows of one block.

    Attributes:
        table: The DataFrame.
        block: Start of the block.
        newest: Whether it has one row of each key, the newest prefix.
    """

    table: DataFrame
    block: int
    newest: bool = False


@dataclass(frozen=True)
class _Slice:
    """The suffixes that windows with an end up to ``upto`` need, read instead of all of them."""

    stack: _Stack
    upto: int


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
        self._kept = KeptPlans()
        self._suffixes: _Stack | None = None
        self._prefixes: _Stack | None = None
        self._slice: _Slice | None = None
        self._garbage: list[DataFrame] = []

    def reset(self) -> None:
        """Discard both stacks, because the frames or the window changed."""
        self._replace(None, None)

    def close(self, segments: Sequence[Segment], closing: ClosingRange, finish: Finish) -> DataFrame:
        """The finished rows of every key's windows in ``closing``; segments may have several of a key and frame."""
        size, upto = self._window.size, closing.upto
        current = None if closing.after is None else self._block_start(closing.after)
        next_block = self._block_start(upto)
        before, suffixes = self._suffixes, self._suffixes
        live = self._prefixes
        # After a restore, both stacks are recomputed from the frames.
        floor = current if live is not None or current is None else current - size
        frames = overlapping(segments, floor, upto)
        if live is None:
            prefixes = self._kept("first", inputs=[frames], constants=(floor, upto), build=self._begun, held=True)
        else:
            constants = closing.after, upto, live.block
            both = overlapping(segments, closing.after, upto), [Rows(live.table)]
            build = self._continued if not closing.single else self._next if live.newest else self._first_next
            prefixes = self._kept("prefixes", build, inputs=both, constants=constants, build=build, held=True)
        spans = [Rows(prefixes, self._spans)]
        if live is None or next_block != current:
            constants = floor, upto, next_block
            finished = self._kept("suffixes", inputs=[frames], constants=constants, build=self._completed, held=True)
            spans.append(Rows(finished, self._spans))
            suffixes = _Stack(finished, next_block - size)
        if before is not None:
            before = self._sliced(before, closing, sum(segment.statistics.rows for segment in segments))
        self._replace(suffixes, _Stack(prefixes, next_block, newest=live is not None and closing.single))
        return self._kept(
            "windows",
            inputs=[spans, *([] if before is None else [[Rows(before.table)]])],
            constants=(closing.after, upto, None if before is None else before.block),
            build=lambda *given: finish(self._windows(closing, *given)),
            used=lambda after, end, block: (*closing.moved(after, end).used, block),
        )

    def _begun(self, frames: DataFrame, floor: int | None, upto: int) -> DataFrame:
        """Prefixes of the frames alone."""
        return self._prefix_spans(self._select(frames, floor, upto), upto)

    def _continued(self, frames: DataFrame, live: DataFrame, after: int, upto: int, block: int) -> DataFrame:
        """Prefixes that go on from those of the epoch before."""
        newest = self._blocked(self._newest(live, block))
        return self._prefix_spans(self._select(frames, after, upto).unionByName(newest), upto)

    def _first_next(self, frames: DataFrame, live: DataFrame, after: int, upto: int, block: int) -> DataFrame:
        """The first of :meth:`_next`, from prefixes of which a key may have several."""
        return self._added(frames, self._newest(live, block), after, upto, block)

    def _next(self, frames: DataFrame, live: DataFrame, after: int, upto: int, block: int) -> DataFrame:
        """Prefixes where one window closes after another."""
        return self._added(frames, live.where(f"block = {constant(block, 'block')}"), after, upto, block)

    def _added(self, frames: DataFrame, newest: DataFrame, after: int, upto: int, block: int) -> DataFrame:
        """Prefixes at one end: what is new adds up in any order, without a running value for each frame."""
        values = self._once.columns(*self._keys, "frame", *self._accumulators.fields)
        entering = values.select(frames.where(ClosingRange.within(after, upto)))
        rows = entering.unionByName(values.select(newest))
        prefixes = self._accumulators.group(rows, *self._keys, beside=("frame",))
        end = F.expr(constant(upto, "frame"))
        return self._with_span(prefixes.withColumn("block", F.expr(constant(block, "frame"))), end, end)

    def _sliced(self, suffixes: _Stack, closing: ClosingRange, rows: int) -> _Stack:
        """The suffixes of a block that ``closing`` needs, and perhaps further ones.

        There are as many as there are rows in the state, and to look at them all would take longer than the epoch's
        own rows. So what the next ends need is copied once, for the square root of their number.
        """
        step = self._window.step
        ends = math.isqrt(self._window.size // step)
        if rows < _MANY or closing.after is None or closing.upto - closing.after > ends * step:
            return suffixes
        known = self._slice
        if known is None or known.stack.block != suffixes.block or closing.upto > known.upto:
            upto = closing.upto + (ends - 1) * step
            constants = closing.after + step, upto, suffixes.block
            source = [[Rows(suffixes.table)]]
            table = self._kept("slice", inputs=source, constants=constants, build=self._between, held=True)
            self._forget_slice()
            self._slice = known = _Slice(_Stack(table, suffixes.block), upto)
        return known.stack

    def _between(self, suffixes: DataFrame, first: int, last: int, block: int) -> DataFrame:
        chosen = f"block = {constant(block, 'block')} AND low <= {constant(last, 'low')} AND high >= "
        return suffixes.where(chosen + constant(first, "high"))

    def _forget_slice(self) -> None:
        if self._slice is not None:
            self._garbage.append(self._slice.stack.table)
        self._slice = None

    def _completed(self, frames: DataFrame, floor: int | None, upto: int, block: int) -> DataFrame:
        """Suffixes of the blocks before one."""
        return self._suffix_spans(self._select(frames, floor, upto).where(f"block < {constant(block, 'block')}"))

    def _windows(self, closing: ClosingRange, spans: DataFrame, *given: Any) -> DataFrame:
        *suffixes, after, upto, block = given
        for each in suffixes:
            spans = spans.unionByName(self._spans(each.where(f"block = {constant(block, 'block')}")))
        return windows_of(spans, closing.moved(after, upto), self._keys, self._accumulators, unique=False)

    def release(self) -> None:
        """Free the memory of earlier epochs; the rows of the last :meth:`close` must not be read afterwards."""
        for stack in (self._suffixes, self._prefixes, None if self._slice is None else self._slice.stack):
            if stack is not None:
                hold(stack.table)
        for checkpointed in self._garbage:
            release(checkpointed)
        self._garbage.clear()

    def _block_start(self, end: int) -> int:
        """Start of the block of the first frame after ``end``."""
        return end - (end - self._window.offset) % self._window.size

    def _select(self, frames: DataFrame, floor: int | None, upto: int) -> DataFrame:
        """One row per key and frame, with the block that the frame is in."""
        chosen = frames.where(ClosingRange.within(floor, upto))
        return self._blocked(self._accumulators.group(chosen, *self._keys, "frame"))

    def _blocked(self, frames: DataFrame) -> DataFrame:
        return frames.withColumn("block", self._once("block", build=self._block))

    def _block(self) -> Column:
        start = F.col("frame") - self._window.frame
        return start - F.pmod(start - self._window.offset, F.lit(self._window.size))

    def _prefix_spans(self, frames: DataFrame, upto: int) -> DataFrame:
        """Spans from each frame of a block up to the next, with all of the block's frames so far."""
        keys = (*self._keys, "block")
        prefixes = self._cumulative.of_rows(frames, keys, "frame")
        last = F.expr(f"least(block + {self._window.size}L, {constant(upto, 'block')})")
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

    def _newest(self, prefixes: DataFrame, block: int) -> DataFrame:
        """The newest prefix of each key in a block, as a frame to continue from."""
        latest = self._once("latest", build=self._latest)
        current = prefixes.where(f"block = {constant(block, 'block')}")
        rows = latest.agg(current, self._once.columns(*self._keys))
        return self._once.columns(*self._keys, "item.*").select(rows)

    def _latest(self) -> CompiledColumns:
        return CompiledColumns([F.max_by(self._accumulators.item("frame"), "frame").alias("item")])

    def _replace(self, suffixes: _Stack | None, prefixes: _Stack | None) -> None:
        kept = {id(stack.table) for stack in (suffixes, prefixes) if stack is not None}
        for stack in (self._suffixes, self._prefixes):
            if stack is not None and id(stack.table) not in kept:
                self._garbage.append(stack.table)
        if suffixes is None:
            self._forget_slice()
        self._suffixes, self._prefixes = suffixes, prefixes
