"""sparkjet: exactly once into Parquet files, which are read back for the checksum."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks import feed
from benchmarks.local import local_session
from benchmarks.peers.micro_batches import run_epochs
from benchmarks.report import Report, emit
from benchmarks.work import STEP_SECONDS, Work
from sparkjet import functions as J
from sparkjet.grouping import WindowedStream

AGGREGATES = {
    "count": lambda: J.count().alias("count"),
    "sum": lambda: J.sum("value").alias("sum"),
    "avg": lambda: J.avg("price").alias("avg"),
    "max": lambda: J.max("value").alias("max"),
    "percentile": lambda: J.percentile_approx("price", 0.9).alias("percentile"),
}


def results(session: SparkSession, work: Work) -> WindowedStream:
    """The stream of a work's results: columns window, key and the aggregates."""
    lag, step = sj.limiting_lag("0 seconds"), f"{STEP_SECONDS} second"
    sliding = sj.window("ts", f"{work.steps} seconds", step).alias("window")
    if work.shape == "both":
        persons, auctions = (sj.stream(side).withWatermark("ts", lag) for side in feed.sides(session, work))
        seen = [J.sum("person").alias("persons"), J.sum("auction").alias("auctions")]
        return persons.union(auctions).groupBy(sliding, "key").agg(*seen).where("persons > 0 AND auctions > 0")
    source = feed.rows(session, work)
    by = ["substream"] if work.substreams > 1 else []
    stream = sj.stream(source.withColumn("substream", F.col("value") % work.substreams) if by else source)
    stream = stream.withWatermark("ts", lag, by=by)
    aggregates = [AGGREGATES[name]() for name in work.aggregates]
    if work.shape == "busiest":
        counts = stream.groupBy(sliding, "key").agg(*aggregates).withColumn("all", F.lit(0))
        each_end = sj.window("window", step).alias("window")
        return counts.groupBy(each_end, F.col("all").alias("key")).agg(J.max("count").alias("count"))
    window = sj.session_window("ts", step).alias("window") if work.shape == "sessions" else sliding
    return stream.groupBy(window, "key").agg(*aggregates)


def measure(work: Work, home: Path) -> Report:
    """Run one work with its output and its snapshots below ``home``."""
    session = local_session(work.cores)
    writer = results(session, work).writeStream.format("files").option("path", home / "results")
    # The source gives a batch again whatever happens, so epochs may overlap.
    writer = writer.option("overlapEpochs", True).option("processingGuarantee", work.guarantee)
    query = writer.option("checkpointLocation", home / "checkpoint").start()
    rows, seconds = run_epochs(query, work)
    ends = feed.read(session, f"{home}/results", work)
    # Windows that end before the last measured epoch were committed with one before it.
    complete = feed.complete(work.warm_up * work.batch + rows, work)
    session.stop()
    return Report(rows=rows, seconds=seconds, complete=complete, ends=ends)


def main() -> None:
    """Run the work that the first argument describes as JSON."""
    with tempfile.TemporaryDirectory(prefix="sparkjet-benchmark-") as home:
        emit(measure(msgspec.json.decode(sys.argv[1], type=Work), Path(home)))


if __name__ == "__main__":
    main()
