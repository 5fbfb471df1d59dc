"""sparkjet: exactly once into Parquet files, which are read back for the checksum."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import msgspec

import sparkjet as sj
from benchmarks import feed
from benchmarks.local import local_session
from benchmarks.peers.micro_batches import WARM_UP, run_epochs
from benchmarks.report import Report, emit
from benchmarks.work import STEP_SECONDS, Work
from sparkjet import functions as J

AGGREGATES = {
    "count": lambda: J.count().alias("count"),
    "sum": lambda: J.sum("value").alias("sum"),
    "avg": lambda: J.avg("price").alias("avg"),
    "max": lambda: J.max("value").alias("max"),
    "percentile": lambda: J.percentile_approx("price", 0.9).alias("percentile"),
}


def measure(work: Work, home: Path) -> Report:
    """Run one work with its output and its snapshots below ``home``."""
    session = local_session()
    stream = sj.stream(feed.rows(session, work)).withWatermark("ts", sj.limiting_lag("0 seconds"))
    step = f"{STEP_SECONDS} second"
    sliding = work.steps and sj.window("ts", f"{work.steps} seconds", step)
    grouped = stream.groupBy(sliding or sj.session_window("ts", step).alias("window"), "key")
    writer = grouped.agg(*[AGGREGATES[name]() for name in work.aggregates]).writeStream.format("files")
    writer = writer.option("path", home / "results").option("processingGuarantee", work.guarantee)
    query = writer.option("checkpointLocation", home / "checkpoint").start()
    rows, seconds = run_epochs(query, work.measured, work.batch)
    ends = feed.read(session, f"{home}/results", work)
    # Windows that end before the last measured epoch were committed with one before it.
    complete = feed.complete(WARM_UP * work.batch + rows, work)
    session.stop()
    return Report(rows=rows, seconds=seconds, complete=complete, ends=ends)


def main() -> None:
    """Run the work that the first argument describes as JSON."""
    with tempfile.TemporaryDirectory(prefix="sparkjet-benchmark-") as home:
        emit(measure(msgspec.json.decode(sys.argv[1], type=Work), Path(home)))


if __name__ == "__main__":
    main()
