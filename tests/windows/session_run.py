"""The real session operator with the same batches as the naive one, with or without a restart after each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Aggregate, Inputs
from sparkjet.catalyst.constants import older
from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.state.partitions import release
from sparkjet.time import MIN
from sparkjet.windows import Accumulators, SessionWindows
from sparkjet.windows.session_window import cover_end
from tests.in_plan import in_plan
from tests.state.stored import read_back
from tests.windows.model import Batch, Row

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SCHEMA = "key string, time long, value long"
PARTITIONS = 2


def session_of(spark: SparkSession) -> SparkSession:
    """A session like an epoch's: partitionings are preserved only without adaptive execution."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    return session


class SessionRun:
    """Feeds batches to a session operator: partial aggregation, append, close, and snapshots in Parquet."""

    def __init__(
        self, session: SparkSession, gap: int | Column, max_duration: int | None, aggregates: Sequence[Aggregate]
    ) -> None:
        self._session = session
        inputs = Inputs(session.createDataFrame([], SCHEMA), F.col("time"))
        self._results = [(f"result{i}", aggregate.resolve(inputs)) for i, aggregate in enumerate(aggregates)]
        partials = inputs.frame.groupBy().agg(*Accumulators.aggregations(self._results))
        self._accumulators = Accumulators(self._results, partials.schema)
        self._restarts = 0
        self.late = 0
        self.operator = self._new(gap, max_duration)

    def feed(self, batch: Batch) -> list[Row]:
        """One epoch: the final rows it emits."""
        self.append(batch)
        watermark = self.operator.open_until if batch.watermark is None else batch.watermark
        rows = self.rows(self.operator.close(MIN if watermark is None else watermark))
        self.operator.release()
        return rows

    def append(self, batch: Batch) -> None:
        """Partial aggregation of an epoch."""
        operator = self.operator
        events = in_plan(self._session, [(e.key, e.time, e.value) for e in batch.events], SCHEMA)
        if not isinstance(operator.gap, int):
            # As the plan does (:mod:`sparkjet.plan.row_gaps`).
            events = events.where(cover_end(F.col("time"), operator.gap) > F.col("time"))
        judged = events.withColumn("late", older("time", operator.judged_by))
        self.late += len(judged.where("late").select("late").collect())
        grouped = judged.where("NOT late").groupBy("key", operator.frame_of(F.col("time")).alias("frame"))
        bounds = [column.alias(name) for name, column in operator.bounds(F.col("time")).items()]
        partials = operator.partitioned(grouped.agg(*bounds, *Accumulators.aggregations(self._results)))
        statistics = SegmentStatistics.measure(partials, KeptPlans())
        if statistics is None:
            release(partials)
        else:
            operator.append(Segment(partials, statistics))

    def restart(self, home: Path) -> None:
        """Discard the operator and continue with a new one that reads its snapshot."""
        before = self.operator
        self.operator = self._new(before.gap, before.max_duration)
        assert self.operator.settings == before.settings
        segments = read_back(self._session, before.segments, self.operator.partitioned, home / f"{self._restarts}")
        self.operator.restore(segments, before.closed)
        self._restarts += 1
        before.restore([], None)
        before.release()

    def discard(self) -> None:
        """Free the operator's state."""
        self.operator.restore([], None)
        self.operator.release()

    @staticmethod
    def rows(windows: DataFrame | None) -> list[Row]:
        """Result rows in the model's format."""
        return [] if windows is None else [(r[0], r[1], r[2], tuple(r[3:])) for r in windows.collect()]

    def _new(self, gap: int | Column, max_duration: int | None) -> SessionWindows:
        return SessionWindows(gap, max_duration, ["key"], self._accumulators, PARTITIONS)
