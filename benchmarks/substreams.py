"""What it costs to follow the watermark of 1, 16 and 256 substreams below a filter, in one pass.

Run by hand: ``python benchmarks/substreams.py [ROUNDS]``. Stage 1 of a simple window (count and sum, 1,000 keys)
over 4 million generated rows, half of which a filter drops; the numbers of substreams take turns in one warm driver.
"""

# ruff: noqa: INP001, T201 - a script that talks to the terminal
from __future__ import annotations

import os
import statistics
import sys
import time

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import functions as J
from sparkjet.columns import SUBSTREAM, TIME
from sparkjet.engine.aggregation import ObservedBatch, aggregate
from sparkjet.engine.parts import configure
from sparkjet.engine.plan import Output, Plan, Rows, plan_of
from sparkjet.sinks.console import ConsoleSink
from sparkjet.windows.segments import release

ROWS = 4_000_000
COUNTS = (1, 16, 256)
WARM_UP = 3


def plan(session: SparkSession) -> Plan:
    """Count and sum of the rows that a filter lets through, by key and window."""
    source = session.readStream.format("rate").load().withColumnRenamed("timestamp", "ts")
    stream = sj.stream(source.withColumn("key", F.col("value") % 1000)).withWatermark("ts", 0)
    result = stream.where("value % 2 = 0").groupBy(sj.window("ts", "1 minute", "1 second"), "key")
    stage = result.agg(J.count().alias("n"), J.sum("value").alias("total")).writeStream.stage
    return plan_of([Output("results", stage, Rows.RESULTS, lambda rows: rows, ConsoleSink())])


def batch(session: SparkSession, substreams: int) -> DataFrame:
    """Rows of all substreams, mixed within each task."""
    rows = session.range(ROWS).withColumnRenamed("id", "value")
    name = F.lit("0") if substreams == 1 else (F.col("value") % substreams).cast("string")
    return rows.select(
        F.timestamp_micros("value").alias("ts"),
        "value",
        (F.hash("value") % 1000).cast("long").alias("key"),
        F.col("value").alias(TIME),
        name.alias(SUBSTREAM),
    )


def stage_one(query: Plan, rows: DataFrame, substreams: int, *, observed: bool) -> float:
    """Seconds of stage 1, with the watermark or, for comparison, without."""
    stage = query.stages["stage0"]
    operator = stage.operator(2)
    started = time.perf_counter()
    seen = ObservedBatch(rows, query, [str(number) for number in range(substreams)])
    outcome = aggregate(seen.rows if observed else rows, stage, operator)
    found = len(seen.highest()) if observed else substreams
    taken = time.perf_counter() - started
    if (found, outcome.accepted) != (substreams, ROWS // 2):
        sys.exit(f"wrong result: {found} substreams, {outcome.accepted} rows")
    release(outcome.table)
    return taken


def main(rounds: int) -> None:
    """Measure and print."""
    session = (
        SparkSession.builder.master("local[2]")
        .appName("sparkjet-benchmark")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    configure(session, 2)
    query = plan(session)
    seconds: dict[tuple[int, bool], list[float]] = {}
    for round_ in range(WARM_UP + rounds):
        for count in COUNTS:
            rows = batch(session, count)
            for observed in (False, True):
                taken = stage_one(query, rows, count, observed=observed)
                if round_ >= WARM_UP:
                    seconds.setdefault((count, observed), []).append(taken)
    for count in COUNTS:
        without, following = (statistics.median(seconds[count, observed]) for observed in (False, True))
        print(
            f"{count:4} substreams: {without:.3f} s without, {following:.3f} s with the watermark "
            f"({following / without:.2f} x), {ROWS / following / 1e6:.1f} M rows/s"
        )
    session.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
