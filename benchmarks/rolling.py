"""T18: the cost of an epoch that touches 1,000 keys of a rolling aggregate, and a whole query beside Spark's.

``python -m benchmarks.rolling``. First, 1,000 keys out of 10,000 and of 1,000,000 take turns in one warm driver, and
only the operator is measured: its partial rows are made beforehand. An epoch adds rows to 900 keys, and brings 100 new
ones. Then a query takes turns with Spark's own in update mode: the same files and partitions, into noop.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.touched import PARTITIONS, TOUCHED, touched
from benchmarks.work import Goal
from sparkjet.aggregates.extremes import max as greatest
from sparkjet.aggregates.operation import Inputs
from sparkjet.aggregates.sums import count
from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.engine.context import configure
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.stateful.rolling import RollingGroups
from sparkjet.time import MIN
from sparkjet.windows import Accumulators

ROWS, FILES, KEYS = 400_000, 9, 100_000
"""Of each file of a whole query, their number, and the keys in them."""
TURNS = 5
WARM_UP = 2
"""In the second round Java still compiles for longer than the rows take."""


@dataclass
class Feed:
    """A rolling aggregate of ``size`` keys; an epoch touches some of them, a tenth of which are new."""

    session: SparkSession
    size: int
    touched: int = TOUCHED

    def __post_init__(self) -> None:
        shape = self.session.range(0).select(F.lit("").alias("key0"), F.col("id").alias("value"))
        inputs = Inputs(shape, F.lit(0))
        self.results = [("result0", count().resolve(inputs)), ("result1", greatest("value").resolve(inputs))]
        partials = shape.groupBy().agg(*Accumulators.aggregations(self.results))
        self.operator = RollingGroups(None, ["key0"], Accumulators(self.results, partials.schema), PARTITIONS)
        self.epoch = 0
        self.feed(self.session.range(self.size).toDF("number"))

    def feed(self, numbers: DataFrame) -> tuple[float, int]:
        """One epoch: its seconds from partial rows to results, and the number of results."""
        rows = numbers.select(F.concat(F.lit("key-"), "number").alias("key0"), F.col("number").alias("value"))
        grouped = rows.groupBy("key0", F.lit(0).cast("long").alias("frame"))
        (side,) = self.operator.sides
        partials = side.shuffled(grouped.agg(*Accumulators.aggregations(self.results))).localCheckpoint(eager=False)
        measured = SegmentStatistics.measure(partials, KeptPlans())
        assert measured is not None  # noqa: S101 - an epoch has rows
        started = time.perf_counter()
        side.append(Segment(partials, measured))
        found = self.operator.close(MIN)
        changed = 0 if found is None else found.count()
        self.operator.release()
        return time.perf_counter() - started, changed

    def touch(self) -> tuple[float, int]:
        """An epoch that adds to nine tenths of the keys that it touches, and brings the others."""
        self.epoch += 1
        stride, keys = max(1, self.size // self.touched), self.touched
        old = self.session.range(keys * 9 // 10).select((F.col("id") * stride + self.epoch % stride).alias("number"))
        first = self.size + self.epoch * keys
        return self.feed(old.union(self.session.range(first, first + keys // 10).toDF("number")))


def study() -> list[Ratio]:
    """Two ratios: an epoch with few keys by one with many, and a query by Spark's."""
    session = local_session()
    apart = session.newSession()
    configure(apart, PARTITIONS)
    ratios = [touched("T18-touched", "keys", lambda size: Feed(apart, size)), beside_spark(session)]
    session.stop()
    return ratios


def beside_spark(session: SparkSession) -> Ratio:
    """A query of sparkjet's by Spark's own, in update mode over the same files."""
    session.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    with tempfile.TemporaryDirectory() as directory:
        for number in range(FILES):
            rows = session.range(number * ROWS, (number + 1) * ROWS, numPartitions=PARTITIONS)
            rows.selectExpr(f"xxhash64(id) % {KEYS} AS k", "id AS v").write.parquet(f"{directory}/{number:02}")
        ours, theirs = [], []
        for turn in range(WARM_UP + TURNS):
            taken = [_seconds(session, directory, f"{directory}-{turn}", ours=mine) for mine in (True, False)]
            print(f"{turn:3} sparkjet {taken[0]:7.3f} s, spark {taken[1]:7.3f} s", file=sys.stderr)
            if turn >= WARM_UP:
                ours.append(taken[0])
                theirs.append(taken[1])
    what = f"rolling aggregate: {FILES * ROWS:,} rows of {KEYS:,} keys in {FILES} epochs, update mode"
    return Ratio.of_seconds("T18", what, Goal("spark", 1.2), ours, theirs, FILES * ROWS)


def _seconds(session: SparkSession, directory: str, home: str, *, ours: bool) -> float:
    """Seconds of all epochs but the first third, in which Java compiles."""
    source = session.readStream.schema("k long, v long").option("maxFilesPerTrigger", PARTITIONS)
    rows: Any = source.option("recursiveFileLookup", "true").parquet(directory)
    grouped = (sj.stream(rows) if ours else rows).groupBy("k").agg(F.count("*"), F.sum("v"), F.max("v"))
    writer = grouped.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    place = Path(f"{home}-{'sparkjet' if ours else 'spark'}")
    query = writer.option("checkpointLocation", str(place)).start()
    query.awaitTermination()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    durations = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
    return float(sum(durations[len(durations) // 3 :])) / 1000


if __name__ == "__main__":
    main(study)
