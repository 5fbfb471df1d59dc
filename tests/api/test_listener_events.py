"""A listener of Spark's hears of each epoch, with the watermark and the late rows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

import sparkjet as sj

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


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
    assert [progress.eventTime["watermark"] for progress in ours] == [
        "2026-03-01T10:00:30.000Z",
        "2026-03-01T10:00:40.000Z",
    ]
    assert [progress.stateOperators[0].numRowsDroppedByWatermark for progress in ours] == [0, 1]
    report = json.loads(ours[1].sink.metrics["sparkjet"])
    assert report["lateRows"] == {"epoch": 1, "total": 1}
    assert report == {key: query.lastProgress[key] for key in report}
