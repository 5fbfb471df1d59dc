"""sparkjet: exactly once into Parquet files, which are read back for the checksum."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks import feed
from benchmarks.local import local_session
from benchmarks.peers.micro_batches import Dialect, results, run_epochs
from benchmarks.report import Results, emit
from benchmarks.run import heap
from benchmarks.work import Work
from sparkjet.api.stream import Stream


def dialect(work: Work) -> Dialect:
    """The query of sparkjet; the watermark follows the work's substreams."""

    def watermarked(rows: DataFrame) -> Stream:
        by = ["substream"] if work.substreams > 1 else []
        named = rows.withColumn("substream", F.col("value") % work.substreams) if by else rows
        return sj.stream(named).withWatermark("ts", sj.limiting_lag("0 seconds"), by=by)

    return Dialect(watermarked, sj.window, sj.session_window)


def measure(work: Work, home: Path) -> Results:
    """Run one work with its output and its snapshots below ``home``."""
    session = local_session(work.cores, heap("sparkjet", work))
    writer = results(session, work, dialect(work)).writeStream.format("files").option("path", home / "results")
    writer = writer.option("processingGuarantee", work.guarantee)
    query = writer.option("checkpointLocation", home / "checkpoint").start()
    # One that began before a pause would be measured with it: two overlap, and neither has reported.
    last = run_epochs(query, work, unreported=2)
    ends = feed.read(session, f"{home}/results", work)
    session.stop()
    # Windows that end before the last measured epoch were committed in an earlier epoch.
    return Results(complete=feed.complete(last * work.batch, work), ends=ends)


def main() -> None:
    """Run the work that the first argument describes as JSON."""
    work = msgspec.json.decode(sys.argv[1], type=Work)
    if work.cores == 1:
        # `local[1]` leaves the second core to planning, compilation and garbage collection: not one core at all.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix="sparkjet-benchmark-") as home:
        emit(measure(work, Path(home)))


if __name__ == "__main__":
    main()
