"""The real window operator with the same batches as the naive one, with or without a restart after each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Aggregate, Inputs
from sparkjet.catalyst.constants import older
from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.engine.arrival import Arrival
from sparkjet.engine.stage_state import StageState
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import SavedStage
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.time import MIN, WindowGrid
from sparkjet.windows import Accumulators, SlidingWindows
from tests.in_plan import in_plan
from tests.windows.model import Batch, Row
from tests.windows.session_run import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "key string, time long, value long"
PARTITIONS = 2


class OperatorRun:
    """Feeds batches to a window operator through the query state and the directory store, as the engine does."""

    def __init__(self, spark: SparkSession, window: WindowGrid, aggregates: Sequence[Aggregate], home: Path) -> None:
        self._spark = spark = session_of(spark)
        self._store = DirectoryStore(home)
        self._store.open("checkpointLocation")
        inputs = Inputs(spark.createDataFrame([], SCHEMA), F.col("time"))
        self._results = [(f"result{i}", aggregate.resolve(inputs)) for i, aggregate in enumerate(aggregates)]
        partials = inputs.frame.groupBy().agg(*Accumulators.aggregations(self._results))
        self._accumulators = Accumulators(self._results, partials.schema)
        self._epoch = 0
        self.late = 0
        self.state = self._new(window)

    def feed(self, batch: Batch) -> list[Row]:
        """One epoch: the final rows it emits."""
        operator = self.state.operator
        self._epoch += 1
        events = in_plan(self._spark, [(e.key, e.time, e.value) for e in batch.events], SCHEMA)
        framed = events.withColumn("frame", operator.frame_of(F.col("time")))
        self.late += len(framed.where(older("time", operator.judged_by)).select("time").collect())
        accepted = framed.where(~older("time", operator.judged_by))
        grouped = accepted.groupBy(F.col("key").alias("key0"), "frame")
        table = operator.partitioned(grouped.agg(*Accumulators.aggregations(self._results)))
        statistics = SegmentStatistics.measure(table, KeptPlans())
        outcome = Arrival(None if statistics is None else Segment(table, statistics))
        self.state.append(0, outcome)
        watermark = operator.open_until if batch.watermark is None else batch.watermark
        windows = operator.close(MIN if watermark is None else watermark)
        self.state.save(f"000000-{self._epoch:09d}-0", self._store)
        rows = [] if windows is None else [(r[0], r[1], r[2], tuple(r[3:])) for r in windows.collect()]
        operator.release()
        return rows

    def restart(self, window: WindowGrid | None = None) -> None:
        """Discard the state and restore it from the store, optionally into another window."""
        before = self.state.operator
        saved = msgspec.json.decode(msgspec.json.encode(self.state.snapshot()), type=SavedStage)
        self.state = self._new(window if window is not None else self._window)
        self.state.restore(saved, self._spark, self._store, f"000000-{self._epoch:09d}-moved")
        before.restore([], None)
        before.release()

    def _new(self, window: WindowGrid) -> StageState:
        self._window = window
        return StageState(SlidingWindows(window, ["key0"], self._accumulators, PARTITIONS), PARTITIONS)
