"""Runs of real queries: what the driver shows of them, and what their records say alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.progress_report import EpochReport, SnapshotReport
from sparkjet.monitoring import DRIVER
from sparkjet.monitoring.recorded import RecordedRun
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.storage.posix_directory import PosixDirectory
from tests.feed import Feed, rows
from tests.monitoring.reports import NOW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.monitoring.history import History


def history_of(query: sj.StreamingQuery) -> History:
    run = DRIVER.get(query.runId)
    assert run is not None
    return run.history


def check_recorded(query: sj.StreamingQuery, home: Path) -> None:
    """What the records say is what the last epoch reported, but for what they do not hold."""
    recorded = RecordedRun(RecordLog(DirectoryStore(PosixDirectory(home / "snapshots"))), "home", NOW)
    assert recorded.look()
    assert not recorded.look()
    assert (recorded.run.query, recorded.run.state) == (query.id, "recorded")
    found, reported = recorded.run.history.newest, history_of(query).newest
    assert found is not None
    assert reported is not None

    def told(report: object) -> dict[str, object]:
        described: dict[str, object] = msgspec.to_builtins(report)
        return {name: each for name, each in described.items() if name not in {"sinks", "acceptedRows"}}

    # Late rows of one epoch need the record before it.
    expected = msgspec.structs.replace(
        reported,
        late_rows=found.late_rows,
        null_timestamps=found.null_timestamps,
        epoch=EpochReport(reported.epoch.number, {}),
        snapshot=SnapshotReport(reported.snapshot.deltas, reported.snapshot.entries, 0),
    )
    assert told(found) == told(expected)
    assert found.late_rows.total == reported.late_rows.total
    assert found.null_timestamps.total == reported.null_timestamps.total


def test_a_run_is_shown_with_its_rows_and_its_records_say_the_same(spark: SparkSession, tmp_path: Path) -> None:
    feed, home = Feed(tmp_path / "in"), tmp_path / "home"
    feed.add(*rows([0, 5, 5], p="a", v=1), *rows([2], p="b", v=10), *rows([None], p="b", v=7))
    feed.add(*rows([100], p="a", v=2), *rows([90], p="b", v=3))
    feed.add(*rows([3, 4], p="a", v=1000), *rows([95], p="b", v=4))
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "10 seconds", by="p", substreams=["a", "b"])
    result = stream.groupBy(sj.window("ts", "20 seconds")).agg(F.sum("v").alias("total"))
    writer = result.writeStream.format("files").option("path", tmp_path / "out").option("checkpointLocation", home)
    query = writer.queryName("shown").trigger(availableNow=True).start()
    query.awaitTermination()
    run = DRIVER.get(query.runId)
    assert run is not None
    assert (run.label, run.state, run.failure, run.query) == ("shown", "ended", None, query.id)
    progress = query.recentProgress
    assert run.history.totals.epochs == len(progress)
    assert run.history.totals.rows_in == 10
    assert run.history.totals.rows_out["results"] == sj.read_files(str(tmp_path / "out")).count()
    assert sum(point.late for point in run.history.points) == 2
    assert sum(point.null_timestamps for point in run.history.points) == 1
    check_recorded(query, home)


def test_several_inputs_have_their_names(spark: SparkSession, tmp_path: Path) -> None:
    feeds, home = [Feed(tmp_path / name) for name in ("left", "right")], tmp_path / "home"
    for feed, at in zip(feeds, (100, 50), strict=True):
        feed.add(*rows([0, at], p="a", v=1))
    left, right = (sj.stream(feed.read(spark)).withWatermark("ts", "10 seconds") for feed in feeds)
    result = left.union(right).groupBy(sj.window("ts", "20 seconds")).agg(F.count("*").alias("n"))
    writer = result.writeStream.format("files").option("path", tmp_path / "out").option("checkpointLocation", home)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    newest = history_of(query).newest
    assert newest is not None
    assert len(newest.substreams) == 2
    check_recorded(query, home)


def test_a_query_that_fails_says_with_what(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([0], p="a", v=1))

    def refuse(*_: object) -> None:
        message = "the table is locked\nand more"
        raise RuntimeError(message)

    writer = sj.stream(feed.read(spark)).writeStream.foreachBatch(refuse)
    query = writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True).start()
    with pytest.raises(sj.SparkjetError):
        query.awaitTermination()
    run = DRIVER.get(query.runId)
    assert run is not None
    assert run.state == "failed"
    assert run.failure is not None
    assert "\n" not in run.failure
