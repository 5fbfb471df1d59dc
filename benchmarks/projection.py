"""P1: rows like Kafka's, a filter and a projection, exactly once into files, next to Spark's own file sink.

``python -m benchmarks.projection``. Both read the same Parquet files, one an epoch, and write Parquet with default
settings and the default trigger. An epoch's time is from its start to that of the next, so that what happens between
two counts too. T12 (:mod:`benchmarks.pipelines`) has Spark's foreachBatch as its peer.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.peers.micro_batches import begun
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet.api.stream import Stream

SIZES = (100_000, 1_000_000)
"""Rows of an epoch."""
EPOCHS = 11
MEASURED = 8
"""The last ones."""
WARM_UP = 1
"""Rounds in which Java compiles."""
ROUNDS = 5
GOAL = 0.8
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
ROW_GROUP = 4 << 20
"""Bytes: a file is read by two tasks, like two partitions of a topic."""

Rows = TypeVar("Rows", DataFrame, Stream)


def feed(session: SparkSession, size: int, home: Path) -> None:
    """Write the input: a file for each epoch."""
    home.mkdir()
    for number in range(EPOCHS):
        ids = session.range(number * size, (number + 1) * size, 1, 1)
        value = F.format_string(
            '{"offer":%d,"load":%d,"price":%d,"text":"%s"}', "id", F.col("id") % 997, F.col("id") % 1000, F.hex("id")
        )
        rows = ids.select(
            F.concat(F.lit("carrier-"), F.col("id") * 7919 % 1000).cast("binary").alias("key"),
            value.cast("binary").alias("value"),
            F.lit("offers").alias("topic"),
            (F.col("id") % 2).cast("int").alias("partition"),
            F.expr("id div 2").alias("offset"),
            F.timestamp_micros("id").alias("timestamp"),
            F.lit(0).alias("timestampType"),
        )
        rows.write.option("parquet.block.size", ROW_GROUP).parquet(str(home / "written"), mode="overwrite")
        (written,) = (home / "written").glob("*.parquet")
        file = written.rename(home / f"{number:03}.parquet")
        # Spark's file source reads the oldest first.
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def shaped(rows: Rows) -> Rows:
    """The pipeline, the same text for both."""
    read = rows.select(
        F.col("key").cast("string").alias("carrier"),
        F.get_json_object(F.col("value").cast("string"), "$.price").cast("long").alias("price"),
        "timestamp",
    )
    return read.where("price >= 300")


def ours(rows: DataFrame, home: Path) -> Any:
    """Exactly once into files."""
    return shaped(sj.stream(rows)).writeStream.format("files").option("path", home / "out")


def theirs(rows: DataFrame, home: Path) -> Any:
    """Exactly once by a log of the files: Spark's own."""
    return shaped(rows).writeStream.format("parquet").option("path", str(home / "out"))


def seconds(session: SparkSession, given: Path, home: Path, writer: Callable[[DataFrame, Path], Any]) -> float:
    """Seconds of a measured epoch, from its start to that of the next."""
    source = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(given))
    query = writer(source, home).option("checkpointLocation", f"{home}/checkpoint").start()
    query.processAllAvailable()
    # A query without a trigger goes on looking for files.
    reports = [progress for progress in query.recentProgress if progress["numInputRows"]]
    query.stop()
    starts = [begun(progress) for progress in reports]
    apart = [(after - before).total_seconds() for before, after in pairwise(starts)]
    return statistics.median(apart[-MEASURED:])


def written(session: SparkSession, home: Path) -> Row:
    """What the output adds up to."""
    columns = ("carrier", "price", "timestamp")
    found = session.read.parquet(str(home / "out")).select(F.xxhash64(*columns).cast("decimal(38)").alias("row"))
    return found.agg(F.count("*"), F.sum("row")).collect()[0]


def compared(session: SparkSession, size: int, directory: Path) -> Ratio:
    """The ratio for epochs of so many rows, without one if the results differ."""
    given = directory / "given"
    feed(session, size, given)
    found: dict[str, list[float]] = {}
    what = f"no windows, {size:,} rows like Kafka's an epoch, into files"
    goal = Goal(f"Spark's file sink, {size:,} rows", GOAL)
    for round_ in range(WARM_UP + ROUNDS):
        outputs = []
        for writer in (ours, theirs):
            home = directory / f"{round_}-{writer.__name__}"
            home.mkdir()
            taken = seconds(session, given, home, writer)
            print(f"{size:9,} {round_:3} {writer.__name__:6} {taken:7.3f} s", file=sys.stderr, flush=True)
            outputs.append(written(session, home))
            if round_ >= WARM_UP:
                found.setdefault(writer.__name__, []).append(taken)
        if outputs[0] != outputs[1]:
            return Ratio("P1", what, goal, wrong=f"{outputs[0]} in ours, {outputs[1]} in theirs")
    return Ratio.of_seconds("P1", what, goal, found["ours"], found["theirs"], size)


def study() -> list[Ratio]:
    """A ratio for each size."""
    session = local_session()
    ratios = []
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="sparkjet-projection-") as directory:
            ratios.append(compared(session, size, Path(directory)))
    session.stop()
    return ratios


if __name__ == "__main__":
    main(study)
