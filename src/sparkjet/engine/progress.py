"""The progress of an epoch: its counts and the durations of its phases."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from sparkjet.engine.progress_report import (
    DroppedCount,
    EpochReport,
    OperatorReport,
    ProgressReport,
    SinkReport,
    SnapshotReport,
    SubstreamReport,
)
from sparkjet.query_log import logger, within
from sparkjet.snapshots.record import SlidingSettings
from sparkjet.time import MIN, WindowGrid

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.engine.alignment import HeldBack
    from sparkjet.engine.arrival import Arrival
    from sparkjet.engine.phases import EpochPhase
    from sparkjet.engine.stage_state import StageState
    from sparkjet.engine.state import QueryState
    from sparkjet.plan.diverting import Divert
    from sparkjet.snapshots.record import Record, SavedStage
    from sparkjet.time.substream import SubstreamProgress


@dataclass
class EpochProgress:
    """Numbers of one epoch; durations in seconds by phase, failed rows by the point at which they are diverted."""

    epoch: int = 0
    batch: int | None = None
    accepted: int = 0
    late: Counter[str] = field(default_factory=Counter)
    null_timestamps: Counter[str] = field(default_factory=Counter)
    failed: dict[Divert | None, Counter[str]] = field(default_factory=dict)
    violated: Counter[str] = field(default_factory=Counter)
    held: Mapping[str, HeldBack] = field(default_factory=dict)
    durations: dict[EpochPhase, float] = field(default_factory=dict)

    def count(self, arrivals: Iterable[Arrival]) -> None:
        """Add what stages accepted and dropped, and log what was dropped."""
        for arrival in arrivals:
            self.accepted += arrival.accepted
            self.late += arrival.late
            self.null_timestamps += arrival.null_timestamps
        if self.late or self.null_timestamps:
            late, null_timestamps = dict(self.late), dict(self.null_timestamps)
            with within(self.epoch, substream=sorted({*late, *null_timestamps})):
                logger.warning(
                    "epoch %d dropped late rows %s and rows without event time %s", self.epoch, late, null_timestamps
                )

    @contextmanager
    def timed(self, phase: EpochPhase) -> Iterator[None]:
        """Add the time of a block to a phase."""
        started = time.perf_counter()
        try:
            with within(self.epoch, phase.value):
                yield
        finally:
            self.durations[phase] = self.durations.get(phase, 0.0) + time.perf_counter() - started

    def report(self, record: Record, state: QueryState) -> ProgressReport:
        """The report for the user, from the epoch's record and the state behind it."""
        deltas = [delta for stage in record.stages.values() for delta in stage.deltas]
        late, null_timestamps = state.late, state.null_timestamps
        return ProgressReport(
            batch_id=self.batch,
            watermark=known(state.tracker.watermark),
            substreams=substream_reports(state.tracker.progress(), late, null_timestamps, self.held),
            accepted_rows=self.accepted,
            late_rows=DroppedCount(self.late.total(), late.total()),
            null_timestamps=DroppedCount(self.null_timestamps.total(), null_timestamps.total()),
            withheld_windows=state.withheld,
            epoch=EpochReport(
                self.epoch,
                {phase.value: round(seconds * 1000) for phase, seconds in self.durations.items()},
                time.time_ns() // 1000,
            ),
            snapshot=SnapshotReport(len(deltas), sum(delta.rows for delta in deltas), state.partitions),
            sinks=[SinkReport.of(prepared.sink, prepared.handle) for prepared in record.transactions],
            open_windows=open_windows(record.stages.values()),
            # Rows that go to two outputs have failed only once.
            failed_rows=dict(sum(self.failed.values(), Counter())),
            changes=[] if state.upgrade is None else [str(change) for change in state.upgrade.changes],
            expectations={
                name: DroppedCount(self.violated[name], total) for name, total in record.expectations.items()
            },
            operators={
                name: _measured(each, state.stages[name])
                for name, each in operator_reports(record.stages).items()
                if name in state.stages
            },
        )


def _measured(report: OperatorReport, state: StageState) -> OperatorReport:
    memory, spilled = state.held
    return msgspec.structs.replace(report, memory_bytes=memory, spilled_bytes=spilled, of_limit=state.used)


def operator_reports(stages: Mapping[str, SavedStage]) -> dict[str, OperatorReport]:
    """The report of a record on the state of each operator."""
    found = {}
    for name, stage in stages.items():
        sizes = [delta.size for delta in stage.deltas if delta.size is not None]
        known = len(sizes) == len(stage.deltas)
        entries = sum(delta.rows for delta in stage.deltas)
        found[name] = OperatorReport(entries, sum(sizes) if known else None, shed_windows=stage.shed)
    return found


def open_windows(stages: Iterable[SavedStage]) -> int | None:
    """The number of windows of a fixed length that have rows and are not final, by time; None without such windows."""
    found = [_open(stage, stage.settings) for stage in stages if isinstance(stage.settings, SlidingSettings)]
    return sum(found) if found else None


def _open(stage: SavedStage, settings: SlidingSettings) -> int:
    window = WindowGrid(settings.size, settings.step, settings.offset)
    # Each delta covers a stretch of time, from its first open window to its last one; stretches may overlap.
    reached, count = window.closed_end(MIN if stage.closed is None else stage.closed), 0
    for delta in sorted(stage.deltas, key=lambda each: each.low):
        first = max(reached + settings.step if reached > MIN else MIN, window.ends.higher_frame(delta.low - 1))
        last = window.last_end(delta.high)
        count += max(0, (last - first) // settings.step + 1)
        reached = max(reached, last)
    return count


def spark_progress(query: SparkQuery) -> list[dict[str, Any]]:
    """Spark's progress of its last batches as JSON, oldest first.

    Not as PySpark's objects: PySpark makes rows of what a query observes, and fails if Python has no such value.
    """
    progress: list[Any] = query._jsq.recentProgress()  # noqa: SLF001 - see above
    return [json.loads(each.json()) for each in progress]


def newest_progress(query: SparkQuery) -> dict[str, Any] | None:
    """The last of them, None before the first batch."""
    newest: Any = query._jsq.lastProgress()  # noqa: SLF001 - see above
    return None if newest is None else dict(json.loads(newest.json()))


def substream_reports(
    progress: Iterable[SubstreamProgress],
    late: Mapping[str, int],
    null_timestamps: Mapping[str, int],
    held: Mapping[str, HeldBack] = MappingProxyType({}),
) -> dict[str, SubstreamReport]:
    """Every substream that is tracked, or that had dropped rows: one without event time is not tracked."""
    tracked = {substream.id: substream for substream in progress}
    return {
        name: SubstreamReport(
            watermark=known(tracked[name].watermark) if name in tracked else None,
            idle=name in tracked and tracked[name].idle,
            holds_watermark=name in tracked and tracked[name].holds,
            caught_up=tracked[name].caught_up if name in tracked else None,
            late_rows=late.get(name, 0),
            null_timestamps=null_timestamps.get(name, 0),
            held_back=held[name].ahead if name in held else None,
            held_by=held[name].by if name in held else None,
        )
        for name in sorted(tracked.keys() | late.keys() | null_timestamps.keys())
    }


def known(time_or_min: int) -> int | None:
    """A watermark in the form of reports: None before the first."""
    return None if time_or_min == MIN else time_or_min
