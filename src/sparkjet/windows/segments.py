"""Live state in memory: a few DataFrames of partial rows, merged as in a log-structured store and freed explicitly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEWEST = 5
"""The minimum number of segments to merge."""


@dataclass(frozen=True)
class SegmentStatistics:
    """What the driver knows of a segment: its number of rows, and the lowest and highest frame in it."""

    rows: int
    low: int
    high: int

    @staticmethod
    def measure(partials: DataFrame) -> SegmentStatistics | None:
        """Count the partial rows with one Spark job; None if there are none."""
        row = partials.agg(F.count(F.lit(1)), F.min("frame"), F.max("frame")).head()
        if row is None or row[0] == 0:
            return None
        return SegmentStatistics(row[0], row[1], row[2])


@dataclass(eq=False)
class Segment:
    """Partial rows persisted in the executors (``localCheckpoint``), and the reference to their stored copy.

    ``stored`` is what the snapshot store returned when the rows were written, None for operators without a store.
    """

    partials: DataFrame
    statistics: SegmentStatistics
    stored: object = None
    backing: DataFrame | None = field(default=None, repr=False)

    def release(self) -> None:
        """Free the memory; the segment must not be read afterwards."""
        release(self.backing if self.backing is not None else self.partials)


def release(checkpointed: DataFrame) -> None:
    """Free the blocks of a DataFrame made by ``localCheckpoint``.

    ``DataFrame.unpersist`` only looks in the cache manager, which does not list local checkpoints, and waiting for
    garbage collection would let a long query fill its executors. So this unpersists the RDD in the logical plan.
    """
    plan = checkpointed._jdf.queryExecution().logical()
    if plan.getClass().getSimpleName() == "LogicalRDD":
        plan.rdd().unpersist(False)


def hold(checkpointed: DataFrame) -> None:
    """Materialize a lazy ``localCheckpoint`` that no job has read, before its inputs are freed."""
    rdd = checkpointed._jdf.queryExecution().logical().rdd()
    if not rdd.isCheckpointed():
        rdd.count()


def mergeable(segments: Sequence[Segment]) -> int:
    """How many of the newest segments to merge into one, so that there are about log2(rows) segments.

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
    return count if count >= FEWEST else 0
