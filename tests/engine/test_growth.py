"""Nothing grows with the number of epochs: memory, plans, and files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pandas as pd
import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import sparkjet as sj
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.writer import StreamWriter

Query: TypeAlias = "Callable[[SparkSession, Feed], list[StreamWriter]]"
TIMEOUT = GroupStateTimeout.EventTimeTimeout
BOUNDED_BY_SPARK = {
    "spark.sql.streaming.minBatchesToRetain": "5",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "0",
}
"""Settings under which Spark's own files stay few, so that ours can be seen to."""


def measure(query: sj.StreamingQuery, spark: SparkSession, home: Path) -> dict[str, int]:
    """Numbers that must not grow."""
    stages = query._engine.state.stages.values()
    segments = [segment for stage in stages for segment in stage.operator.segments]
    plans = [segment.partials._jdf.queryExecution().analyzed().toString() for segment in segments]
    numbers = {
        "persisted RDDs": spark.sparkContext._jsc.getPersistentRDDs().size(),
        "segments": len(segments),
        "plan size": sum(map(len, plans)),
        "kept plans": sum(len(stage.kept._kept) for stage in stages),
        "threads": threading.active_count(),
        "connections": len(spark.sparkContext._gateway._gateway_client.deque),
    }
    for name, folder in {"store": "ck/snapshots", "spark": "ck/spark", "staging": "out/_sparkjet"}.items():
        files = [path for path in (home / folder).rglob("*") if path.is_file()]
        numbers[f"{name} files"] = len(files)
        numbers[f"{name} bytes"] = sum(path.stat().st_size for path in files)
    return numbers


def windows(spark: SparkSession, feed: Feed) -> list[StreamWriter]:
    """Sliding windows and sessions; the first writer is of files."""
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
    result = stream.groupBy(sj.window("ts", "60 seconds", "10 seconds"), "k").agg(F.count("*").alias("n"), F.sum("v"))
    visits = stream.groupBy(sj.session_window("ts", "25 seconds"), "k").agg(F.count("*").alias("n"))
    return [result.writeStream.format("files"), visits.writeStream.format("noop")]


def keys(spark: SparkSession, feed: Feed) -> list[StreamWriter]:
    """Operators that keep rows by key, forever or until the watermark."""
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
    duplicates = stream.dropDuplicatesWithinWatermark(["k"]).select("k", F.lit(1).alias("n"))
    sums = stream.groupBy("k").agg(F.sum("v").alias("s"))
    counts = stream.groupBy("k").applyInPandasWithState(counted, "k string, n long", "n long", "append", TIMEOUT)
    return [
        duplicates.writeStream.format("files"),
        sums.writeStream.outputMode("update").format("noop"),
        counts.writeStream.format("noop"),
    ]


def joins(spark: SparkSession, feed: Feed) -> list[StreamWriter]:
    """An interval join of two streams."""
    left, right = (
        sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds").alias(name) for name in ("left", "right")
    )
    near = F.expr("left.k = right.k AND right.ts BETWEEN left.ts AND left.ts + INTERVAL 6 SECONDS")
    return [left.join(right, near).select("left.k", F.lit(1).alias("n")).writeStream.format("files")]


def counted(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Count a key's rows until it has been silent."""
    number = state.get[0] if state.exists else 0
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "n": [number]})
        return
    last = 0
    for frame in frames:
        number, last = number + len(frame), max(last, int(frame["ts"].max().timestamp() * 1000))
    state.update((number,))
    state.setTimeoutTimestamp(last + 20_000)


def grow(spark: SparkSession, home: Path, epochs: int, query: Query) -> list[dict[str, int]]:
    """Run a query over that many epochs and measure after each third one."""
    feed = Feed(home / "in")
    for epoch in range(epochs):
        feed.add(*rows([epoch * 10, epoch * 10 + 3], k="a", v=epoch), *rows([epoch * 10 + 7], k=f"k{epoch % 5}", v=1))
    numbers: list[dict[str, int]] = []
    started: list[sj.StreamingQuery] = []

    def look(phase: sj.EpochPhase, epoch: int) -> None:
        if phase is sj.EpochPhase.CLEAN and started and epoch % 3 == 0:
            numbers.append(measure(started[0], spark, home))

    writer, *others = query(spark, feed)
    writer.option("path", home / "out").option("checkpointLocation", home / "ck").option("statePartitions", 1)
    started.append(sj.start(writer.trigger(availableNow=True).onEpochPhase(look), *others))
    started[0].awaitTermination()
    assert sj.read_files(str(home / "out")).where("n > 0").count() > epochs / 2
    return numbers


QUERIES = (windows, keys, joins)
"""Every operator that keeps state is in one of them."""


def check_growth(spark: SparkSession, home: Path, epochs: int, query: Query) -> None:
    """The last third of the epochs stays below the highest numbers of the first two thirds, with some air."""
    kept = {name: spark.conf.get(name) for name in BOUNDED_BY_SPARK}
    for name, value in BOUNDED_BY_SPARK.items():
        spark.conf.set(name, value)
    try:
        numbers = grow(spark, home, epochs, query)
    finally:
        for name, value in kept.items():
            spark.conf.set(name, value)
    print(numbers[0], numbers[len(numbers) // 2], numbers[-1])  # noqa: T201 - figures for the closing note
    split = 2 * len(numbers) // 3
    for name in numbers[0]:
        if name in {"staging bytes", "spark bytes"}:
            continue  # the manifest and the file source's log list every file there is
        before, after = (max(each[name] for each in part) for part in (numbers[:split], numbers[split:]))
        assert after <= before * 1.25 + 2, name


# In CI queries leave nothing when they end (`test_ended_queries.py`).
@pytest.mark.long
@pytest.mark.parametrize("query", QUERIES)
def test_two_dozen_epochs_do_not_grow(spark: SparkSession, tmp_path: Path, query: Query) -> None:
    check_growth(spark, tmp_path, 24, query)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("query", QUERIES)
def test_three_hundred_epochs_do_not_grow(spark: SparkSession, tmp_path: Path, query: Query) -> None:
    check_growth(spark, tmp_path, 300, query)
