"""Live state in memory: a few DataFrames of partial rows, merged log-structured and freed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEWEST = 5
"""Segments that are merged at once at least."""


@dataclass(frozen=True)
class SegmentStatistics:
    """What the driver knows of a segment: its rows and the lowest and highest frame in it."""

    rows: int
    low: int
    high: int

    @staticmethod
    def measure(partials: DataFrame) -> SegmentStatistics | None:
        """Count the partial rows with one Spark job; None where there are none."""
        row = partials.agg(F.count(F.lit(1)), F.min("frame"), F.max("frame")).head()
        if row is None or row[0] == 0:
            return None
        return SegmentStatistics(row[0], row[1], row[2])


@dataclass(eq=False)
class Segment:
    """Partial rows held by the executors (``localCheckpoint``) and the name they are stored under.

    ``stored`` is whatever the snapshot store answered when the rows were written, None for operators that run
    without a store.
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

    ``DataFrame.unpersist`` looks into the cache manager, where a local checkpoint is not listed, and waiting for
    garbage collection lets a long query fill its executors: the RDD below the logical plan is unpersisted instead.
    """
    plan = checkpointed._jdf.queryExecution().logical()
    if plan.getClass().getSimpleName() == "LogicalRDD":
        plan.rdd().unpersist(False)


def hold(checkpointed: DataFrame) -> None:
    """Compute a lazy ``localCheckpoint`` that no job has read, before anything it is computed from is freed."""
    rdd = checkpointed._jdf.queryExecution().logical().rdd()
    if not rdd.isCheckpointed():
        rdd.count()


def mergeable(segments: Sequence[Segment]) -> int:
    """How many of the newest segments to merge into one, so that there are only about log2(rows) of them.

    As in a log-structured merge tree a segment is merged once something of half its size or more has come after
    it: each partial row is copied a logarithmic number of times, and a window reads few segments. They wait until
    there are ``FEWEST``, since a merge of small ones costs what it takes to run it, and a small one hardly anything.
    """
    total, count = 0, 0
    for segment in reversed(segments):
        if count and segment.statistics.rows > 2 * total:
            break
        total += segment.statistics.rows
        count += 1
    return count if count >= FEWEST else 0
