"""Reports of epochs as a query would give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkjet.engine.progress_report import (
    DroppedCount,
    EpochReport,
    OperatorReport,
    ProgressReport,
    SinkReport,
    SnapshotReport,
    SubstreamReport,
)

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND


def substream(
    watermark: int | None,
    *,
    idle: bool = False,
    holds: bool = False,
    caught_up: bool | None = None,
    held: tuple[int, str] | tuple[None, None] = (None, None),
) -> SubstreamReport:
    return SubstreamReport(watermark, idle, holds, caught_up, 0, 0, *held)


def report(
    epoch: int = 1,
    substreams: Mapping[str, SubstreamReport] | None = None,
    *,
    late: int = 0,
    duration_ms: Mapping[str, int] | None = None,
    sinks: Sequence[SinkReport] = (),
    open_windows: int | None = None,
    failed: Mapping[str, int] | None = None,
    violated: Mapping[str, int] | None = None,
) -> ProgressReport:
    known = dict(substreams or {})
    times = [each.watermark for each in known.values() if each.watermark is not None and not each.idle]
    return ProgressReport(
        batch_id=epoch,
        watermark=min(times, default=None),
        substreams=known,
        accepted_rows=0,
        late_rows=DroppedCount(late, late),
        null_timestamps=DroppedCount(0, 0),
        withheld_windows=0,
        epoch=EpochReport(epoch, dict(duration_ms or {"aggregate": 40, "commit": 7})),
        snapshot=SnapshotReport(1, 5, 2),
        sinks=list(sinks),
        open_windows=open_windows,
        failed_rows=dict(failed or {}),
        operators={"stage0": OperatorReport(5, 700, 1500, 100, 0.85, 2)},
        expectations={name: DroppedCount(rows, rows) for name, rows in (violated or {}).items()},
    )
