"""What it costs to follow the watermark of 1, 16 and 256 substreams below a filter, in one pass.

Run by hand: ``python -m benchmarks.substreams [ROUNDS]``. Partial aggregation of a simple window (count and sum,
1,000 keys) over 4 million generated rows, half of which a filter drops; the numbers of substreams take turns in one
warm driver.
"""

from __future__ import annotations

import statistics
import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.local import local_session
from sparkjet.api.writer import settings_of
from sparkjet.catalyst.columns import KEPT, ONLY_SUBSTREAM, SUBSTREAM, TIME
from sparkjet.engine.arrival import arrive
from sparkjet.engine.context import configure
from sparkjet.engine.stage_state import StageState
from sparkjet.plan.partial_rows import ProgressDetail
from sparkjet.plan.plan import Plan
from sparkjet.plan.planning import plan_of

ROWS = 4_000_000
COUNTS = (1, 16, 256)
WARM_UP = 3


def plan(session: SparkSession) -> Plan:
    """Count and sum of the rows that a filter lets through, by key and window."""
    source = session.readStream.format("rate").load().withColumnRenamed("timestamp", "ts")
    stream = sj.stream(source.withColumn("key", F.col("value") % 1000)).withWatermark("ts", 0)
    result = stream.where("value % 2 = 0").groupBy(sj.window("ts", "1 minute", "1 second"), "key")
    writer = result.agg(F.count("*").alias("n"), F.sum("value").alias("total")).writeStream.format("console")
    return plan_of([settings_of(writer).output("results")])


def batch(session: SparkSession, substreams: int) -> DataFrame:
    """Rows of all substreams, mixed within each task."""
    rows = session.range(ROWS).withColumnRenamed("id", "value")
    name = F.lit(ONLY_SUBSTREAM) if substreams == 1 else (F.col("value") % substreams).cast("string")
    return rows.select(
        F.timestamp_micros("value").alias("ts"),
        "value",
        (F.hash("value") % 1000).cast("long").alias("key"),
        F.col("value").alias(TIME),
        name.alias(SUBSTREAM),
    )


def partial_aggregation(query: Plan, rows: DataFrame, substreams: int, detail: ProgressDetail) -> float:
    """Seconds of partial aggregation, with what it finds out about event time or, for comparison, without."""
    (stage,) = query.stages
    operator = stage.stage.operator(2)
    assert operator is not None  # noqa: S101 - windows keep state
    (feed,) = stage.feeds
    chain = feed.feed.transformations
    started = time.perf_counter()
    plain = detail is ProgressDetail.NOTHING

    def read(batch: DataFrame) -> DataFrame:
        return chain.apply(batch).withColumn(KEPT, F.lit(True)) if plain else chain.marked(batch)

    partial = arrive(rows, read, stage, 0, StageState(operator, 2), detail)
    taken = time.perf_counter() - started
    if partial.accepted != ROWS // 2 or (detail is not ProgressDetail.NOTHING and len(partial.highest) != substreams):
        sys.exit(f"wrong result: {len(partial.highest)} substreams, {partial.accepted} rows")
    if partial.segment is not None:
        partial.segment.release()
    return taken


def _detail(substreams: int) -> ProgressDetail:
    return ProgressDetail.ALL if substreams == 1 else ProgressDetail.EACH


def main(rounds: int) -> None:
    """Measure and print."""
    session = local_session()
    configure(session, 2)
    query = plan(session)
    seconds: dict[tuple[int, ProgressDetail], list[float]] = {}
    for round_ in range(WARM_UP + rounds):
        for count in COUNTS:
            rows = batch(session, count)
            for detail in (ProgressDetail.NOTHING, _detail(count)):
                taken = partial_aggregation(query, rows, count, detail)
                if round_ >= WARM_UP:
                    seconds.setdefault((count, detail), []).append(taken)
    for count in COUNTS:
        without, following = (
            statistics.median(seconds[count, detail]) for detail in (ProgressDetail.NOTHING, _detail(count))
        )
        print(
            f"{count:4} substreams: {without:.3f} s without, {following:.3f} s with the watermark "
            f"({following / without:.2f} x), {ROWS / following / 1e6:.1f} M rows/s"
        )
    session.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
