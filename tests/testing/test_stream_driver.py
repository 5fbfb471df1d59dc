"""The driver for tests of queries: what it feeds, what it lets happen, and what it refuses."""

from __future__ import annotations

import gc
import threading
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.sinks import Guarantee, OutboxSink
from sparkjet.snapshots import DirectoryStore
from sparkjet.testing import CollectingSink, StreamDriver
from tests.parameters import mostly_crash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.grouped import LateStream, WindowedStream

SCHEMA = "ts timestamp, k string, v long"


def at(second: int) -> datetime:
    """A second of a minute."""
    return datetime(2026, 1, 1, 12, 0, second)


def sums(stream: sj.Stream) -> WindowedStream:
    """Sums of ten seconds by key, each key a substream."""
    marked = stream.withWatermark("ts", "2 seconds", by="k", substreams=["a", "b"], idleTimeout="1 minute")
    return marked.groupBy(sj.window("ts", "10 seconds"), "k").agg(F.sum("v").alias("n"))


def found(driver: StreamDriver, output: int = 0) -> list[tuple[str, int]]:
    """Keys and sums that were committed."""
    return [(row["k"], row["n"]) for row in driver.results(output)]


def test_rows_may_be_written_in_several_ways(spark: SparkSession) -> None:
    driver = StreamDriver(spark, sums, SCHEMA)
    assert driver.watermark is None
    driver.process(
        [(at(1), "a", 1), ["2026-01-01 12:00:02", "a", 2], {"ts": at(3), "k": "b", "v": 3}, (at(4), "b", None)]
    )
    assert (driver.watermark, driver.results()) == (at(0), [])
    driver.process([(at(14), "a", 4), (at(15), "b", 5)])
    assert driver.watermark == at(10)
    assert sorted(found(driver)) == [("a", 3), ("b", 3)]
    assert driver.results()[0].window == (at(0), at(10))
    driver.close_windows()
    assert sorted(found(driver)) == [("a", 3), ("a", 4), ("b", 3), ("b", 5)]


# In CI, the page of the guide lets it pass, and tests of quiet streams do.
@pytest.mark.long
def test_time_passes_when_the_test_lets_it(spark: SparkSession) -> None:
    driver = StreamDriver(spark, sums, SCHEMA)
    driver.process([(at(1), "a", 1), (at(14), "a", 2)])
    driver.advance("59 seconds")
    assert driver.results() == []
    driver.advance("1 second")
    driver.process([(at(15), "a", 3)])
    assert found(driver) == [("a", 1)]


# In CI, `engine/test_quiet_streams.py` retires one.
@pytest.mark.long
def test_a_substream_can_be_retired(spark: SparkSession) -> None:
    driver = StreamDriver(spark, sums, SCHEMA)
    driver.process([(at(1), "a", 1), (at(14), "a", 2)])
    with pytest.raises(sj.AnalysisError, match="bb"):
        driver.retire_substream("bb")
    driver.retire_substream("b")
    assert found(driver) == [("a", 1)]


def test_an_epoch_that_fails_ends_the_query_whatever_it_fails_with(spark: SparkSession) -> None:
    def fail(phase: EpochPhase, epoch: int) -> None:
        if phase is EpochPhase.PREPARE:
            raise sj.AnalysisError("by us")

    driver = StreamDriver(spark, sums, SCHEMA, onEpochPhase=fail)
    with pytest.raises(sj.AnalysisError, match="by us"):
        driver.process([(at(1), "a", 1), (at(14), "b", 2)])
    with pytest.raises(sj.AnalysisError, match=r"Call restart\(\) first"):
        driver.advance("1 second")


@pytest.mark.parametrize(
    "phase",
    # Otherwise the engine crashes, as at each phase in `crash/farmed/test_steps.py`; here it is to be at the right one.
    mostly_crash(
        EpochPhase,
        quick={EpochPhase.COMMIT},
        name=lambda phase: phase.value,
        crash=(),
    ),
)
def test_a_crash_neither_loses_nor_repeats_rows(spark: SparkSession, phase: EpochPhase) -> None:
    driver = StreamDriver(spark, sums, SCHEMA)
    driver.process([(at(1), "a", 1), (at(2), "b", 2)])
    with driver.crash(at=phase):
        driver.process([(at(14), "a", 3), (at(14), "b", 4)])
        pytest.fail("it did not crash")
    decided = driver.engine.record.epoch == 2
    assert decided == (phase in {EpochPhase.DECIDE, EpochPhase.COMMITTING, EpochPhase.COMMIT, EpochPhase.CLEAN})
    driver.restart()
    assert driver.engine.record.takeover == 1
    # What was decided has been published by the start, what was not has been rolled back and comes again.
    assert sorted(found(driver)) == ([("a", 1), ("b", 2)] if decided else [])
    driver.process([(at(25), "a", 5), (at(25), "b", 6)])
    assert sorted(found(driver)) == [("a", 1), ("a", 3), ("b", 2), ("b", 4)]
    (sink,) = driver.sinks
    assert isinstance(sink, CollectingSink)
    assert sink.prepared == {}


# In CI, `engine/test_overlap.py` has ends that fail.
@pytest.mark.long
def test_an_overlapping_end_crashes_too(spark: SparkSession) -> None:
    driver = StreamDriver(spark, sums, SCHEMA, overlapEpochs=True, statePartitions=1)
    with driver.crash(at=EpochPhase.PREPARE):
        driver.process([(at(1), "a", 1), (at(2), "b", 2)])
    driver.restart()
    driver.process([(at(14), "a", 3), (at(14), "b", 4)])
    assert sorted(found(driver)) == [("a", 1), ("b", 2)]


def test_a_crash_leaves_the_end_of_the_epoch_before_alone(spark: SparkSession) -> None:
    """That epoch would come once more, in one with what is sent now."""
    sent = threading.Event()

    def hold(phase: EpochPhase, epoch: int) -> None:
        if (phase, epoch) == (EpochPhase.SAVE, 1):
            assert sent.wait(60)
        if (phase, epoch) == (EpochPhase.BEGIN, 2):
            sent.set()

    driver = StreamDriver(
        spark,
        lambda stream: stream.groupBy("k").count(),
        SCHEMA,
        outputMode="update",
        overlapEpochs=True,
        statePartitions=1,
        onEpochPhase=hold,
    )
    driver.process([(at(1), "a", 1)])
    with driver.crash(at=EpochPhase.PREPARE):
        driver.process([(at(2), "a", 2)])
    driver.restart()
    driver.process()
    assert [row["count"] for row in driver.results()] == [1, 2]
    # An epoch that comes once more may crash once more.
    with driver.crash(at=EpochPhase.PREPARE):
        driver.process([(at(3), "a", 3)])
    driver.restart()
    with driver.crash(at=EpochPhase.PREPARE):
        driver.process()


def test_a_crash_that_does_not_come_is_an_error(spark: SparkSession) -> None:
    driver = StreamDriver(spark, sums, SCHEMA)
    with (
        pytest.raises(AssertionError, match="no epoch came to the end of EpochPhase"),
        driver.crash(at=EpochPhase.COMMITTING),
    ):
        # Nothing closes, so nothing is committed.
        driver.process([(at(1), "a", 1)])
    driver.process([(at(14), "a", 3), (at(14), "b", 4)])
    assert found(driver) == [("a", 1)]


def test_what_has_crashed_failed_or_stopped_must_be_restarted(spark: SparkSession) -> None:
    def fail(phase: EpochPhase, epoch: int) -> None:
        if (phase, epoch) == (EpochPhase.SAVE, 1):
            raise OSError("the disk is full")

    driver = StreamDriver(spark, sums, SCHEMA, onEpochPhase=fail)
    with pytest.raises(OSError, match="the disk is full"):
        driver.process([(at(1), "a", 1)])
    for method in (driver.process, driver.close_windows, driver.stop):
        with pytest.raises(sj.AnalysisError, match=rf"{method.__name__}: .*restart\(\) first"):
            method()
    with pytest.raises(sj.AnalysisError, match="advance"):
        driver.advance("1 second")


@pytest.mark.crash
def test_it_stops_and_goes_on_in_another_driver_of_the_same_home(spark: SparkSession, tmp_path: Path) -> None:
    first = StreamDriver(spark, sums, SCHEMA, directory=tmp_path)
    first.process([(at(1), "a", 1), (at(2), "b", 2)])
    first.stop()
    assert first.engine.record.transactions == []
    second = StreamDriver(spark, sums, SCHEMA, directory=tmp_path)
    second.process([(at(14), "a", 3), (at(14), "b", 4)])
    assert sorted(found(second)) == [("a", 1), ("b", 2)]


def test_late_rows_are_counted_and_delivered_where_they_are_wanted(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[WindowedStream | LateStream]:
        result = sums(stream)
        return [result, result.lateRows]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(at(14), "a", 3), (at(14), "b", 4)])
    driver.process([(at(9), "a", 1), (at(10), "b", 2)])
    assert driver.late_counts == {"a": 1}
    assert [(row.k, row.v, row["_reason"]) for row in driver.late_rows()] == [("a", 1, "late")]
    with pytest.raises(sj.AnalysisError, match=r"return \[result, result.lateRows\]"):
        StreamDriver(spark, sums, SCHEMA).late_rows()


@pytest.mark.crash
def test_each_input_of_a_union_has_its_own_rows(spark: SparkSession) -> None:
    def query(clicks: sj.Stream, views: sj.Stream) -> WindowedStream:
        left = clicks.alias("clicks").withColumn("k", F.upper("k")).withWatermark("ts", "2 seconds")
        right = views.alias("views").withWatermark("ts", "5 seconds").where("v > 0")
        return left.union(right).groupBy(sj.window("ts", "10 seconds")).agg(F.collect_list("k").alias("ks"))

    driver = StreamDriver(spark, query, [SCHEMA, SCHEMA])
    driver.process([(at(1), "a", 1)], [(at(2), "b", 1), (at(3), "c", 0)])
    driver.process([(at(20), "a", 1)])
    assert driver.results() == []
    driver.process([], [(at(20), "b", 1)])
    assert [row.ks for row in driver.results()] == [["A", "b"]]
    with pytest.raises(sj.AnalysisError, match="rows of 3 inputs, but the query has 2"):
        driver.process([], [], [])


def test_rows_that_do_not_fit_are_refused_before_anything_is_sent(spark: SparkSession) -> None:
    driver = StreamDriver(spark, sums, SCHEMA)
    for row, message in [
        ((at(1), "a"), "lacks 'v'; give None"),
        ((at(1), "a", 1, 2), "does not have the columns ts, k, v"),
        ({"ts": at(1), "key": "a"}, "does not have the columns"),
        ("abc", "does not have the columns"),
    ]:
        with pytest.raises(sj.AnalysisError, match=message):
            driver.process([(at(1), "a", 1), row])
    driver.process([(at(14), "a", 3), (at(14), "b", 4)])
    driver.close_windows()
    assert sorted(found(driver)) == [("a", 3), ("b", 4)]


def test_options_have_the_names_of_the_writers(spark: SparkSession) -> None:
    driver = StreamDriver(spark, sums, SCHEMA, outputMode="update", isEarly=True, processingGuarantee="at-least-once")
    driver.process([(at(1), "a", 1)])
    assert [(row.k, row.n, row.is_early) for row in driver.results()] == [("a", 1, True)]
    for name, value, message in [
        ("overlap", True, 'did you mean "overlapEpochs"'),
        ("processingGuarantee", "once", "of exactly-once, at-least-once"),
        ("statePartitions", 0, "positive whole number"),
        ("outputMode", "final", 'there is no mode "final"'),
        ("earlyResultsPeriod", "1 second", 'need outputMode\\("update"\\)'),
    ]:
        with pytest.raises(sj.AnalysisError, match=message):
            StreamDriver(spark, sums, SCHEMA, **{name: value})  # type: ignore[arg-type]


class Notes(OutboxSink):
    """A sink of a user's own, with an outbox."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    def publish(self, rows: DataFrame, epoch: int) -> None:
        self.seen += [(epoch, row.n) for row in rows.collect()]


def test_the_users_sinks_and_stores_are_used(spark: SparkSession, tmp_path: Path) -> None:
    sink = Notes()
    driver = StreamDriver(spark, sums, SCHEMA, sinks=[sink], store=DirectoryStore(tmp_path / "elsewhere"))
    driver.process([(at(1), "a", 1), (at(14), "a", 3), (at(14), "b", 4)])
    assert sink.seen == [(1, 1)]
    assert list((tmp_path / "elsewhere" / "log").iterdir()) != []
    with pytest.raises(sj.AnalysisError, match="output 0 goes into a Notes"):
        driver.results()
    with pytest.raises(sj.AnalysisError, match="2 sinks for 1 outputs"):
        StreamDriver(spark, sums, SCHEMA, sinks=[sink, Notes()])


def test_a_query_that_returns_something_else_is_refused(spark: SparkSession) -> None:
    with pytest.raises(sj.AnalysisError, match=r"the query returned a GroupedStream\. Return what groupBy"):
        StreamDriver(
            spark,
            lambda stream: stream.withWatermark("ts", 0).groupBy(sj.window("ts", "1 minute")),  # type: ignore[arg-type, return-value]
            SCHEMA,
        )


def test_its_temporary_home_goes_with_it(spark: SparkSession) -> None:
    driver = StreamDriver(spark, sums, SCHEMA)
    home = driver.checkpoint.directory.parent.parent
    assert home.is_dir()
    del driver
    gc.collect()
    assert not home.exists()
