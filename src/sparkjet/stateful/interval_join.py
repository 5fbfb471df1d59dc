"""Interval joins: pairs of rows of two streams whose event times are close, and rows that have no partner."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CompiledColumns, Once
from sparkjet.catalyst.constants import constant
from sparkjet.snapshots.record import JoinSettings
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.state.partitions import release
from sparkjet.state.segments import free, mergeable
from sparkjet.stateful.join_type import JoinType
from sparkjet.time import MAX, MIN, clamp

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

    from sparkjet.catalyst.join_conditions import JoinKey
    from sparkjet.state import Segment


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
        count = mergeable(self.segments) if len(self.segments) > MANY else 0
        if count:
            self.merge(horizon, count)

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

    def merge(self, horizon: int, count: int) -> None:
        """Merge the newest segments, without the rows before ``horizon``."""
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


FOREVER = 2**62
"""No bound, in microseconds. Times of 146,000 years can be added to it within 64 bits."""


class IntervalJoin:
    """Joins rows of two sides by keys and a bound on the difference of their event times, on the driver.

    A left row of time t and a right row of time s can match if ``lower <= s - t <= upper``. Each side has a watermark
    of its own. New rows are matched with all rows that are held, so each pair is found once, in the epoch of the row
    that comes later; nothing that is stored is changed. A left row is *final* when the right watermark is above
    ``t + upper``: no row that is still to come can match it. It then has no partner if none of the right rows that are
    still held matches it. Right rows are therefore held until no left row to come can match them, and, where the join
    asks whether left rows have partners, until the left rows that they can match are final.

    Result rows are ``(left_time, left0…, right_time, right0…)``, null where there is no partner, or those of the left
    side alone.

    Args:
        join_type: Which rows it gives.
        lower: Least difference of the right time from the left one, in microseconds.
        upper: Greatest difference. In an inner join one bound may be minus :data:`FOREVER` or :data:`FOREVER`, or both:
            rows that wait for such partners are held forever.
        keys: What must be equal, at least one.
        rest: What else must be true of a pair, None if nothing.
        schemas: Of the columns of both sides.
        partitions: Number of partitions of the state, hash-partitioned by the keys.
    """

    def __init__(
        self,
        join_type: JoinType,
        lower: int,
        upper: int,
        keys: Sequence[JoinKey],
        rest: Column | None,
        schemas: tuple[StructType, StructType],
        partitions: int,
    ) -> None:
        self.join_type = join_type
        self.lower = lower
        self.upper = upper
        self.left = JoinSide("left", schemas[0], keys, partitions)
        self.right = JoinSide("right", schemas[1], keys, partitions)
        apart = f"try_subtract({self.right.time}, {self.left.time})"
        # Spark's own comparison of timestamps with intervals takes several times as long.
        matches = F.expr(f"{self.left.hash} = {self.right.hash} AND {apart} >= {lower}L AND {apart} <= {upper}L")
        self._matches = matches if rest is None else matches & rest
        self._results = CompiledColumns(
            [*self.left.columns, *(self.right.columns if join_type not in {JoinType.SEMI, JoinType.ANTI} else ())]
        )

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """The left and the right side."""
        return self.left, self.right

    @property
    def segments(self) -> list[Segment]:
        """The rows that are held, those of the left side first."""
        return [*self.left.segments, *self.right.segments]

    @property
    def settings(self) -> JoinSettings:
        """The watermarks of both sides."""
        return JoinSettings((self.left.watermark, self.right.watermark))

    @property
    def closed(self) -> int | None:
        """The watermark of the side that is behind, None before both have one."""
        least = min(self.settings.watermarks)
        return None if least == MIN else least

    @property
    def open_until(self) -> int | None:
        """The minimum watermark of both sides by which all is final and forgotten, None if nothing is held.

        Rows that are held forever are final from the start.
        """
        ends = [
            segment.statistics.high - horizon
            for side, horizon in zip(self.sides, self.horizons((0, 0)), strict=True)
            for segment in side.segments + side.pending
            if horizon > -FOREVER
        ]
        return min(max(ends) + 1, MAX) if ends else None

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """Stored rows of either side, partitioned like a segment, and persisted in the executors once read."""
        return self._side_of(rows).partitioned(rows)

    def close(self, *watermarks: int) -> DataFrame | None:
        """The pairs of the epoch, and the rows of which these watermarks say that they have no partner.

        None if there are none for certain.
        """
        before = self.left.watermark, self.right.watermark
        reached = max(before[0], watermarks[0]), max(before[1], watermarks[1])
        results = self._pairs() if self.join_type.gives_pairs else []
        if self.join_type is JoinType.SEMI:
            results += self._first_matches()
        elif self.join_type.of_left:
            results += self._alone(self.left, self.right, (before[1] - self.upper, reached[1] - self.upper))
        if self.join_type.of_right:
            results += self._alone(self.right, self.left, (before[0] + self.lower, reached[0] + self.lower))
        for side, watermark, horizon in zip(self.sides, reached, self.horizons(reached), strict=True):
            side.settle(watermark, horizon)
        return reduce(DataFrame.union, results) if results else None

    def early(self) -> DataFrame | None:
        """None: a pair is final when it is found, and a row without a partner when it is known to have none."""
        return None

    def skip_to(self, watermark: int) -> None:
        """Advance both sides to ``watermark``; nothing may be open up to there."""
        for side in self.sides:
            side.watermark = max(side.watermark, watermark)

    def compact(self) -> None:
        """See :meth:`sparkjet.state.Operator.compact`."""
        for side, horizon in zip(self.sides, self.horizons(self.settings.watermarks), strict=True):
            if side.segments:
                side.merge(horizon, len(side.segments))

    def release(self) -> None:
        """Free obsolete state."""
        for side in self.sides:
            free(side.garbage, side.segments)

    def restore(
        self, segments: Sequence[Segment], closed: int | None, watermarks: tuple[int, int] | None = None
    ) -> None:
        """Replace the state by that of a snapshot with the same settings."""
        owned = [(self._side_of(segment.partials), segment) for segment in segments]
        both = MIN if closed is None else closed
        for side, watermark in zip(self.sides, watermarks or (both, both), strict=True):
            side.restore([segment for owner, segment in owned if owner is side], watermark)

    def horizons(self, watermarks: tuple[int, int]) -> tuple[int, int]:
        """The time before which rows of each side are no longer needed, with these watermarks."""
        left, right = watermarks[1] - self.upper, watermarks[0] + self.lower
        return (
            min(left, right - self.upper) if self.join_type.of_right else left,
            min(right, left + self.lower) if self.join_type.of_left else right,
        )

    def _side_of(self, rows: DataFrame) -> JoinSide:
        return self.left if self.left.time in rows.columns else self.right

    def _pairs(self) -> list[DataFrame]:
        """All pairs of which at least one row is new."""
        left, right = self.left, self.right
        found = []
        if left.pending:
            partners = overlapping(right.pending + right.segments, *self._reach(left.pending, self.lower, self.upper))
            if partners:
                found.append(self._joined(left.rows(left.pending), right.rows(partners), "inner"))
        if right.pending:
            partners = overlapping(left.segments, *self._reach(right.pending, -self.upper, -self.lower))
            if partners:
                found.append(self._joined(right.rows(right.pending), left.rows(partners), "inner"))
        return [self._results.select(rows) for rows in found]

    def _alone(self, side: JoinSide, other: JoinSide, cuts: tuple[int, int]) -> list[DataFrame]:
        """The rows of a side that have become final and have no partner."""
        start, end = clamp(cuts[0]), clamp(cuts[1])
        # A side that lags behind brings rows that are final at once.
        parts = [side.between(side.segments, start, end), side.between(side.pending, MIN, end)]
        final = [part for part in parts if part is not None]
        if not final:
            return []
        rows = reduce(DataFrame.union, final)
        partners = other.segments + other.pending
        if partners:
            joined = self._joined(rows, other.rows(partners), "left_outer").where(f"{other.hash} IS NULL")
            return [self._results.select(joined)]
        if self.join_type is JoinType.ANTI:
            return [self._results.select(rows)]
        return [self._results.select(side.columns.select(rows, *other.absent))]

    def _first_matches(self) -> list[DataFrame]:
        """The left rows that match something for the first time."""
        left, right = self.left, self.right
        found = []
        held = right.pending + right.segments
        if left.pending and held:
            new = left.rows(left.pending)
            found.append(self._filtered(new, self._touched(right, held, new, left), "left_semi"))
        if right.pending and left.segments:
            new = right.rows(right.pending)
            now = self._filtered(self._touched(left, left.segments, new, right), new, "left_semi")
            if right.segments:
                now = self._filtered(now, self._touched(right, right.segments, new, right), "left_anti")
            found.append(now)
        return [self._results.select(rows) for rows in found]

    def _touched(self, side: JoinSide, segments: Sequence[Segment], new: DataFrame, new_side: JoinSide) -> DataFrame:
        """The rows with the keys of some new rows: the others would be hashed for nothing."""
        wanted = new.select(F.col(new_side.hash).alias("wanted")).distinct()
        found = wanted.hint("shuffle_hash").join(side.rows(segments), F.col("wanted") == F.col(side.hash))
        return found.drop("wanted")

    def _filtered(self, rows: DataFrame, others: DataFrame, how: str) -> DataFrame:
        """The rows that match one of the others, or none; the others are hashed."""
        return rows.join(others.hint("shuffle_hash"), self._matches, how)

    def _joined(self, few: DataFrame, many: DataFrame, how: str) -> DataFrame:
        """A join that hashes the few rows and neither shuffles nor sorts the many."""
        return few.hint("shuffle_hash").join(many, self._matches, how)

    def _reach(self, segments: Sequence[Segment], lower: int, upper: int) -> tuple[int, int]:
        """The lowest and the highest time of what the rows of some segments can match."""
        low = min(segment.statistics.low for segment in segments)
        high = max(segment.statistics.high for segment in segments)
        return low + lower, high + upper
