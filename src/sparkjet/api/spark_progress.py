"""The progress of an epoch in Spark's form, ``StreamingQueryProgress``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryProgress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.engine.progress_report import ProgressReport

SOURCE = "sparkjet"
"""Description of the sink in events, by which a listener distinguishes them from Spark's; key of the report in them."""
_NEVER = -1
_OFFSETS = "startOffset", "endOffset", "latestOffset"
_CYCLE = timedelta(days=146_097)
"""400 years, after which the calendar repeats."""
_IN_CYCLE = datetime(2000, 1, 1, tzinfo=timezone.utc)
_FOUR_DIGITS = 9999
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def progress_of(
    query: SparkQuery, batches: Iterable[Mapping[str, Any]], reports: Iterable[ProgressReport]
) -> list[StreamingQueryProgress]:
    """The progress of epochs, oldest first: Spark's keys in Spark's formats, and those of the reports.

    Args:
        query: Spark's query.
        batches: Spark's progress of its last batches, as JSON.
        reports: The reports of the epochs.
    """
    by_batch = {entry["batchId"]: entry for entry in batches}
    return [_progress(report, by_batch.get(report.batch_id, {}), query) for report in reports]


def _progress(report: ProgressReport, batch: Mapping[str, Any], query: SparkQuery) -> StreamingQueryProgress:
    ours = event(report, query)
    found = {**ours, **batch, "stateOperators": ours["stateOperators"]}
    if report.watermark is not None:
        found["eventTime"] = {**found["eventTime"], "watermark": iso(report.watermark)}
    found["sink"] = {**found["sink"], "numOutputRows": ours["sink"]["numOutputRows"]}
    if batch:
        # Spark's own value is for the time that its batch took, which may end before the epoch does.
        took = max(batch.get("durationMs", {}).get("triggerExecution", 0), ours["batchDuration"])
        found["processedRowsPerSecond"] = _rate(batch.get("numInputRows", 0), took)
    # Before Spark 4.2, PySpark would write them as Python does, not as JSON.
    sources = [{**each, **{name: _text(each.get(name)) for name in _OFFSETS}} for each in found["sources"]]
    progress = StreamingQueryProgress.fromJson({**found, "sources": sources})
    progress.update(report.as_dict())
    progress._jdict = {**found, **report.as_dict()}  # noqa: SLF001 - what .json shows
    return progress


def event(report: ProgressReport, query: SparkQuery) -> dict[str, Any]:
    """The progress of an epoch in Spark's form, as JSON, for events.

    It has no watermark where Spark has it: for Spark itself the query has none, so its own events have none either, and
    its page of the query fails if only some of the history have one.
    """
    duration = sum(report.epoch.duration_ms.values())
    dropped = report.late_rows.epoch + report.null_timestamps.epoch
    rows = report.accepted_rows + dropped
    metrics = {"nullTimestamps": report.null_timestamps.epoch}
    if report.watermark is not None:
        metrics["watermark"] = report.watermark
    return {
        "id": query.id,
        "runId": query.runId,
        "name": query.name,
        "timestamp": iso(report.epoch.ended),
        "batchId": _batch(report),
        "batchDuration": duration,
        "durationMs": {**report.epoch.duration_ms, "triggerExecution": duration},
        "eventTime": {},
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
                "customMetrics": metrics,
            }
        ],
        "sources": [
            {
                "description": SOURCE,
                "startOffset": None,
                "endOffset": None,
                "latestOffset": None,
                "numInputRows": rows,
                "inputRowsPerSecond": _rate(rows, duration),
                "processedRowsPerSecond": _rate(rows, duration),
                "metrics": {},
            }
        ],
        "sink": {
            "description": SOURCE,
            "numOutputRows": _written(report),
            "metrics": {SOURCE: msgspec.json.encode(report).decode()},
        },
        "numInputRows": rows,
        "inputRowsPerSecond": _rate(rows, duration),
        "processedRowsPerSecond": _rate(rows, duration),
        "observedMetrics": {},
    }


def _text(offset: object) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)


def _batch(report: ProgressReport) -> int:
    return _NEVER if report.batch_id is None else report.batch_id


def _rate(rows: int, milliseconds: int) -> float:
    return rows * 1000 / milliseconds if milliseconds else 0.0


def _written(report: ProgressReport) -> int:
    """The number of rows in the epoch's outputs, -1 if a sink does not count them."""
    number = report.epoch.number
    # Not those of earlier epochs that are not committed yet: their rows were counted in those epochs.
    counts = [each.rows for each in report.sinks if each.epoch(number) == number]
    return _NEVER if any(count is None for count in counts) else sum(count or 0 for count in counts)


def as_json(report: ProgressReport, query: SparkQuery) -> str:
    """The event of an epoch."""
    return json.dumps(event(report, query))


def iso(microseconds: int) -> str:
    """A time as Spark's progress writes it; years with more than four digits, or below 0, have a sign.

    >>> iso(1_700_000_000_123_456), iso(253_402_300_800_000_000), iso(-62_198_755_200_000_000)
    ('2023-11-14T22:13:20.123Z', '+10000-01-01T00:00:00.000Z', '-0001-01-01T00:00:00.000Z')
    """
    cycles, rest = divmod(timedelta(microseconds=microseconds) - (_IN_CYCLE - _EPOCH), _CYCLE)
    found = _IN_CYCLE + rest
    year = found.year + 400 * cycles
    shown = f"{year:04}" if 0 <= year <= _FOUR_DIGITS else f"{year:+05}"
    return f"{shown}-{found:%m-%dT%H:%M:%S}.{found.microsecond // 1000:03}Z"
