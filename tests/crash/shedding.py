"""A query that closes windows early by what executors measure, and that kills itself: a program for test_shedding.py.

``python -m tests.crash.shedding ROOT EPOCH PHASE OPTION=VALUE…`` counts the rows of ROOT/feed into ROOT/out, late ones
into ROOT/late, and dies with its JVM at the end of that phase of that epoch; with epoch 0 it runs to the end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkjet as sj


def main(root: Path, epoch: int, phase: str, *options: str) -> None:
    """Run the query, until it dies or is at the end of its input."""
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")

    def reached(at: sj.EpochPhase, number: int) -> None:
        if (at.value, number) == (phase, epoch):
            os.killpg(0, signal.SIGKILL)

    feed = session.readStream.schema("ts timestamp, name string").option("maxFilesPerTrigger", 1)
    rows = sj.stream(feed.json(str(root / "feed"))).withWatermark("ts", "1 minute")
    counts = rows.groupBy(sj.window("ts", "10 seconds"), "name").agg(F.count("*").alias("rows"))
    writer = counts.writeStream.format("json").option("path", str(root / "out")).onEpochPhase(reached)
    writer = writer.option("checkpointLocation", str(root / "home")).option("lateRowsPath", str(root / "late"))
    writer = writer.option("onStateLimit", "shed").option("isShed", value=True).option("closeWindowsAtEnd", value=True)
    writer = writer.options(**dict(option.split("=") for option in options)).trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *sys.argv[4:])
