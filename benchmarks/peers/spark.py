"""Spark's own streaming windows: append mode, into Parquet files, which are read back for the checksum."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path

import msgspec
from pyspark.sql import functions as F

from benchmarks import feed
from benchmarks.local import local_session
from benchmarks.peers.micro_batches import WARM_UP, run_epochs
from benchmarks.report import Report, emit
from benchmarks.work import STEP_SECONDS, Work

AGGREGATES = {
    "count": lambda: F.count(F.lit(1)).alias("count"),
    "sum": lambda: F.sum("value").alias("sum"),
    "avg": lambda: F.avg("price").alias("avg"),
    "max": lambda: F.max("value").alias("max"),
    "percentile": lambda: F.percentile_approx("price", 0.9).alias("percentile"),
}
# Spark copies each row into every window that holds it: its input is a shorter prefix, in smaller epochs.

MEASURED = 8


def prefix(work: Work) -> Work:
    """The same work; where windows overlap in smaller epochs, of which enough are run that the first windows close."""
    if work.steps <= 1:
        return work
    batch = -(-work.density * 12 // (10 * (WARM_UP + MEASURED - 1)))
    return dataclasses.replace(work, batch=batch, measured=MEASURED)


def measure(work: Work, home: Path) -> Report:
    """Run one work with its output and its state below ``home``."""
    session = local_session()
    session.conf.set("spark.sql.shuffle.partitions", feed.PARTITIONS)
    source = feed.rows(session, work).withWatermark("ts", "0 seconds")
    step = f"{STEP_SECONDS} second"
    sliding = F.window("ts", f"{work.steps} seconds", step) if work.steps else F.session_window("ts", step)
    grouped = source.groupBy(sliding.alias("window"), "key")
    writer = grouped.agg(*[AGGREGATES[name]() for name in work.aggregates]).writeStream.outputMode("append")
    writer = writer.option("checkpointLocation", f"{home}/checkpoint")
    kept = work.sink == "files"
    writer = writer.format("parquet").option("path", f"{home}/results") if kept else writer.format("noop")
    rows, seconds = run_epochs(writer.start(), work.measured, work.batch)
    ends = feed.read(session, f"{home}/results", work) if kept else {}
    # Spark closes windows one epoch after the rows that pass their end.
    complete = feed.complete((WARM_UP - 1) * work.batch + rows, work)
    session.stop()
    return Report(rows=rows, seconds=seconds, complete=complete, ends=ends)


def main() -> None:
    """Run the work that the first argument describes as JSON."""
    with tempfile.TemporaryDirectory(prefix="spark-benchmark-") as home:
        emit(measure(prefix(msgspec.json.decode(sys.argv[1], type=Work)), Path(home)))


if __name__ == "__main__":
    main()
