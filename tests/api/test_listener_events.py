"""A listener of Spark's hears of each epoch, with the watermark and the late rows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import StreamingQueryProgress

import sparkjet as sj
from sparkjet.api.spark_progress import event
from sparkjet.engine.progress_report import SinkReport
from tests.monitoring.reports import report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


MICROS = 1_000_000
YEAR_10000 = 253_402_300_800 * MICROS


class Heard(StreamingQueryListener):
    """Keeps the progress of every event."""

    def __init__(self) -> None:
        self.progress: list[Any] = []

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        self.progress.append(event.progress)

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


def arrive(directory: Path, batch: int, seconds: Sequence[int]) -> None:
    file = directory / f"{batch}.json"
    file.write_text("\n".join(json.dumps({"ts": f"2026-03-01 10:00:{second:02}"}) for second in seconds))
    os.utime(file, (batch, batch))


class Raising(Heard):
    """Keeps the progress, and fails all the same."""

    def onQueryProgress(self, event: Any) -> None:
        super().onQueryProgress(event)
        raise ConnectionError("the dashboard is away")


def test_a_listener_hears_the_watermark_and_the_late_rows(spark: SparkSession, tmp_path: Path) -> None:
    arrive(tmp_path, 1, [1, 2, 40])
    arrive(tmp_path, 2, [3, 50, 51])
    source = spark.readStream.schema("ts timestamp").option("maxFilesPerTrigger", 1).json(str(tmp_path))
    heard = Heard()
    spark.streams.addListener(heard)
    try:
        counts = sj.stream(source).withWatermark("ts", "5 seconds").groupBy(F.window("ts", "10 seconds")).count()
        writer = counts.writeStream.format("memory").queryName("heard").trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        # Events are delivered in order by a thread of Spark's: the listener has heard all once this returns.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(heard)
    ours = [progress for progress in heard.progress if progress.sink.description == "sparkjet"]
    assert [progress.batchId for progress in ours] == [0, 1]
    assert {progress.name for progress in ours} == {"heard"}
    assert {str(progress.id) for progress in ours} == {str(query.id)}
    assert [progress.numInputRows for progress in ours] == [3, 3]
    assert [progress.stateOperators[0].customMetrics["watermark"] for progress in ours] == [
        1_772_359_230 * MICROS,
        1_772_359_240 * MICROS,
    ]
    assert [progress.stateOperators[0].numRowsDroppedByWatermark for progress in ours] == [0, 1]
    report = json.loads(ours[1].sink.metrics["sparkjet"])
    assert report["lateRows"] == {"epoch": 1, "total": 1}
    last = query.lastProgress
    assert isinstance(last, StreamingQueryProgress)
    assert report == {key: last[key] for key in report}
    # As the events of Spark's own windows are, beside our keys.
    assert (last.batchId, last.name, last.numInputRows) == (1, "heard", 3)
    assert (str(last.id), str(last.runId)) == (query.id, query.runId)
    assert query.runId == str(ours[1].runId)
    assert last.eventTime == {"watermark": "2026-03-01T10:00:40.000Z"}
    assert last.stateOperators[0].numRowsDroppedByWatermark == 1
    assert [each.sink.numOutputRows for each in query.recentProgress] == [1, 0]
    assert last.sources[0].numInputRows == 3
    assert json.loads(last.sources[0].endOffset) == {"logOffset": 1}
    shown = json.loads(last.json)
    assert (shown["watermark"], shown["sources"][0]["numInputRows"]) == (last["watermark"], 3)
    assert json.loads(last.prettyJson) == shown
    took = max(last.durationMs["triggerExecution"], sum(last["epoch"]["durationMs"].values()))
    assert last.processedRowsPerSecond == pytest.approx(3000 / took)


def test_times_that_python_does_not_know_and_listeners_that_fail_end_no_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of one row in the year 10000, and of metrics that PySpark cannot make a row of; a listener raises each time."""
    times = [-70_000_000_000 * MICROS, -62_198_755_200 * MICROS, YEAR_10000 + 1, 9_000_000_000_000 * MICROS]
    for batch, micros in enumerate(times):
        file = tmp_path / f"{batch}.json"
        file.write_text(json.dumps({"micros": micros}))
        os.utime(file, (batch, batch))
    source = spark.readStream.schema("micros long").option("maxFilesPerTrigger", 1).json(str(tmp_path))
    timed = source.select(F.timestamp_micros("micros").alias("ts")).observe("seen", F.max("ts").alias("newest"))
    heard = Raising()
    spark.streams.addListener(heard)
    try:
        counts = sj.stream(timed).withWatermark("ts", 0).groupBy(F.window("ts", "10 seconds")).count()
        writer = counts.select("count").writeStream.format("memory").queryName("far").trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(heard)
    assert spark.table("far").count() == 3
    ours = [progress for progress in heard.progress if progress.sink.description == "sparkjet"]
    assert [progress.batchId for progress in ours] == [0, 1, 2, 3]
    assert [progress.eventTime["watermark"] for progress in query.recentProgress] == [
        "-0249-10-15T19:33:20.000Z",
        "-0001-01-01T00:00:00.000Z",
        "+10000-01-01T00:00:00.000Z",
        "+287168-08-24T16:00:00.000Z",
    ]
    assert [progress["observedMetrics"]["seen"]["newest"] for progress in query.recentProgress][2:] == [
        "10000-01-01 00:00:00",
        "287168-08-24 16:00:00",
    ]


def test_rows_that_wait_for_their_sink_are_of_their_own_epoch() -> None:
    query: Any = SimpleNamespace(id="query", runId="run", name=None)
    sinks = [SinkReport("results", 7, {"epoch": 1}), SinkReport("results", 2, {"epoch": 2})]
    written = [event(report(epoch, sinks=sinks[:epoch]), query)["sink"]["numOutputRows"] for epoch in (1, 2, 3)]
    assert written == [7, 2, 0]
