"""Progress events: what a ``StreamingQueryListener`` of Spark's hears of an epoch, beside Spark's own events."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.engine.progress_report import ProgressReport

logger = logging.getLogger("sparkjet")

SOURCE = "sparkjet"
"""Description of the sink in these events, by which a listener tells them from Spark's; key of the report in them."""
_NEVER = -1
_CYCLE = timedelta(days=146_097)
"""400 years, after which the calendar repeats."""
_IN_CYCLE = datetime(2000, 1, 1, tzinfo=timezone.utc)
_FOUR_DIGITS = 9999
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


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
        """Post the event of an epoch; nothing is done while there are no listeners.

        The epoch has ended: an event that cannot be posted is logged, as Spark's listener bus does with failures.
        """
        try:
            self._post(report)
        except Exception as error:  # noqa: BLE001 - whatever it is
            logger.warning("epoch %d: Spark's listeners do not hear of it: %s", report.epoch.number, error)

    def _post(self, report: ProgressReport) -> None:
        # Python's manager hides these; each costs one call to the JVM.
        manager: Any = self.session.streams._jsqm  # noqa: SLF001
        if self.query is None or not len(manager.listListeners()):
            return
        streaming: Any = self.session._jvm.org.apache.spark.sql.streaming  # type: ignore[union-attr]
        companion = getattr(getattr(streaming, "StreamingQueryProgress$"), "MODULE$")
        progress = companion.fromJson(json.dumps(event(report, self.query, time.time_ns() // 1000)))
        manager.postListenerEvent(getattr(streaming, "StreamingQueryListener$QueryProgressEvent")(progress))


def event(report: ProgressReport, query: SparkQuery, now: int) -> dict[str, Any]:
    """The progress of an epoch in the form of Spark's ``StreamingQueryProgress``, as JSON; ``now`` in microseconds."""
    duration = sum(report.epoch.duration_ms.values())
    dropped = report.late_rows.epoch + report.null_timestamps.epoch
    rows = report.accepted_rows + dropped
    rate = rows * 1000 / duration if duration else 0.0
    return {
        "id": query.id,
        "runId": query.runId,
        "name": query.name,
        "timestamp": iso(now),
        "batchId": _NEVER if report.batch_id is None else report.batch_id,
        "batchDuration": duration,
        "durationMs": {**report.epoch.duration_ms, "triggerExecution": duration},
        "eventTime": {} if report.watermark is None else {"watermark": iso(report.watermark)},
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


def iso(microseconds: int) -> str:
    """A time as Spark's progress writes it; years that have more than four digits, or are below 0, with their sign.

    >>> iso(1_700_000_000_123_456), iso(253_402_300_800_000_000), iso(-62_198_755_200_000_000)
    ('2023-11-14T22:13:20.123Z', '+10000-01-01T00:00:00.000Z', '-0001-01-01T00:00:00.000Z')
    """
    cycles, rest = divmod(timedelta(microseconds=microseconds) - (_IN_CYCLE - _EPOCH), _CYCLE)
    found = _IN_CYCLE + rest
    year = found.year + 400 * cycles
    shown = f"{year:04}" if 0 <= year <= _FOUR_DIGITS else f"{year:+05}"
    return f"{shown}-{found:%m-%dT%H:%M:%S}.{found.microsecond // 1000:03}Z"
