"""Runs of real queries: what the driver shows of them, and what their records say alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.committer import Committer
from sparkjet.engine.progress_report import EpochReport, SinkReport, SnapshotReport
from sparkjet.monitoring import DRIVER, Run
from sparkjet.monitoring.feeding import Feed as Feeding
from sparkjet.monitoring.recorded import RecordedRun
from sparkjet.monitoring.view import unsettled
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import PreparedTransaction
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.storage.posix_directory import PosixDirectory
from tests.feed import Feed, rows
from tests.monitoring.reports import NOW, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.monitoring.history import History


def history_of(query: sj.StreamingQuery) -> History:
    run = DRIVER.get(query.runId)
    assert run is not None
    return run.history


def check_recorded(query: sj.StreamingQuery, home: Path) -> None:
    """A view fed from the records equals the last epoch's report, except for the fields that records lack."""
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

    # Only who runs the query sees what executors hold.
    seen: dict[str, Any] = {"memory_bytes": None, "spilled_bytes": None, "of_limit": None}
    # Late rows of one epoch need the record before it.
    expected = msgspec.structs.replace(
        reported,
        operators={name: msgspec.structs.replace(each, **seen) for name, each in reported.operators.items()},
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
    feed.add(*rows([3, 4], p="a", v=1000), *rows([95], p="b", v=4), *rows([None], p="without", v=1))
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
    assert run.history.totals.rows_in == 11
    assert run.history.totals.rows_out["results"] == sj.read_files(str(tmp_path / "out")).count()
    assert sum(point.late for point in run.history.points) == 2
    assert sum(point.null_timestamps for point in run.history.points) == 2
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


@dataclass
class Progress:
    """Spark's query and its progress: pairs of a batch and the number of its rows."""

    said: list[tuple[int, int]] = field(default_factory=list)

    @property
    def _jsq(self) -> Any:
        texts = [json.dumps({"batchId": batch, "numInputRows": rows}) for batch, rows in self.said]
        progress = [SimpleNamespace(json=lambda text=text: text) for text in texts]
        return SimpleNamespace(recentProgress=lambda: progress, lastProgress=lambda: (progress or [None])[-1])


def test_rows_of_a_batch_count_though_spark_was_idle_before_it() -> None:
    """While nothing arrives Spark reports the next batch without rows, and the clock ends epochs."""
    spark, run = Progress(), Run("query", "run", None, NOW)
    feed = Feeding(run, SimpleNamespace(set=lambda _: None), Committer({}, formats={}), spark)  # type: ignore[arg-type]
    for said in ([(0, 0)], [(0, 7)], [(1, 0), (1, 0)], [(1, 5), (2, 3)], [(3, 0)], [(4, 0)], [(4, 2)]):
        spark.said += said
        feed.post(report())
    spark.said.append((5, 1))
    feed.end(None)
    assert [point.rows_in for point in run.history.points] == [0, 7, 0, 8, 0, 0, 2]
    assert run.history.totals.rows_in == 18


def test_what_a_sink_takes_late_waits_until_then_and_no_longer() -> None:
    """No epoch may follow: the newest record names what has been committed since."""
    run, committer = Run("query", "run", None, NOW), Committer({}, formats={})
    feed = Feeding(run, SimpleNamespace(set=lambda _: None), committer)  # type: ignore[arg-type]
    first, second = (PreparedTransaction("results", {"epoch": epoch}) for epoch in (1, 2))
    sinks = [SinkReport("results", 7, each.handle) for each in (first, second)]
    # Of its own epoch too.
    committer.decided([first])
    feed.post(report(1, sinks=sinks[:1]))
    assert unsettled(run) == 1
    # What is decided next is being committed.
    committer.decided([second])
    assert unsettled(run) == 1
    committer.unsettled.clear()
    feed.post(report(2, sinks=sinks))
    assert unsettled(run) == 0
    committer.decided([second])
    feed.post(report(3, sinks=sinks[1:]))
    feed.end(None)
    committer.unsettled.clear()
    assert unsettled(run) == 1


def test_a_query_that_fails_says_with_what(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([0], p="a", v=1))

    def refuse(*_: object) -> None:
        raise RuntimeError("the table is locked\nand more")

    writer = sj.stream(feed.read(spark)).writeStream.foreachBatch(refuse)
    query = writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True).start()
    with pytest.raises(sj.SparkjetError):
        query.awaitTermination()
    run = DRIVER.get(query.runId)
    assert run is not None
    assert run.state == "failed"
    assert run.failure is not None
    assert "\n" not in run.failure
