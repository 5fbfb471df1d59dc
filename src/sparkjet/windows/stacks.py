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
from sparkjet.state.partitions import hold, release
from sparkjet.state.segments import overlapping
from sparkjet.windows.accumulators import ROW_COUNT, Accumulators
from sparkjet.windows.blocks import Blocks
from sparkjet.windows.running import Running
from sparkjet.windows.spans import ClosingRange, Finish, windows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.catalyst.kept_plans import KeptPlans
    from sparkjet.state.segments import Segment
    from sparkjet.time import WindowGrid
    from sparkjet.windows.accumulators import Accumulators


MANY = 500_000
"""Number of partial rows in the state from which sorting them all, for suffixes, would hold up an epoch."""


@dataclass(frozen=True)
class Staying:
    """The part of the block ending at ``boundary`` that is in each window ending above ``boundary``, up to ``upto``.

    Attributes:
        table: One span per key, a checkpointed DataFrame.
        left: The newest frame that is not included.
    """

    table: DataFrame
    boundary: int
    upto: int
    left: int


class FinishedBlock:
    """The share of the block before the current one in a few windows, straight from the frames; on the driver.

    A block has as many suffixes as the state has partial rows. Computing them sorts all of these at once, each time a
    block is complete, which takes seconds for millions of rows. Here, frames that leave within the next *n* windows are
    combined again for each window, and those that stay in all *n* of them only once. With *n* the square root of the
    window's steps, each of the two reads about *n* / 2 frames per window.

    Args:
        window: Length, step and offset in microseconds.
        keys: Names of the key columns.
        accumulators: The fields.
        kept: The kept plans of the strategy.
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
        """The part that stays in the windows above ``after`` up to ``upto``, and in those that will close soon."""
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
        """The frames above ``floor`` up to ``left`` as spans, over the windows that end after their block."""
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
        """Discard the part that stays, because the frames or the window changed, or other windows have come."""
        if self._staying is not None:
            self._garbage.append(self._staying.table)
        self._staying = None

    def release(self) -> None:
        """Free the memory of earlier epochs; the part that stays now is persisted, even if no job has read it."""
        if self._staying is not None:
            hold(self._staying.table)
        for checkpointed in self._garbage:
            release(checkpointed)
        self._garbage.clear()


@dataclass(frozen=True)
class _Stack:
    """A checkpointed DataFrame from which later epochs read the rows of one block.

    Attributes:
        table: The DataFrame.
        block: Start of the block.
        newest: Whether it has one row per key, the newest prefix.
    """

    table: DataFrame
    block: int
    newest: bool = False


class StacksStrategy:
    """Windows as suffix and prefix, for every aggregate with a bounded accumulator.

    Suffixes are computed when a block is complete, except for a large state of which few windows close
    (:class:`sparkjet.windows.stacks.FinishedBlock`); prefixes grow epoch by epoch. All of it is derived, not part of a
    snapshot: after :meth:`reset` it is recomputed from the frames.
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
        self._blocks = Blocks(window)
        self._finished_block = FinishedBlock(window, keys, accumulators, self._kept)
        self._suffixes: _Stack | None = None
        self._prefixes: _Stack | None = None
        self._garbage: list[DataFrame] = []

    def reset(self) -> None:
        """Discard both stacks, because the frames or the window changed."""
        self._replace(None, None)
        self._finished_block.reset()

    def close(self, segments: Sequence[Segment], closing: ClosingRange, finish: Finish) -> DataFrame:
        """The finished rows of every key's windows in ``closing``; segments may have several rows per key and frame."""
        current = None if closing.after is None else self._blocks.start(closing.after)
        next_block = self._blocks.start(closing.upto)
        before, live = self._suffixes, self._prefixes
        prefixes = self._grown(segments, closing, current, live)
        newest = _Stack(prefixes, next_block, newest=live is not None and closing.single)
        spans = [Rows(prefixes, self._spans)]
        if self._finished_block.serves(closing, sum(segment.statistics.rows for segment in segments)):
            self._replace(before if next_block == current else None, newest)
            return self._few(segments, closing, spans, finish)
        self._finished_block.reset()
        suffixes = before
        if before is None or next_block != current:
            # Those of the block before as well, if they are not known.
            floor = current if before is not None or current is None else current - self._window.size
            frames = overlapping(segments, floor, closing.upto)
            constants = floor, closing.upto, next_block
            finished = self._kept("suffixes", inputs=[frames], constants=constants, build=self._completed, held=True)
            spans.append(Rows(finished, self._spans))
            suffixes = _Stack(finished, next_block - self._window.size)
        self._replace(suffixes, newest)
        return self._kept(
            "windows",
            inputs=[spans, *([] if before is None else [[Rows(before.table)]])],
            constants=(closing.after, closing.upto, None if before is None else before.block),
            build=lambda *given: finish(self._windows(closing, *given)),
            used=lambda after, end, block: (*closing.moved(after, end).used, block),
        )

    def _grown(
        self, segments: Sequence[Segment], closing: ClosingRange, current: int | None, live: _Stack | None
    ) -> DataFrame:
        """The prefixes of the blocks in which windows in ``closing`` end."""
        if live is None:
            # After a restore, from the frames.
            frames, constants = overlapping(segments, current, closing.upto), (current, closing.upto)
            return self._kept("first", inputs=[frames], constants=constants, build=self._begun, held=True)
        both = overlapping(segments, closing.after, closing.upto), [Rows(live.table)]
        build = self._continued if not closing.single else self._next if live.newest else self._first_next
        changing = closing.after, closing.upto, live.block
        return self._kept("prefixes", build, inputs=both, constants=changing, build=build, held=True)

    def _few(self, segments: Sequence[Segment], closing: ClosingRange, spans: list[Rows], finish: Finish) -> DataFrame:
        """A few windows of a large state, from prefixes and their share of the block before."""
        after, upto = closing.after, closing.upto
        assert after is not None  # noqa: S101 - checked by `serves`
        staying = self._finished_block.staying(segments, after, upto)
        first = closing.window.step - closing.window.size

        def build(spans: DataFrame, frames: DataFrame, after: int, upto: int, left: int) -> DataFrame:
            leaving = self._finished_block.leaving(frames, after + first, left)
            moved = closing.moved(after, upto)
            return finish(windows_of(spans.unionByName(leaving), moved, self._keys, self._accumulators, unique=False))

        return self._kept(
            "few windows",
            inputs=[[*spans, Rows(staying.table, self._spans)], overlapping(segments, after + first, staying.left)],
            constants=(after, upto, staying.left),
            build=build,
            used=lambda after, upto, left: (*closing.moved(after, upto).used, after + first, left),
        )

    def _begun(self, frames: DataFrame, floor: int | None, upto: int) -> DataFrame:
        """Prefixes computed from the frames alone."""
        return self._prefix_spans(self._select(frames, floor, upto), upto)

    def _continued(self, frames: DataFrame, live: DataFrame, after: int, upto: int, block: int) -> DataFrame:
        """Prefixes that continue those of the previous epoch."""
        newest = self._blocked(self._newest(live, block))
        return self._prefix_spans(self._select(frames, after, upto).unionByName(newest), upto)

    def _first_next(self, frames: DataFrame, live: DataFrame, after: int, upto: int, block: int) -> DataFrame:
        """The first of :meth:`_next`, from prefixes of which a key may have several."""
        return self._added(frames, self._newest(live, block), after, upto, block)

    def _next(self, frames: DataFrame, live: DataFrame, after: int, upto: int, block: int) -> DataFrame:
        """Prefixes for windows that close one after another."""
        return self._added(frames, live.where(f"block = {constant(block, 'block')}"), after, upto, block)

    def _added(self, frames: DataFrame, newest: DataFrame, after: int, upto: int, block: int) -> DataFrame:
        """Prefixes at one end: what is new adds up in any order, without a running value for each frame."""
        values = self._once.columns(*self._keys, "frame", *self._accumulators.fields)
        entering = values.select(frames.where(ClosingRange.within(after, upto)))
        rows = entering.unionByName(values.select(newest))
        prefixes = self._accumulators.group(rows, *self._keys, beside=("frame",))
        end = F.expr(constant(upto, "frame"))
        return self._with_span(prefixes.withColumn("block", F.expr(constant(block, "frame"))), end, end)

    def _completed(self, frames: DataFrame, floor: int | None, upto: int, block: int) -> DataFrame:
        """Suffixes of the blocks before a block."""
        return self._suffix_spans(self._select(frames, floor, upto).where(f"block < {constant(block, 'block')}"))

    def _windows(self, closing: ClosingRange, spans: DataFrame, *given: Any) -> DataFrame:
        *suffixes, after, upto, block = given
        for each in suffixes:
            spans = spans.unionByName(self._spans(each.where(f"block = {constant(block, 'block')}")))
        return windows_of(spans, closing.moved(after, upto), self._keys, self._accumulators, unique=False)

    def release(self) -> None:
        """Free the memory of earlier epochs; the rows of the last :meth:`close` must not be read afterwards."""
        self._finished_block.release()
        for stack in (self._suffixes, self._prefixes):
            if stack is not None:
                hold(stack.table)
        for checkpointed in self._garbage:
            release(checkpointed)
        self._garbage.clear()

    def _select(self, frames: DataFrame, floor: int | None, upto: int) -> DataFrame:
        """One row per key and frame, with the frame's block."""
        chosen = frames.where(ClosingRange.within(floor, upto))
        return self._blocked(self._accumulators.group(chosen, *self._keys, "frame"))

    def _blocked(self, frames: DataFrame) -> DataFrame:
        return frames.withColumn("block", self._once("block", build=self._blocks.column))

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
        """Spans over the windows that begin with each frame of a block, with this frame and all later ones."""
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
        self._suffixes, self._prefixes = suffixes, prefixes
