"""The two-stacks path: suffixes of the finished block and prefixes of the current one.

Frames are cut into blocks of one window length. A window spans at most two blocks, so it is one suffix of the earlier
block combined with one prefix of the later one: two accumulators, whatever the length, and never a deduct
(Tangwongsan et al., "General Incremental Sliding-Window Aggregation"; Jet recombines the whole window instead).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.windows.accumulators import Accumulators
from sparkjet.windows.constants import constant
from sparkjet.windows.segments import hold, release
from sparkjet.windows.spans import ClosingRange, windows_of

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.time import WindowGrid


@dataclass(frozen=True)
class _View:
    """A part of a checkpointed DataFrame that later epochs read."""

    rows: DataFrame
    backing: DataFrame


class StacksPath:
    """Windows as suffix and prefix, for every aggregate with a bounded accumulator.

    Suffixes are computed when a block is complete, prefixes grow epoch by epoch; both are derived state, not part
    of a snapshot: after :meth:`forget` they are computed again from the frames.
    """

    name = "stacks"

    def __init__(self, window: WindowGrid, keys: Sequence[str], accumulators: Accumulators) -> None:
        self._window = window
        self._keys = tuple(keys)
        self._accumulators = accumulators
        self._suffixes: _View | None = None
        self._prefixes: _View | None = None
        self._garbage: list[DataFrame] = []

    def forget(self) -> None:
        """Drop both stacks, because the frames or the window changed."""
        self._replace(None, None)

    def close(self, frames: DataFrame, closing: ClosingRange) -> DataFrame:
        """Accumulators of every key's windows in ``closing``; ``frames`` holds one row per key and frame or more."""
        size = self._window.size
        current = None if closing.after is None else self._block_start(closing.after)
        next_block = self._block_start(closing.upto)
        live = self._prefixes
        spans: list[DataFrame] = []
        if self._suffixes is not None:
            spans.append(self._suffixes.rows)
        if live is not None and next_block == current:
            items = self._select(frames, closing, closing.after).unionByName(live.rows)
            prefixes = self._prefix_spans(self._lists(items), closing).localCheckpoint(eager=False)
            spans.append(prefixes.select(*self._keys, "low", "high", *self._accumulators.fields))
            self._replace(self._suffixes, self._open_prefixes(prefixes, next_block))
        else:
            floor = current if live is not None or current is None else current - size
            lists = self._lists(self._select(frames, closing, floor)).localCheckpoint(eager=False)
            block = F.col("block")
            complete = lists.where(block < constant(next_block, block))
            suffixes = self._suffix_spans(complete).localCheckpoint(eager=False)
            prefixes = self._prefix_spans(lists, closing).localCheckpoint(eager=False)
            self._garbage.append(lists)
            spans += [
                table.select(*self._keys, "low", "high", *self._accumulators.fields) for table in (suffixes, prefixes)
            ]
            newest = suffixes.where(block == constant(next_block - size, block))
            finished = newest.select(*self._keys, "low", "high", *self._accumulators.fields)
            self._replace(_View(finished, suffixes), self._open_prefixes(prefixes, next_block))
        united = reduce(DataFrame.unionByName, spans)
        return windows_of(united, closing, self._keys, self._accumulators, unique=False)

    def release(self) -> None:
        """Free what earlier epochs left; the rows of the last :meth:`close` are not read any more."""
        for view in (self._suffixes, self._prefixes):
            if view is not None:
                hold(view.backing)
        for checkpointed in self._garbage:
            release(checkpointed)
        self._garbage.clear()

    def _block_start(self, end: int) -> int:
        """Start of the block that the first window ending after ``end`` ends in."""
        return end - (end - self._window.offset) % self._window.size

    def _select(self, frames: DataFrame, closing: ClosingRange, floor: int | None) -> DataFrame:
        frame = F.col("frame")
        chosen = frames.where(closing.within(frame, floor, closing.upto))
        return self._accumulators.group(chosen, *self._keys, "frame")

    def _lists(self, frames: DataFrame) -> DataFrame:
        """One row per key and block: its frames in ascending order, as an array of structs."""
        start = F.col("frame") - self._window.step
        block = start - F.pmod(start - self._window.offset, F.lit(self._window.size))
        items = self._accumulators.listed("frame").alias("items")
        return frames.withColumn("block", block).groupBy(*self._keys, "block").agg(items)

    def _prefix_spans(self, lists: DataFrame, closing: ClosingRange) -> DataFrame:
        def span(item: Column, index: Column) -> Column:
            following = F.get(F.col("items"), index + 1)["frame"]
            return self._span(item, item["frame"], F.coalesce(following - self._window.step, F.col("last")))

        once = self._accumulators.once
        scanned = once("prefixes", build=lambda: self._accumulators.scan(F.col("items"), "frame").alias("scanned"))
        spans = once("prefix spans", build=lambda: F.explode(F.transform("scanned", span)).alias("span"))
        block = F.col("block")
        last = F.least(block + self._window.size, constant(closing.upto, block)).alias("last")
        return self._unfold(lists.select(*self._keys, "block", "items", last, scanned), spans)

    def _suffix_spans(self, lists: DataFrame) -> DataFrame:
        size, step = self._window.size, self._window.step

        def span(item: Column, index: Column) -> Column:
            before = F.when(index > 0, F.get(F.col("items"), index - 1)["frame"] + size)
            return self._span(item, F.coalesce(before, F.col("block") + size + step), item["frame"] + size - step)

        def backwards() -> Column:
            return F.reverse(self._accumulators.scan(F.reverse(F.col("items")), "frame")).alias("scanned")

        scanned = self._accumulators.once("suffixes", build=backwards)
        spans = self._accumulators.once(
            "suffix spans", build=lambda: F.explode(F.transform("scanned", span)).alias("span")
        )
        return self._unfold(lists.select(*self._keys, "block", "items", scanned), spans).where("low <= high")

    def _span(self, item: Column, low: Column, high: Column) -> Column:
        fields = (item[name].alias(name) for name in ("frame", *self._accumulators.fields))
        return F.struct(low.alias("low"), high.alias("high"), *fields)

    def _unfold(self, scanned: DataFrame, spans: Column) -> DataFrame:
        return scanned.select(*self._keys, "block", spans).select(*self._keys, "block", "span.*")

    def _open_prefixes(self, prefixes: DataFrame, block: int) -> _View:
        """The newest prefix of each key in the block that goes on, as a frame to start from."""
        latest = F.max_by(self._accumulators.item("frame"), "frame").alias("item")
        current = prefixes.where(F.col("block") == constant(block, F.col("block")))
        rows = current.groupBy(*self._keys).agg(latest).select(*self._keys, "item.*")
        return _View(rows, prefixes)

    def _replace(self, suffixes: _View | None, prefixes: _View | None) -> None:
        kept = {id(view.backing) for view in (suffixes, prefixes) if view is not None}
        for view in (self._suffixes, self._prefixes):
            if view is not None and id(view.backing) not in kept:
                self._garbage.append(view.backing)
        self._suffixes, self._prefixes = suffixes, prefixes
