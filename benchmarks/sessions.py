"""T9: the cost of an epoch that touches 1,000 open sessions, out of 10,000 and of 1,000,000.

``python -m benchmarks.sessions``. Both sizes take turns in one warm driver, and only the session
operator is measured: its partial rows are made beforehand. An epoch extends 900 sessions, opens 100, and moves the
watermark past a few hundred. The state that an epoch may touch is spread evenly over event time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.touched import PARTITIONS, SIZES, TOUCHED, touched
from sparkjet.aggregates.operation import Inputs
from sparkjet.aggregates.sums import count
from sparkjet.aggregates.sums import sum as total
from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.engine.context import configure
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.time import MIN
from sparkjet.windows import Accumulators, SessionWindows

GAP = 1_000_000
CLOSED = 300


@dataclass
class Feed:
    """A session operator with ``size`` open sessions, whose ends are a hundredth of the gap apart."""

    session: SparkSession
    size: int

    def __post_init__(self) -> None:
        shape = self.session.range(0).select(
            F.lit("").alias("key0"), F.col("id").alias("time"), F.col("id").alias("value")
        )
        inputs = Inputs(shape, F.col("time"))
        self.results = [("result0", count().resolve(inputs)), ("result1", total("value").resolve(inputs))]
        partials = shape.groupBy().agg(*Accumulators.aggregations(self.results))
        self.operator = SessionWindows(GAP, None, ["key0"], Accumulators(self.results, partials.schema), PARTITIONS)
        self.epoch = 0
        self.watermark = 0
        ids = self.session.range(self.size)
        self.step = GAP // 100
        self.feed(ids.select(F.col("id").alias("number"), (F.col("id") * self.step).alias("time")), MIN)

    def feed(self, events: DataFrame, watermark: int) -> tuple[float, int]:
        """One epoch: its seconds from partial rows to results, and the number of results."""
        operator = self.operator
        rows = events.select(F.concat(F.lit("key-"), "number").alias("key0"), "time", F.lit(1).alias("value"))
        grouped = rows.groupBy("key0", operator.frame_of(F.col("time")).alias("frame"))
        bounds = [column.alias(name) for name, column in operator.bounds(F.col("time")).items()]
        partials = operator.partitioned(grouped.agg(*bounds, *Accumulators.aggregations(self.results)))
        measured = SegmentStatistics.measure(partials, KeptPlans())
        started = time.perf_counter()
        if measured is not None:
            operator.append(Segment(partials, measured))
        windows = operator.close(watermark)
        closed = 0 if windows is None else windows.count()
        operator.release()
        return time.perf_counter() - started, closed

    def touch(self) -> tuple[float, int]:
        """An epoch that extends 900 sessions, opens 100 and closes a few hundred."""
        self.epoch += 1
        self.watermark += CLOSED * self.step
        first = self.epoch * CLOSED + 1_000
        stride = max(1, (self.size - SIZES[0]) // TOUCHED)
        old = self.session.range(TOUCHED * 9 // 10).select((F.col("id") * stride + first).alias("number"))
        extending = old.select("number", (F.col("number") * self.step + GAP // 2).alias("time"))
        fresh = self.session.range(TOUCHED // 10).select(
            (F.col("id") + self.size + self.epoch * TOUCHED).alias("number"),
            (F.col("id") * self.step + self.size * self.step).alias("time"),
        )
        return self.feed(extending.union(fresh), self.watermark + GAP)


def study() -> list[Ratio]:
    """One ratio: an epoch with few open sessions by one with many."""
    session = local_session()
    configure(session, PARTITIONS)
    ratio = touched("T9-touched", "open sessions", lambda size: Feed(session, size))
    session.stop()
    return [ratio]


if __name__ == "__main__":
    main(study)
