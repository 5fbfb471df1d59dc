"""One side of a join: the rows that may still be matched, in segments by event time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CompiledColumns, Once
from sparkjet.catalyst.constants import constant
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.state.partitions import release
from sparkjet.state.segments import mergeable
from sparkjet.time import MIN, clamp

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

    from sparkjet.catalyst.join_conditions import JoinKey


MANY = 12
"""Segments of a side that are merged. Up to here a bound may cover as many epochs without any row being copied: rows
are forgotten in the order of their times, mostly a whole segment at once."""


class JoinSide:
    """Holds rows ``(<name>_hash, <name>_time, <name>0, <name>1, …)`` and the watermark of one side, on the driver.

    Args:
        name: ``"left"`` or ``"right"``.
        schema: Of the side's own columns, under the names that :func:`place` gives.
        keys: What must be equal on both sides, at least one.
        partitions: Number of partitions of the state, hash-partitioned by the keys.
    """

    def __init__(self, name: str, schema: StructType, keys: Sequence[JoinKey], partitions: int) -> None:
        self.hash, self.time = f"{name}_hash", f"{name}_time"
        self.columns = CompiledColumns([self.time, *schema.names])
        self.absent = CompiledColumns(
            [F.lit(None).cast("long").alias(self.time)]
            + [F.lit(None).cast(field.dataType).alias(field.name) for field in schema]
        )
        self.segments: list[Segment] = []
        """Oldest first; ``low`` and ``high`` of the statistics are event times."""
        self.pending: list[Segment] = []
        self.garbage: list[Segment] = []
        self.watermark = MIN
        self._keys = [(getattr(key, name), key) for key in keys]
        self._partitions = partitions
        self._once = Once()
        self._stored = CompiledColumns([self.hash, self.time, *schema.names])

    @property
    def judged_by(self) -> int | None:
        """The watermark of the last :meth:`settle`."""
        return None if self.watermark == MIN else self.watermark

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """New or stored rows, hash-partitioned by the keys."""
        hashed = rows.withColumn(self.hash, self._once("hash", build=self._hashed))
        return hashed.repartition(self._partitions, self.hash)

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """New or stored rows, hash-partitioned by the keys, and persisted in memory once read."""
        return self.shuffled(rows).localCheckpoint(eager=False)

    def append(self, segment: Segment) -> None:
        """Add the rows of an epoch, which become state at the next :meth:`settle`."""
        self.pending.append(segment)

    def rows(self, segments: Sequence[Segment]) -> DataFrame:
        """The rows of some segments."""
        return reduce(DataFrame.union, [self._stored.select(segment.partials) for segment in segments])

    def between(self, segments: Sequence[Segment], start: int, end: int) -> DataFrame | None:
        """The rows of some segments from a time (inclusive) to another (exclusive); None if there are none for certain.

        Boundaries that no row can be beyond are not looked at.
        """
        found = []
        for segment in overlapping(segments, start, end - 1):
            rows = self._stored.select(segment.partials)
            if segment.statistics.low < start:
                rows = rows.where(f"{self.time} >= {constant(start, self.time)}")
            if segment.statistics.high >= end:
                rows = rows.where(f"{self.time} < {constant(end, self.time)}")
            found.append(rows)
        return reduce(DataFrame.union, found) if found else None

    def settle(self, watermark: int, horizon: int) -> None:
        """Make state of what is pending, and forget the rows before ``horizon``."""
        self.watermark = watermark
        self.segments += self.pending
        self.pending = []
        self.garbage += [segment for segment in self.segments if segment.statistics.high < horizon]
        self.segments = [segment for segment in self.segments if segment.statistics.high >= horizon]
        self._merge(horizon)

    def restore(self, segments: Sequence[Segment], watermark: int) -> None:
        """Replace everything by what a snapshot holds."""
        self.garbage += self.pending + self.segments
        self.pending = []
        self.segments = list(segments)
        self.watermark = watermark

    def _hashed(self) -> Column:
        # Strings that are equal by a collation may differ in their bytes, and would get different hashes.
        plain = [column for column, key in self._keys if "collate" not in key.type.lower()]
        hashed = F.xxhash64(*plain) if plain else F.lit(0).cast("long")
        nulls = [column.isNull() for column, key in self._keys if not key.null_safe]
        if not nulls:
            return hashed
        # Rows that match nothing: under the one hash that their nulls have, they would all meet in one task.
        return F.when(reduce(lambda one, other: one | other, nulls), F.xxhash64(self.time)).otherwise(hashed)

    def _merge(self, horizon: int) -> None:
        count = mergeable(self.segments) if len(self.segments) > MANY else 0
        if not count:
            return
        merging = self.segments[-count:]
        live = self.rows(merging).where(f"{self.time} >= {constant(clamp(horizon), self.time)}")
        merged = live.localCheckpoint(eager=False)
        rows, low, high = merged.agg(F.count(F.lit(1)), F.min(self.time), F.max(self.time)).collect()[0]
        self.garbage += merging
        self.segments = self.segments[:-count]
        if rows:
            self.segments.append(Segment(merged, SegmentStatistics(rows, low, high)))
        else:
            release(merged)


def overlapping(segments: Sequence[Segment], low: int, high: int) -> list[Segment]:
    """The segments that may hold rows from a time to another (both inclusive)."""
    return [each for each in segments if each.statistics.high >= low and each.statistics.low <= high]
