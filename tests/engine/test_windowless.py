"""Queries without windows: every row once over crashes and restarts, alone, beside others and beside windows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.catalyst.columns import HIDDEN
from sparkjet.testing import CollectingSink
from tests.engine.run import Event, EventDriver
from tests.feed import Feed, rows
from tests.parameters import mostly_crash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream
    from sparkjet.api.stream import Stream

SECOND = 1_000_000


def event(time: int | None, value: int = 1, key: str = "k") -> Event:
    return Event("all", key, (time or 0) * SECOND, value)


def values(driver: EventDriver, output: int = 0) -> list[Any]:
    return sorted(row.value for row in driver.results(output))


def positive(stream: Stream) -> Stream:
    return stream.where("value > 0").select("key", "value")


PHASES = [EpochPhase.AGGREGATE, EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.COMMITTING]


@pytest.mark.parametrize("phase", mostly_crash(PHASES, quick=(), crash={*PHASES} - {EpochPhase.PREPARE}))
def test_every_row_comes_once_over_a_crash(spark: SparkSession, tmp_path: Path, phase: EpochPhase) -> None:
    driver = EventDriver(spark, tmp_path, positive)
    driver.feed([event(5, 1), event(3, 0)])
    with driver.crash(at=phase):
        driver.feed([event(1, 2)])
    driver.restart()
    driver.feed([event(9, 3), event(2, -1)])
    assert values(driver) == [1, 2, 3]
    record = driver.engine.record
    assert (record.stages, record.fingerprint, driver.watermark) == ({}, {"inputs": {}}, None)


def test_it_is_one_pass_without_state_or_hidden_columns(spark: SparkSession, tmp_path: Path) -> None:
    driver = EventDriver(spark, tmp_path, lambda stream: positive(stream.withWatermark("ts", "1 second")))
    assert not driver.plan.persisted
    assert driver.plan.source.columns == ["key", "value"]
    driver.feed([event(5, 1)])
    assert driver.plan.source.columns == ["key", "value"]
    assert list((tmp_path / "snapshots" / "state").glob("*")) == []


def test_an_epoch_without_rows_has_no_transaction(spark: SparkSession, tmp_path: Path) -> None:
    driver = EventDriver(spark, tmp_path, positive)
    driver.feed([event(5, 1)])
    for batch in ([], [event(6, -1)]):
        driver.feed(batch)
        assert driver.engine.record.transactions == []
    assert driver.engine.record.epoch == 3
    driver.advance("1 hour")
    assert driver.engine.record.epoch == 3
    assert values(driver) == [1]


def test_several_outputs_read_one_batch(spark: SparkSession, tmp_path: Path) -> None:
    calls = spark.sparkContext.accumulator(0)

    def noted(value: int) -> int:
        calls.add(1)
        return value

    note = F.udf(noted, "long", useArrow=False)

    def outputs(stream: Stream) -> list[Stream]:
        shared = stream.where("value <> 0").withColumn("value", note("value")).withColumn("luck", F.rand())
        doubled = shared.select(F.explode(F.array("value", "value")).alias("value"), "luck")
        return [shared.withWatermark("ts", "1 second").where("value > 1"), doubled, shared.select("value", "luck")]

    driver = EventDriver(spark, tmp_path, outputs)
    driver.feed([event(1, 1), event(2, 2), event(3, 0)])
    with driver.crash(at=EpochPhase.COMMITTING):
        driver.feed([event(4, 3)])
    driver.restart()
    assert [values(driver, output) for output in range(3)] == [[2, 3], [1, 1, 2, 2, 3, 3], [1, 2, 3]]
    luck = [{(row.value, row.luck) for row in driver.results(output)} for output in range(3)]
    assert luck[0] < luck[1] == luck[2]
    assert calls.value == 3


def beside_windows(stream: Stream) -> list[Stream | WindowedStream]:
    timed = stream.withColumn("ts", F.expr("IF(value < 0, NULL, ts)")).withWatermark("ts", "0 seconds")
    counted = timed.where("value <> 5").groupBy(sj.window("ts", "10 seconds")).agg(F.sum("value").alias("value"))
    return [counted, timed.where("value <> 1").select("value"), counted.lateRows, timed.drop("key")]


@pytest.mark.crash
@pytest.mark.parametrize("overlap", [pytest.param(False, marks=pytest.mark.long), True])
def test_beside_windows_late_rows_and_rows_without_a_time_are_delivered(
    spark: SparkSession, tmp_path: Path, overlap: bool
) -> None:
    driver = EventDriver(spark, tmp_path, beside_windows, overlap=overlap)
    assert driver.plan.persisted
    driver.feed([event(1, 1), event(2, 2), event(3, -3)])
    driver.feed([event(15, 4)])
    with driver.crash(at=EpochPhase.DECIDE):
        driver.feed([event(4, 5), event(5, 6), event(31, 7)])
    driver.restart()
    # With overlap, it may have been the epoch before that crashed.
    driver.feed([])
    # Nothing arrives: no row of the stream, but a window ends.
    driver.close_windows()
    assert values(driver, 0) == [3, 4, 7]
    assert values(driver, 1) == [-3, 2, 4, 5, 6, 7]
    assert values(driver, 2) == [-3, 6]
    assert values(driver, 3) == [-3, 1, 2, 4, 5, 6, 7]
    assert not {*driver.results(3)[0].asDict()} & {*HIDDEN}


@pytest.mark.parametrize("watermark", [pytest.param(None, marks=pytest.mark.long), "1 second"])
@pytest.mark.parametrize("filtered", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_union_has_the_rows_of_both(
    spark: SparkSession, tmp_path: Path, watermark: str | None, filtered: bool
) -> None:
    def united(left: Stream, right: Stream) -> Stream:
        if watermark is not None:
            left, right = left.withWatermark("ts", watermark), right.withWatermark("ts", "5 seconds")
        if filtered:
            right = right.where("value > 10")
        return left.select("value", "ts").union(right.select(F.col("value").alias("v"), "ts")).where("value <> 2")

    driver = EventDriver(spark, tmp_path, united, inputs=2)
    driver.feed([event(1, 1), event(2, 2)], [event(3, 3)])
    driver.feed([], [event(1, 30)])
    assert values(driver) == ([1, 30] if filtered else [1, 3, 30])
    assert driver.plan.source.columns == ["value", "ts"]


def test_one_watermark_after_a_union_of_streams_without(spark: SparkSession, tmp_path: Path) -> None:
    def counted(left: Stream, right: Stream) -> WindowedStream:
        both = left.union(right).withWatermark("ts", "0 seconds")
        return both.groupBy(sj.window("ts", "10 seconds")).agg(F.count("*").alias("value"))

    driver = EventDriver(spark, tmp_path, counted, inputs=2)
    driver.feed([event(1)], [event(2), event(11)])
    assert values(driver) == [2]


def windows(stream: Stream) -> WindowedStream:
    return stream.withWatermark("ts", "0 seconds").groupBy(sj.window("ts", "10 seconds")).count()


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (windows, positive, "stage0: stage: kept → none: refused"),
        (positive, windows, "stage0: stage: none → new: refused"),
    ],
)
def test_windows_cannot_come_or_go(
    spark: SparkSession, tmp_path: Path, before: Callable[..., Any], after: Callable[..., Any], named: str
) -> None:
    EventDriver(spark, tmp_path, before).feed([event(1)])
    with pytest.raises(sj.RecoveryError, match=named):
        EventDriver(spark, tmp_path, after)


def test_filters_and_outputs_may_change_between_two_runs(spark: SparkSession, tmp_path: Path) -> None:
    sink, feed = CollectingSink(), Feed(tmp_path / "in")

    def run(*outputs: tuple[Stream, CollectingSink]) -> None:
        writers = [rows.writeStream.format(to).trigger(availableNow=True) for rows, to in outputs]
        query = sj.start(*writers, checkpointLocation=str(tmp_path / "home"))
        query.awaitTermination()

    feed.add(*rows([1, None], v=1))
    run((sj.stream(feed.read(spark)), sink))
    feed.add(*rows([1], v=2), *rows([1], v=3))
    other = CollectingSink()
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "1 minute")
    run((stream.where("v > 2"), sink), (stream.select("v"), other))
    assert sorted(row.v for row in sink.rows()) == [1, 1, 3]
    assert sorted(row.v for row in other.rows()) == [2, 3]


def test_progress_counts_the_rows_in_and_out_and_has_no_watermark(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, None, 3], v=1), *rows([2], v=0))
    feed.add(*rows([2], v=0))
    # Not "v > 0", which Spark's JSON reader itself applies: such rows are not counted.
    kept = sj.stream(feed.read(spark)).withWatermark("ts", "1 minute").where("abs(v) > 0")
    writer = kept.writeStream.format("files")
    writer.option("checkpointLocation", tmp_path / "home").outputMode("update").trigger(availableNow=True)
    query = writer.start(str(tmp_path / "out"))
    query.awaitTermination()
    epochs = query.recentProgress
    assert [(each["numInputRows"], [sink["rows"] for sink in each["sinks"]]) for each in epochs] == [(4, [3]), (1, [])]
    progress = epochs[0]
    assert progress["acceptedRows"] == 0
    assert (progress["watermark"], progress["substreams"], progress["lateRows"]) == (None, {}, {"epoch": 0, "total": 0})
    found = sj.read_files(str(tmp_path / "out"))
    assert found.count() == 3
    assert found.columns == ["id", "ts", "p", "k", "j", "v"]
