"""Epochs of few rows run in as many tasks as there are cores, however many partitions the state has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.state import tasks
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KEYS, EPOCHS = 40, 12
"""Enough epochs that segments are merged."""


def run(spark: SparkSession, feed: Feed, home: Path, partitions: int) -> tuple[list[str], int]:
    """The results of a query, and the number of their files."""
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    counts = stream.groupBy(sj.window("ts", "30 seconds", "10 seconds"), "k").agg(F.count("*").alias("n"), F.sum("v"))
    writer = counts.writeStream.format("files").option("path", home / "out").option("checkpointLocation", home / "ck")
    writer.option("statePartitions", partitions).trigger(availableNow=True).start().awaitTermination()
    found = sorted(map(repr, sj.read_files(str(home / "out")).collect()))
    return found, len(list((home / "out").rglob("*.parquet")))


@pytest.mark.crash
@pytest.mark.interpreted
def test_files_are_as_few_as_cores_and_results_the_same(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    for epoch in range(EPOCHS):
        feed.add(*(row for key in range(KEYS) for row in rows([epoch * 10 + key % 10], k=f"k{key}", v=key)))
    cores = spark.sparkContext.defaultParallelism
    rows_of_all = spark.read.schema(feed.read(spark).schema).json(str(feed.directory))
    counts = rows_of_all.groupBy(F.window("ts", "30 seconds", "10 seconds"), "k").agg(
        F.count("*").alias("n"), F.sum("v")
    )
    highest = rows_of_all.agg(F.max("ts")).collect()[0][0]
    expected = sorted(map(repr, counts.where(F.col("window.end") <= highest).collect()))
    found, files = run(spark, feed, tmp_path / "many", 4 * cores)
    assert found == expected
    assert len(found) > KEYS
    assert files <= cores * EPOCHS


def test_results_of_many_rows_are_in_a_file_for_each_partition_even_if_their_windows_have_left_the_state(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = 8 * spark.sparkContext.defaultParallelism
    monkeypatch.setattr(tasks, "FEW", 1)
    feed = Feed(tmp_path / "in")
    feed.add(*(row for key in range(10 * partitions) for row in rows([0], k=f"k{key}", v=key)))
    counts = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    tumbling = counts.groupBy(sj.window("ts", "10 seconds"), "k").agg(F.count("*").alias("n"))
    writer = tumbling.writeStream.format("files").option("path", tmp_path / "out").option("closeWindowsAtEnd", True)
    writer = writer.option("checkpointLocation", tmp_path / "ck").option("statePartitions", partitions)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sj.read_files(str(tmp_path / "out")).count() == 10 * partitions
    assert len(list((tmp_path / "out").rglob("*.parquet"))) == partitions
