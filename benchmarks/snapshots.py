"""T7: the time of the same epoch's snapshot with 10 and with 100 times the state.

``python -m benchmarks.snapshots``. The first file fills the state, the others are epochs of one row for each key.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal

KEYS = 1_000
FRAMES = (50, 500, 5_000)
"""Open frames per key: 50,000, 500,000 and 5,000,000 partial rows."""
EPOCHS = 20
MEASURED = 12
ROUNDS = 3
GOAL = 1 / 1.2


def feed(session: SparkSession, frames: int, home: Path) -> None:
    """Write the input: so many seconds of every key in one file, then one second per file."""
    parts = [(0, frames)] + [(frames + epoch, 1) for epoch in range(EPOCHS)]
    for number, (first, seconds) in enumerate(parts):
        rows = session.range(first * KEYS, (first + seconds) * KEYS, 1, 1)
        columns = F.timestamp_seconds(F.col("id").cast("long") / KEYS).alias("ts"), (F.col("id") % KEYS).alias("key")
        rows.select(*columns, "id").write.parquet(str(home / "written" / str(number)))
        (written,) = (home / "written" / str(number)).glob("*.parquet")
        (home / "in").mkdir(exist_ok=True)
        file = written.rename(home / "in" / f"{number:03}.parquet")
        # Spark's file source reads the oldest first.
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def snapshots(session: SparkSession, home: Path) -> Iterator[float]:
    """Seconds of the snapshots of the last epochs."""
    source = session.readStream.schema("ts timestamp, key long, id long").option("maxFilesPerTrigger", 1)
    stream = sj.stream(source.parquet(str(home / "in"))).withWatermark("ts", sj.limiting_lag("0 seconds"))
    window = sj.window("ts", f"{2 * max(FRAMES)} seconds", "1 second")
    counted = stream.groupBy(window, "key").agg(F.count("*").alias("n"), F.sum("id").alias("total"))
    writer = counted.writeStream.format("files").option("path", home / "out").trigger(availableNow=True)
    query = writer.option("checkpointLocation", home / "checkpoint").start()
    query.awaitTermination()
    for progress in query.recentProgress[-MEASURED:]:
        yield progress["epoch"]["durationMs"]["save"] / 1000


def study() -> list[Ratio]:
    """Two ratios: the snapshots of the smallest state by those of a larger one."""
    session = local_session()
    found: dict[int, list[float]] = {frames: [] for frames in FRAMES}
    with tempfile.TemporaryDirectory(prefix="sparkjet-snapshots-") as home:
        # One more run first, in which Java compiles.
        for number, frames in enumerate([FRAMES[0], *FRAMES * ROUNDS]):
            each = Path(home) / str(number)
            feed(session, frames, each)
            median = statistics.median(snapshots(session, each))
            if number:
                found[frames].append(median)
    session.stop()
    what = f"the snapshot of {KEYS:,} partial rows, by the size of the state"
    smallest, *greater = FRAMES
    return [
        Ratio.of_seconds("T7", what, Goal(f"{frames // smallest} x the state", GOAL), found[frames], found[smallest])
        for frames in greater
    ]


if __name__ == "__main__":
    main(study)
