"""The end of a query that is asked to stop: when it comes, and what Spark and the next run see of it."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import sparkjet as sj
from sparkjet import EpochPhase
from tests.feed import SCHEMA, Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.writer import StreamWriter

PATIENCE = 60.0
"""Seconds after which a test fails that would hang otherwise."""


class Held:
    """A phase of an epoch that lasts until it is released."""

    def __init__(self, phase: EpochPhase, epoch: int = 1) -> None:
        self._at = (phase, epoch)
        self.reached, self.released = threading.Event(), threading.Event()

    def __call__(self, phase: EpochPhase, epoch: int) -> None:
        if (phase, epoch) == self._at:
            self.reached.set()
            assert self.released.wait(PATIENCE)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "in")


@pytest.fixture
def terminated(spark: SparkSession) -> Iterator[Callable[[], None]]:
    """The last line of a job: wait for the end of a query, which raises the error that Spark says it failed with."""

    def wait() -> None:
        assert spark.streams.awaitAnyTermination(int(PATIENCE))

    spark.streams.resetTerminated()
    yield wait
    spark.streams.resetTerminated()


def start(
    spark: SparkSession, feed: Feed, home: Path, listener: Callable[[EpochPhase, int], None], *, overlap: bool = False
) -> sj.StreamingQuery:
    """Count by windows of ten seconds."""
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    writer = stream.groupBy(sj.window("ts", "10 seconds")).count().writeStream.format("files")
    writer.option("path", home / "out").option("checkpointLocation", home / "ck").option("statePartitions", 2)
    return writer.option("overlapEpochs", overlap).onEpochPhase(listener).start()


def finish(spark: SparkSession, feed: Feed, home: Path) -> list[int]:
    """Run to the end of the input and answer all counts."""
    whole = spark.readStream.schema(SCHEMA).json(str(feed.directory))
    stream = sj.stream(whole).withWatermark("ts", "0 seconds")
    writer = stream.groupBy(sj.window("ts", "10 seconds")).count().writeStream.format("files")
    writer.option("path", home / "out").option("checkpointLocation", home / "ck").option("statePartitions", 2)
    writer.trigger(availableNow=True).option("closeWindowsAtEnd", True).start().awaitTermination()
    return sorted(row["count"] for row in sj.read_files(str(home / "out")).collect())


@pytest.mark.parametrize(
    ("timeout", "overlap"),
    [
        pytest.param(0, False, marks=pytest.mark.long),
        (0.1, True),
        pytest.param(0, True, marks=pytest.mark.long),
        pytest.param(0.1, False, marks=pytest.mark.long),
    ],
)
def test_a_stop_whose_time_was_up_comes_without_another_call_or_batch(
    spark: SparkSession, feed: Feed, tmp_path: Path, timeout: float, *, overlap: bool
) -> None:
    feed.add(*rows([1, 2], v=1))
    held = Held(EpochPhase.PREPARE)
    query = start(spark, feed, tmp_path, held, overlap=overlap)
    assert held.reached.wait(PATIENCE)
    with pytest.raises(TimeoutError, match="stops by itself"):
        query.stop(timeout)
    assert query.isActive
    held.released.set()
    assert query.awaitTermination(PATIENCE)
    assert query.exception() is None
    assert [each.id for each in spark.streams.active if each.id == query.id] == []
    query.stop(0)
    assert finish(spark, feed, tmp_path) == [2]


def test_a_second_stop_waits_again(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.add(*rows([1, 2], v=1))
    held = Held(EpochPhase.PREPARE)
    query = start(spark, feed, tmp_path, held)
    assert held.reached.wait(PATIENCE)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            query.stop(0.05)
    held.released.set()
    query.stop()
    assert not query.isActive


# In CI, below queries are stopped at any moment, and what is left is not acknowledged.
@pytest.mark.long
def test_a_batch_that_spark_has_planned_is_left_to_the_next_run(
    spark: SparkSession,
    feed: Feed,
    tmp_path: Path,
    terminated: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Epoch 1 is ending when the stop comes, and Spark hands over the next batch meanwhile."""
    feed.add(*rows([1, 2], v=1))
    held = Held(EpochPhase.PREPARE)
    query = start(spark, feed, tmp_path, held, overlap=True)
    assert held.reached.wait(PATIENCE)
    (inner,) = (each for each in spark.streams.active if each.id == query.id)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    feed.add(*rows([11, 12, 13], v=1))
    (run,) = (tmp_path / "ck" / "spark").iterdir()
    while not (run / "offsets" / "1").exists():
        assert not query.awaitTermination(0.02)
    # Long enough for Spark to hand the batch over, and to have failed were it not taken.
    assert not query.awaitTermination(0.5)
    held.released.set()
    stopping.join(PATIENCE)
    terminated()
    assert inner.exception() is None
    assert query.exception() is None
    assert [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR] == []
    assert (run / "refused").read_text() == "1"
    assert finish(spark, feed, tmp_path) == [2, 3]


@pytest.mark.crash
def test_a_batch_that_is_left_is_not_acknowledged_to_its_source(
    spark: SparkSession, feed: Feed, tmp_path: Path, terminated: Callable[[], None]
) -> None:
    """An epoch of the clock runs when the batch comes; the source deletes what Spark reports as done."""

    def writer() -> StreamWriter:
        whole = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).option("cleanSource", "delete")
        stream = sj.stream(whole.json(str(feed.directory))).withWatermark("ts", "0 seconds")
        writer = stream.groupBy(sj.window("ts", "10 seconds")).count().writeStream.format("files")
        writer.option("path", tmp_path / "out").option("checkpointLocation", tmp_path / "ck")
        writer.outputMode("update").options(earlyResultsPeriod="30 seconds", isEarly=True).clock(clock)
        return writer.option("statePartitions", 2)

    clock = sj.ManualClock(1_700_000_000_000_000)
    feed.add(*rows([1, 2], v=1))
    held = Held(EpochPhase.PREPARE, epoch=2)
    query = writer().onEpochPhase(held).start()
    query.processAllAvailable()
    clock.advance(30_000_000)
    assert held.reached.wait(PATIENCE)
    feed.add(*rows([11, 12, 13], v=1))
    (run,) = (tmp_path / "ck" / "spark").iterdir()
    while not (run / "offsets" / "1").exists():
        assert not query.awaitTermination(0.02)
    with pytest.raises(TimeoutError):
        query.stop(0.3)
    held.released.set()
    query.stop()
    terminated()
    assert query.exception() is None
    assert (run / "refused").read_text() == "1"
    assert (feed.directory / "00001.json").exists()
    writer().trigger(availableNow=True).option("closeWindowsAtEnd", True).start().awaitTermination()
    results = sj.read_files(str(tmp_path / "out")).where("NOT is_early")
    assert sorted(row["count"] for row in results.collect()) == [2, 3]


def test_an_epoch_that_fails_after_sparks_query_has_is_reported_with_it(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    feed.add(*rows([1, 2], v=1))
    held = Held(EpochPhase.PREPARE)

    def fail(phase: EpochPhase, epoch: int) -> None:
        held(phase, epoch)
        if phase is EpochPhase.PREPARE:
            raise OSError("the disk is full")

    query = start(spark, feed, tmp_path, fail, overlap=True)
    assert held.reached.wait(PATIENCE)
    (inner,) = (each for each in spark.streams.active if each.id == query.id)
    (run,) = (tmp_path / "ck" / "spark").iterdir()
    shutil.rmtree(run / "offsets")
    (run / "offsets").touch()
    feed.add(*rows([11], v=1))
    with pytest.raises(StreamingQueryException):
        inner.awaitTermination(int(PATIENCE))
    held.released.set()
    with pytest.raises(OSError, match="the disk is full") as caught:
        query.awaitTermination(PATIENCE)
    assert isinstance(caught.value.__context__, StreamingQueryException)


class BrokenError(Exception):
    """The error of a user's function."""


@pytest.mark.parametrize("overlap", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_failure_is_one_for_spark_too_though_it_comes_between_two_batches(
    spark: SparkSession, feed: Feed, tmp_path: Path, terminated: Callable[[], None], *, overlap: bool
) -> None:
    def fail(phase: EpochPhase, epoch: int) -> None:
        if phase is EpochPhase.PREPARE:
            raise BrokenError("by us")

    feed.add(*rows([1, 12], v=1))
    query = start(spark, feed, tmp_path, fail, overlap=overlap)
    with pytest.raises(BrokenError, match="by us"):
        query.processAllAvailable()
    with pytest.raises(StreamingQueryException, match="BrokenError: by us"):
        terminated()
    with pytest.raises(BrokenError, match="by us"):
        query.awaitTermination(PATIENCE)


@pytest.mark.parametrize("overlap", [False, pytest.param(True, marks=pytest.mark.long)])
def test_an_epoch_that_retires_a_substream_may_fail_with_any_error(
    spark: SparkSession, feed: Feed, tmp_path: Path, terminated: Callable[[], None], *, overlap: bool
) -> None:
    failing = threading.Event()

    def fail(phase: EpochPhase, epoch: int) -> None:
        if failing.is_set() and phase is EpochPhase.PREPARE:
            raise sj.AnalysisError("by us")

    feed.add(*rows([1, 12], v=1))
    query = start(spark, feed, tmp_path, fail, overlap=overlap)
    query.processAllAvailable()
    failing.set()
    with pytest.raises(sj.AnalysisError, match="no substream 'none'"):
        query.retireSubstream("none")
    assert query.exception() is None
    with pytest.raises(sj.AnalysisError, match="by us"):
        query.retireSubstream("all")
    with pytest.raises(sj.AnalysisError, match="by us"):
        query.awaitTermination(PATIENCE)
    with pytest.raises(StreamingQueryException, match="by us"):
        terminated()


def stops(spark: SparkSession, feed: Feed, home: Path, count: int, terminated: Callable[[], None]) -> None:
    """Stop a query that always has another batch to read, each time a little later."""
    for number in range(count):
        feed.add(*rows([number * 20], v=1))
        feed.add(*rows([number * 20 + 10], v=1))
        begun = threading.Event()
        query = start(spark, feed, home, lambda phase, epoch, begun=begun: begun.set())  # type: ignore[misc]
        assert begun.wait(PATIENCE)
        # No condition is waited for: it is the moment that varies.
        query.awaitTermination((number % 20) * 0.03)
        query.stop()
        terminated()
        assert query.exception() is None
        spark.streams.resetTerminated()
    assert finish(spark, feed, home) == [1] * (2 * count)


@pytest.mark.crash
def test_a_stop_at_any_moment_is_not_a_failure(
    spark: SparkSession, feed: Feed, tmp_path: Path, terminated: Callable[[], None]
) -> None:
    stops(spark, feed, tmp_path, 6, terminated)


@pytest.mark.long
def test_two_hundred_stops_and_no_failure(
    spark: SparkSession, feed: Feed, tmp_path: Path, terminated: Callable[[], None]
) -> None:
    stops(spark, feed, tmp_path, 200, terminated)
