"""Live state in memory: a few DataFrames of partial rows, merged as in a log-structured store and freed explicitly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkjet.catalyst.tables import Chained, Rows
from sparkjet.state.partitions import lost_partitions, partition_count, release

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.catalyst.kept_plans import KeptPlans

HASHES = ("key_hash", "left_hash", "right_hash")
"""Columns with the hashes by which rows are partitioned; computed whenever rows are partitioned, and not stored."""
FEWEST = 5
"""The minimum number of segments to merge."""
MANY, LARGE = 16, 100_000
"""Minimum number of segments to merge if that only makes them fewer, and number of rows above which it applies."""


@dataclass(frozen=True)
class SegmentStatistics:
    """The driver's knowledge of a segment: its number of rows, and the lowest and highest frame in it."""

    rows: int
    low: int
    high: int

    def together(self, other: SegmentStatistics) -> SegmentStatistics:
        """The statistics of the rows of both."""
        low: Any = min(_known(self.low, other.low), default=None)
        high: Any = max(_known(self.high, other.high), default=None)
        return SegmentStatistics(self.rows + other.rows, low, high)

    @staticmethod
    def measure(partials: DataFrame, kept: KeptPlans, tasks: int | None = None) -> SegmentStatistics | None:
        """Count the partial rows with one Spark job, in ``tasks`` tasks; None if there are none."""
        found = kept("measured", inputs=[[Rows(partials)]], build=_measured, tasks=tasks, by_partition=True).collect()
        parts = [SegmentStatistics(*row) for row in found if row[0]]
        return reduce(SegmentStatistics.together, parts) if parts else None


def _measured(partials: DataFrame) -> DataFrame:
    return partials.agg(F.count(F.lit(1)), F.min("frame"), F.max("frame"))


def _known(*times: Any) -> list[Any]:
    """The times that are not null: rows without an event time have none."""
    return [time for time in times if time is not None]


@dataclass(eq=False)
class Segment:
    """Partial rows persisted in the executors (``localCheckpoint``), and the reference to their stored copy.

    The persisted rows may include others as well, such as rows that count dropped ones. So they are not accessible as
    such: only their partial rows are, and how much of them all the executors hold.

    Attributes:
        statistics: Statistics of the partial rows.
        stored: The return value of the snapshot store when the rows were written, None for operators without a store.
        read: Selects the partial rows from the output of ``localCheckpoint``; None for all.
    """

    _checkpointed: DataFrame
    statistics: SegmentStatistics
    stored: object = None
    read: Callable[[DataFrame], DataFrame] | None = field(default=None, repr=False)

    @cached_property
    def partials(self) -> DataFrame:
        """The partial rows."""
        return self.rows.frame

    @property
    def rows(self) -> Rows:
        """The partial rows, for a kept plan."""
        return Rows(self._checkpointed, self.read)

    def through(self, read: Callable[[DataFrame], DataFrame]) -> Rows:
        """The result of ``read`` on the partial rows, for a kept plan; ``read`` does the same each time."""
        return Rows(self._checkpointed, read if self.read is None else Chained(self.read, read))

    @property
    def identity(self) -> int:
        """Equal for segments of the same persisted rows."""
        return id(self._checkpointed)

    @property
    def partition_count(self) -> int:
        """The number of partitions."""
        return partition_count(self._checkpointed)

    @property
    def lost(self) -> frozenset[int]:
        """The partitions that no executor holds: see :func:`sparkjet.state.partitions.lost_partitions`."""
        return lost_partitions(self._checkpointed)

    def release(self) -> None:
        """Free the memory; the segment must not be read afterwards."""
        release(self._checkpointed)


def overlapping(segments: Sequence[Segment], floor: int | None, upto: int) -> list[Rows]:
    """The segments that may have frames above ``floor`` (None: any) up to ``upto``, for a kept plan.

    If there are none, the smallest segment, as a plan needs a table: the caller's condition on the frame drops its
    rows.
    """
    found = [
        each for each in segments if each.statistics.low <= upto and (floor is None or each.statistics.high > floor)
    ]
    return [each.rows for each in found or [min(segments, key=lambda each: each.statistics.rows)]]


def to_store(partials: DataFrame) -> DataFrame:
    """The rows without their hashes: random numbers would be the largest column of a stored key."""
    return partials.drop(*HASHES)


def free(garbage: list[Segment], held: Sequence[Segment]) -> None:
    """Free segments, and clear their list; a restore may have made some of them part of the state again."""
    kept = {segment.identity for segment in held}
    for segment in garbage:
        if segment.identity not in kept:
            segment.release()
    garbage.clear()


def mergeable(segments: Sequence[Segment], *, replacing: bool = True) -> int:
    """The number of the newest segments to merge into one, so that there are about log2(rows) segments.

    As in a log-structured merge tree, a segment is merged once at least half its size has been added after it: each
    partial row is copied a logarithmic number of times, and a window reads few segments. Merges wait for ``FEWEST``
    segments, since merging small segments costs a Spark job, and reading one costs hardly anything.
    """
    total, count = 0, 0
    for segment in reversed(segments):
        if count and segment.statistics.rows > 2 * total:
            break
        total += segment.statistics.rows
        count += 1
    return count if count >= (FEWEST if replacing or total <= LARGE else MANY) else 0
