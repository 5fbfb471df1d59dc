"""A query as seen in its records: stopped, or running in another process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.engine.alignment import held_by_name
from sparkjet.engine.progress import known, open_windows, operator_reports, substream_reports
from sparkjet.engine.progress_report import (
    DroppedCount,
    EpochReport,
    ProgressReport,
    SinkReport,
    SnapshotReport,
)
from sparkjet.engine.spark_checkpoint import ends_of
from sparkjet.errors import SparkjetError
from sparkjet.monitoring.runs import Run
from sparkjet.query_log import logger
from sparkjet.time.substream import SubstreamProgress

if TYPE_CHECKING:
    from sparkjet.snapshots.record import Record
    from sparkjet.snapshots.record_log import RecordLog


def report_of(record: Record, before: Record | None = None) -> ProgressReport:
    """The report of a record's epoch, except what records do not hold."""
    late, null_timestamps = _dropped(record, "late"), _dropped(record, "null_timestamps")
    inputs = record.watermarks.inputs.items()
    members = {prefix + name: each for prefix, state in inputs for name, each in state.frontier.members.items()}
    least = min((each.watermark for each in members.values() if not each.idle), default=None)
    tracked = [
        SubstreamProgress(
            prefix + name,
            members[prefix + name].watermark,
            idle=members[prefix + name].idle,
            holds=not members[prefix + name].idle and members[prefix + name].watermark == least,
            last_data_at=each.last_data_at,
            caught_up=each.caught_up,
        )
        for prefix, state in inputs
        for name, each in state.substreams.items()
    ]
    deltas = [delta for stage in record.stages.values() for delta in stage.deltas]
    ends = {} if record.spark is None else ends_of(record.spark)
    held = held_by_name(ends.values(), [each.id for each in tracked])
    earlier = record if before is None else before
    return ProgressReport(
        batch_id=None if record.spark is None else record.spark.batch,
        watermark=known(record.watermarks.coalescer.emitted),
        substreams=substream_reports(tracked, late, null_timestamps, held),
        accepted_rows=0,
        late_rows=_count(late, _dropped(earlier, "late")),
        null_timestamps=_count(null_timestamps, _dropped(earlier, "null_timestamps")),
        withheld_windows=sum(stage.withheld for stage in record.stages.values()),
        epoch=EpochReport(record.epoch, {}),
        snapshot=SnapshotReport(len(deltas), sum(delta.rows for delta in deltas), 0),
        sinks=[SinkReport.of(each.sink, each.handle) for each in record.transactions],
        open_windows=open_windows(record.stages.values()),
        operators=operator_reports(record.stages),
    )


class RecordedRun:
    """Follows the record log of a home, whoever writes it.

    Args:
        log: The record log.
        label: Name of the run, usually the location of its home.
        now: Microseconds since 1970.
        run: The run's identity; by default the label.
    """

    def __init__(self, log: RecordLog, label: str, now: int, run: str | None = None) -> None:
        self._log = log
        self._last: tuple[int, Record] | None = None
        self.run = Run(query="", run=run or label, name=label, started_at=now, recorded=True)

    def look(self) -> bool:
        """Take in the newest record; returns whether it is new.

        An error that keeps it from being read is the run's failure until it can be read again; watching goes on.
        """
        try:
            newest = self._log.newest()
        except (OSError, SparkjetError) as error:
            self.run.fail(error)
            return False
        self.run.failure = self.run.condition = None
        if newest is None or (self._last is not None and newest[0] == self._last[0]):
            return False
        before = None if self._last is None else self._last[1]
        slot, record = newest
        self._last = newest
        self.run.query = record.query
        self.run.history.add(report_of(record, before), record.clock)
        logger.debug("%s: record %d is new", self.run.label, slot)
        return True


def _dropped(record: Record, kind: str) -> dict[str, int]:
    dropped: dict[str, int] = {}
    for stage in record.stages.values():
        for name, rows in getattr(stage, kind).items():
            dropped[name] = dropped.get(name, 0) + rows
    return dropped


def _count(now: dict[str, int], before: dict[str, int]) -> DroppedCount:
    total = sum(now.values())
    return DroppedCount(total - sum(before.values()), total)
