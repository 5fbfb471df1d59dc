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
from benchmarks.peers.micro_batches import Dialect, results, run_epochs
from benchmarks.report import Results, emit
from benchmarks.run import MANY_KEYS, heap
from benchmarks.work import Work

DIALECT = Dialect(lambda rows: rows.withWatermark("ts", "0 seconds"), F.window, F.session_window)
WARM_UP = 15
MEASURED = 8
FEW_WARM_UP = 3
FEW_MEASURED = 1
"""With many keys, an epoch writes millions of rows of state: fewer, longer epochs are better for Spark."""


def prefix(work: Work) -> Work:
    """The same work for Spark, which copies each row into every window that it belongs to.

    With overlapping windows, its input is a shorter prefix in smaller epochs, enough for the first windows to close.
    """
    if work.steps <= 1 or work.shape == "sessions":
        return work
    rows = work.density * 12 // 10 if work.shape == "windows" else work.density * 4
    warm_up, measured = (FEW_WARM_UP, FEW_MEASURED) if work.keys >= MANY_KEYS else (WARM_UP, MEASURED)
    runs = -(-rows // feed.RUN // (warm_up + measured - 1))
    return dataclasses.replace(work, batch=runs * feed.RUN, warm_up=warm_up, measured=measured)


def measure(work: Work, home: Path) -> Results:
    """Run one work with its output and its state below ``home``."""
    session = local_session(work.cores, heap("spark", work))
    session.conf.set("spark.sql.shuffle.partitions", feed.PARTITIONS)
    writer = results(session, work, DIALECT).writeStream.outputMode("append")
    writer = writer.option("checkpointLocation", f"{home}/checkpoint")
    kept = work.sink == "files"
    writer = writer.format("parquet").option("path", f"{home}/results") if kept else writer.format("noop")
    last = run_epochs(writer.start(), work, unreported=1)
    ends = feed.read(session, f"{home}/results", work) if kept else {}
    # Spark closes windows one epoch after the rows that pass their end, a window over windows two.
    late = 2 if work.shape == "busiest" else 1
    session.stop()
    return Results(complete=feed.complete((last - late) * work.batch, work), ends=ends)


def main() -> None:
    """Run the work that the first argument describes as JSON."""
    with tempfile.TemporaryDirectory(prefix="spark-benchmark-") as home:
        emit(measure(prefix(msgspec.json.decode(sys.argv[1], type=Work)), Path(home)))


if __name__ == "__main__":
    main()
