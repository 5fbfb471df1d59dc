"""Progress events: what a ``StreamingQueryListener`` of Spark's hears of an epoch, beside Spark's own events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.engine.progress_report import ProgressReport

SOURCE = "sparkjet"
"""Description of the sink in these events, by which a listener tells them from Spark's; key of the report in them."""
_NEVER = -1


@dataclass
class ListenerEvents:
    """Posts an event to the listeners of a session for each epoch of a query; on the driver.

    Spark's own event of a batch knows neither the watermark nor the late rows. This one has them where Spark's own
    windows report them (``eventTime``, ``stateOperators``), and the whole report in ``sink.metrics``.

    Attributes:
        session: The session that the query runs in.
        query: Spark's query, None until it has started.
    """

    session: SparkSession
    query: SparkQuery | None = None

    def post(self, report: ProgressReport) -> None:
        """Post the event of an epoch; nothing is done while there are no listeners."""
        # Python's manager hides these; each costs one call to the JVM.
        manager: Any = self.session.streams._jsqm  # noqa: SLF001
        if self.query is None or not len(manager.listListeners()):
            return
        streaming: Any = self.session._jvm.org.apache.spark.sql.streaming  # type: ignore[union-attr]
        companion = getattr(getattr(streaming, "StreamingQueryProgress$"), "MODULE$")
        progress = companion.fromJson(json.dumps(event(report, self.query, datetime.now(timezone.utc))))
        manager.postListenerEvent(getattr(streaming, "StreamingQueryListener$QueryProgressEvent")(progress))


def event(report: ProgressReport, query: SparkQuery, now: datetime) -> dict[str, Any]:
    """The progress of an epoch in the form of Spark's ``StreamingQueryProgress``, as JSON."""
    duration = sum(report.epoch.duration_ms.values())
    dropped = report.late_rows.epoch + report.null_timestamps.epoch
    rows = report.accepted_rows + dropped
    rate = rows * 1000 / duration if duration else 0.0
    return {
        "id": query.id,
        "runId": query.runId,
        "name": query.name,
        "timestamp": _iso(now),
        "batchId": _NEVER if report.batch_id is None else report.batch_id,
        "batchDuration": duration,
        "durationMs": {**report.epoch.duration_ms, "triggerExecution": duration},
        "eventTime": {} if report.watermark is None else {"watermark": _iso(_time(report.watermark))},
        "stateOperators": [
            {
                "operatorName": SOURCE,
                "numRowsTotal": report.snapshot.entries,
                "numRowsUpdated": report.accepted_rows,
                "allUpdatesTimeMs": 0,
                "numRowsRemoved": 0,
                "allRemovalsTimeMs": 0,
                "commitTimeMs": report.epoch.duration_ms.get("save", 0),
                "memoryUsedBytes": 0,
                "numRowsDroppedByWatermark": report.late_rows.epoch,
                "numShufflePartitions": 0,
                "numStateStoreInstances": report.snapshot.deltas,
                "customMetrics": {"nullTimestamps": report.null_timestamps.epoch},
            }
        ],
        "sources": [
            {
                "description": SOURCE,
                "startOffset": None,
                "endOffset": None,
                "latestOffset": None,
                "numInputRows": rows,
                "inputRowsPerSecond": rate,
                "processedRowsPerSecond": rate,
                "metrics": {},
            }
        ],
        "sink": {
            "description": SOURCE,
            "numOutputRows": _NEVER,
            "metrics": {SOURCE: msgspec.json.encode(report).decode()},
        },
        "observedMetrics": {},
    }


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, timezone.utc)


def _iso(time: datetime) -> str:
    """A time as Spark's progress writes it."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
