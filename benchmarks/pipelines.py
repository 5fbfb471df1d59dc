"""T12: a query without windows, exactly once, next to Spark's own foreachBatch of the same rows.

``python -m benchmarks.pipelines``. Both write what a filter and a projection leave as Parquet files.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet.api.stream import Stream

GOALS = {10_000: (1 / 1.3, 0.0), 1_000_000: (1.0, 0.9)}
"""By the rows of an epoch: into files, and into foreachBatch."""
EPOCHS = 16
MEASURED = 10
"""The last ones: in the first ones Java compiles."""
ROUNDS = 5
SCHEMA = "ts timestamp, key long, value long, price double"

Rows = TypeVar("Rows", DataFrame, Stream)


def feed(session: SparkSession, size: int, home: Path, epochs: int = EPOCHS) -> None:
    """Write the input: a file for each epoch."""
    home.mkdir()
    for number in range(epochs):
        ids = session.range(number * size, (number + 1) * size, 1, 1)
        rows = ids.select(
            F.timestamp_micros("id").alias("ts"),
            (F.col("id") * 7919 % 1000).alias("key"),
            F.col("id").alias("value"),
            (F.col("id") % 1000 / 8).alias("price"),
        )
        rows.write.parquet(str(home / "written"), mode="overwrite")
        (written,) = (home / "written").glob("*.parquet")
        file = written.rename(home / f"{number:03}.parquet")
        # Spark's file source reads the oldest first.
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def shaped(rows: Rows) -> Rows:
    """The pipeline, the same text for both."""
    kept = rows.where("value % 10 < 7 AND key <> 3")
    return kept.select("ts", "key", F.round(F.col("price") * 1.19, 2).alias("gross"), F.upper(F.hex("value")))


def ours(rows: DataFrame, home: Path) -> Any:
    """Exactly once into files."""
    return shaped(sj.stream(rows)).writeStream.format("files").option("path", home / "out")


def ours_as_batches(rows: DataFrame, home: Path) -> Any:
    """The same function as Spark's, called with rows that are stored first, so that a repetition has the same ones."""
    return shaped(sj.stream(rows)).writeStream.foreachBatch(lambda found, _: written(found, home))


def theirs(rows: DataFrame, home: Path) -> Any:
    """Spark's own foreachBatch; after a crash, an epoch is written twice."""
    return shaped(rows).writeStream.foreachBatch(lambda found, _: written(found, home))


def written(rows: DataFrame, home: Path) -> None:
    """Append rows to the output."""
    rows.write.mode("append").parquet(str(home / "out"))


def seconds(session: SparkSession, given: Path, home: Path, writer: Callable[[DataFrame, Path], Any]) -> float:
    """Seconds of a measured epoch, from its planning to its end; the output must be complete."""
    source = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(given))
    started = writer(source, home).trigger(availableNow=True).option("checkpointLocation", f"{home}/checkpoint").start()
    started.awaitTermination()
    found = session.read.parquet(str(home / "out")).count()
    expected = shaped(session.read.schema(SCHEMA).parquet(str(given))).count()
    if found != expected:
        raise RuntimeError(f"{writer.__name__} wrote {found} rows instead of {expected}.")
    epochs = [progress["durationMs"]["triggerExecution"] for progress in started.recentProgress]
    return float(statistics.median(epochs[-MEASURED:])) / 1000


def study() -> list[Ratio]:
    """For each size the ratio of both ways to Spark's."""
    session = local_session()
    ratios = []
    with tempfile.TemporaryDirectory(prefix="sparkjet-pipelines-") as directory:
        for size, goals in GOALS.items():
            given = Path(directory) / f"{size}"
            feed(session, size, given)
            found: dict[str, list[float]] = {}
            # One round first, in which Java compiles.
            for round_ in range(ROUNDS + 1):
                for writer in (ours, ours_as_batches, theirs):
                    home = Path(directory) / f"{size}-{round_}-{writer.__name__}"
                    home.mkdir()
                    taken = seconds(session, given, home, writer)
                    if round_:
                        found.setdefault(writer.__name__, []).append(taken)
            for writer, how, goal in zip((ours, ours_as_batches), ("files", "foreachBatch"), goals, strict=True):
                what = f"no windows, {size:,} rows of an epoch, into {how}"
                pair = found[writer.__name__], found[theirs.__name__]
                ratios.append(Ratio.of_seconds("T12", what, Goal("Spark's foreachBatch", goal), *pair, size))
    session.stop()
    return ratios


if __name__ == "__main__":
    main(study)
