"""Nothing grows with the number of epochs: memory, plans, and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkjet as sj
from sparkjet import functions as J
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOUNDED_BY_SPARK = {
    "spark.sql.streaming.minBatchesToRetain": "5",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "0",
}
"""Settings under which Spark's own files stay few, so that ours can be seen to."""


def measure(query: sj.StreamingQuery, spark: SparkSession, home: Path) -> dict[str, int]:
    """Numbers that must not grow."""
    aggregations = query._engine.state.stages.values()
    segments = [segment for aggregation in aggregations for segment in aggregation.operator.segments]
    plans = [segment.partials._jdf.queryExecution().analyzed().toString() for segment in segments]
    numbers = {
        "persisted RDDs": spark.sparkContext._jsc.getPersistentRDDs().size(),
        "segments": len(segments),
        "plan size": sum(map(len, plans)),
    }
    for name, folder in {"store": "ck/snapshots", "spark": "ck/spark", "staging": "out/_sparkjet"}.items():
        files = [path for path in (home / folder).rglob("*") if path.is_file()]
        numbers[f"{name} files"] = len(files)
        numbers[f"{name} bytes"] = sum(path.stat().st_size for path in files)
    return numbers


def grow(spark: SparkSession, home: Path, epochs: int) -> list[dict[str, int]]:
    """Run a query over that many epochs and measure after each."""
    feed = Feed(home / "in")
    for epoch in range(epochs):
        feed.add(*rows([epoch * 10, epoch * 10 + 3], k="a", v=epoch), *rows([epoch * 10 + 7], k=f"k{epoch % 5}", v=1))
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
    result = stream.groupBy(sj.window("ts", "60 seconds", "10 seconds"), "k").agg(J.count().alias("n"), J.sum("v"))
    visits = stream.groupBy(sj.session_window("ts", "25 seconds"), "k").agg(J.count().alias("n"))
    numbers: list[dict[str, int]] = []
    writer = (
        result.writeStream.format("files")
        .option("path", home / "out")
        .option("checkpointLocation", home / "ck")
        .option("statePartitions", 1)
        .trigger(availableNow=True)
    )
    started: list[sj.StreamingQuery] = []

    def look(phase: sj.EpochPhase, epoch: int) -> None:
        if phase is sj.EpochPhase.CLEAN and started and epoch % 3 == 0:
            numbers.append(measure(started[0], spark, home))

    started.append(
        sj.start(writer.onEpochPhase(look), visits.writeStream.format("files").option("path", home / "visits"))
    )
    started[0].awaitTermination()
    assert sj.read_files(str(home / "out")).where("n > 0").count() > epochs
    return numbers


def check_growth(spark: SparkSession, home: Path, epochs: int) -> None:
    """The last third of the epochs stays below the highest numbers of the first two thirds, with some air."""
    kept = {name: spark.conf.get(name) for name in BOUNDED_BY_SPARK}
    for name, value in BOUNDED_BY_SPARK.items():
        spark.conf.set(name, value)
    try:
        numbers = grow(spark, home, epochs)
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


@pytest.mark.crash
def test_thirty_epochs_do_not_grow(spark: SparkSession, tmp_path: Path) -> None:
    check_growth(spark, tmp_path, 30)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_three_hundred_epochs_do_not_grow(spark: SparkSession, tmp_path: Path) -> None:
    check_growth(spark, tmp_path, 300)
