"""A disk that fills up at a phase of an epoch: a clear error, and with room again the query goes on exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.committer import Committer, Retry
from sparkjet.sinks.files import FilesSink
from sparkjet.testing.sink_contract import SCHEMA, transaction
from tests.feed import Feed, rows
from tests.mounts import small_disk
from tests.parameters import mostly_crash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 3


class Query:
    """A query into files and into a function that remembers the last epoch."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self._spark, self._place = spark, place
        self._feed = Feed(place / "in")
        for batch in range(BATCHES):
            self._feed.add(*rows([batch * 10, batch * 10 + 3], k="a", v=batch), *rows([batch * 10 + 7], k="b", v=1))
        self.handed_over: dict[int, list[Any]] = {}

    def run(self, listener: Any = lambda phase, epoch: None) -> None:
        stream = sj.stream(self._feed.read(self._spark)).withWatermark("ts", "0 seconds")
        result = stream.groupBy(sj.window("ts", "10 seconds"), "k").agg(F.count("*").alias("n"), F.sum("v").alias("v"))

        def take(table: DataFrame, epoch: int) -> None:
            self.handed_over.setdefault(epoch, [tuple(row) for row in table.select("k", "n", "v").collect()])

        writer = result.writeStream.format("files").option("path", self._place / "out")
        writer = writer.option("checkpointLocation", self._place / "home").option("statePartitions", 1)
        writer = writer.option("closeWindowsAtEnd", True).trigger(availableNow=True).onEpochPhase(listener)
        sj.start(writer, result.writeStream.foreachBatch(take)).awaitTermination()

    def check(self) -> None:
        expected = sorted((k, n, v) for v in range(BATCHES) for k, n, v in [("a", 2, 2 * v), ("b", 1, 1)])
        found = sj.read_files(str(self._place / "out"))
        plain = self._spark.read.schema(found.schema).parquet(str(self._place / "out"))
        for each in (found, plain):
            assert sorted(tuple(row) for row in each.select("k", "n", "v").collect()) == expected
        assert sorted(row for epoch in self.handed_over.values() for row in epoch) == expected


FULL: list[tuple[str, sj.EpochPhase, type[Exception], str]] = [
    ("home/snapshots/blobs", sj.EpochPhase.ADVANCE, sj.StorageError, "home/snapshots/blobs/"),
    ("home/snapshots/state", sj.EpochPhase.ADVANCE, sj.StorageError, "home/snapshots/state/"),
    ("home/snapshots/outbox", sj.EpochPhase.ADVANCE, sj.StorageError, "home/snapshots/outbox/"),
    ("out", sj.EpochPhase.ADVANCE, sj.StorageError, "out/_sparkjet/"),
    ("home/snapshots/log", sj.EpochPhase.PREPARE, sj.StorageError, "home/snapshots/log/"),
    ("out", sj.EpochPhase.DECIDE, sj.UnsettledError, "out/_sparkjet/"),
    ("home/spark", sj.EpochPhase.CLEAN, sj.StorageError, "home/spark"),
]
"""The place that is full, when, the error, and the text that it has to contain."""


@pytest.mark.crash
def test_a_disk_that_is_full_after_the_decision_loses_and_repeats_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The same as a query into `out` at DECIDE, which tries for a minute before it gives up."""
    out = tmp_path / "out"
    with small_disk(out, 4) as disk:
        sink = FilesSink(out)
        sink.check(spark.createDataFrame([], SCHEMA).schema)
        outputs = Committer({"results": sink}, Retry(patient_attempts=2, first_wait=0.001))
        outputs.create()
        outputs.decided(outputs.prepare("results", spark.createDataFrame([("a", 1)], SCHEMA), transaction(1)))
        disk.fill()
        with pytest.raises(sj.UnsettledError, match=f"No space left on device: '?{out}/_sparkjet/.*othing is lost"):
            outputs.settle(attempts=2)
        disk.free()
        outputs.settle()
        assert outputs.unsettled == []
        for each in (sj.read_files(str(out)), spark.read.schema(SCHEMA).parquet(str(out))):
            assert [tuple(row) for row in each.collect()] == [("a", 1)]


@pytest.mark.parametrize(
    ("full", "phase", "error", "where"),
    mostly_crash(FULL, quick=(), name=lambda each: f"{each[0]}-{each[1].value}", crash=[FULL[0], FULL[4]]),
)
def test_a_full_disk_loses_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path, full: str, phase: sj.EpochPhase, error: type[Exception], where: str
) -> None:
    query = Query(spark, tmp_path)
    (tmp_path / full).parent.mkdir(parents=True, exist_ok=True)
    with small_disk(tmp_path / full, 4) as disk:

        def fill(reached: sj.EpochPhase, epoch: int) -> None:
            if reached is phase and epoch == 2 and not disk.full:
                disk.fill()

        message = f"No space left on device: '?{tmp_path / where}.*othing is lost"
        with pytest.raises(error, match=message):
            query.run(fill)
        # A start that gets no further says the same.
        if full in {"home/snapshots/log", "home/spark"}:
            with pytest.raises(error, match=message):
                query.run()
        disk.free()
        query.run()
        query.check()
        assert not [path for path in (tmp_path / full).rglob(".*.[0-9]*-*") if path.is_file()]
