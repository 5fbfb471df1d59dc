"""Progress report: what ``lastProgress`` adds to Spark's progress, once an epoch has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

ProgressListener = Callable[["ProgressReport"], None]

# The docstrings below the fields are the table of docs/reference/progress.md (scripts/progress_table.py renders it).


class DroppedCount(msgspec.Struct, frozen=True, rename="camel"):
    """Rows that went no further, for one reason."""

    epoch: int
    """In this epoch."""
    total: int
    """Since the query's first start."""


class SubstreamReport(msgspec.Struct, frozen=True, rename="camel"):
    """Event time of one substream."""

    watermark: int | None
    """How far its event time is complete; null before its first row."""
    idle: bool
    """Whether the query's watermark does not wait for it at present, because it is silent."""
    holds_watermark: bool
    """Whether the query's watermark waits for this substream."""
    caught_up: bool | None
    """Whether it has been read to its end; null where its source does not say."""
    late_rows: int
    """Its late rows since the query's first start."""
    null_timestamps: int
    """Its rows without an event time since the query's first start."""


class EpochReport(msgspec.Struct, frozen=True, rename="camel"):
    """The epoch itself."""

    number: int
    """Its number in the records and in the sinks."""
    duration_ms: dict[str, int]
    """Milliseconds of each phase that it went through: `aggregate`, `advance`, `save`, `prepare`, `decide`, `commit`,
    `clean`. `save` runs beside `prepare`."""
    ended: int = 0
    """When it ended."""


class SnapshotReport(msgspec.Struct, frozen=True, rename="camel"):
    """The state that the record names."""

    deltas: int
    """Deltas that a start would read."""
    entries: int
    """Partial rows in them."""
    partitions: int
    """Partitions that the state has in memory (`statePartitions`); 0 without state."""


class SinkReport(msgspec.Struct, frozen=True, rename="camel"):
    """A transaction that the record decides."""

    name: str
    """The output."""
    rows: int | None
    """Number of its rows; null where the sink does not count them."""
    transaction: dict[str, Any]
    """What its sink commits, as the sink describes it."""

    @classmethod
    def of(cls, name: str, transaction: dict[str, Any]) -> SinkReport:
        """A transaction as a record has it; a sink of the user's may call something else its rows."""
        rows = transaction.get("rows")
        return cls(name, rows if type(rows) is int else None, transaction)

    def epoch(self, number: int) -> int:
        """The epoch that it is of: the one that the record has ended, unless its sink names another."""
        epoch = self.transaction.get("epoch")
        return epoch if type(epoch) is int else number


class BackupReport(msgspec.Struct, frozen=True, rename="camel"):
    """The copies of snapshots in another home."""

    epoch: int | None
    """Epoch of the newest copy; null as long as there is none."""
    error: str | None
    """What the last copy failed with; null if it did not."""


class ProgressReport(msgspec.Struct, frozen=True, rename="camel"):
    """One epoch; times are microseconds since 1970."""

    batch_id: int | None
    """Spark's number of the micro-batch; null in an epoch without one, which comes from the clock,
    `retireSubstream`, `replay_dead_letters` or `closeWindowsAtEnd`."""
    watermark: int | None
    """The query's watermark; null before the first, and without windows."""
    substreams: dict[str, SubstreamReport]
    """Each substream by its name."""
    accepted_rows: int
    """Rows that aggregates have counted in this epoch; a row counts once for each `agg` of the input, and without one
    not at all."""
    late_rows: DroppedCount
    """Rows that came too late for their window. `lateRows` delivers them, with the reason `late`."""
    null_timestamps: DroppedCount
    """Rows without an event time. `lateRows` delivers them, with the reason `null_timestamp`."""
    withheld_windows: int
    """Windows since the query's first start that have no rows, because their length, slide or keys were changed between
    two runs and some of what they are computed from was no longer there."""
    epoch: EpochReport
    """The epoch that has ended."""
    snapshot: SnapshotReport
    """The state that a restart would begin with."""
    sinks: list[SinkReport]
    """Transactions that the record decides: this epoch's, and earlier ones that are not committed yet."""
    open_windows: int | None = None
    """Windows of a fixed length that have rows and are not final: windows of the same time count once, whatever their
    keys; null without such windows."""
    backup: BackupReport | None = None
    """The copies that `snapshotBackup` asks for; null without it."""
    failed_rows: dict[str, int] = {}
    """Rows that have failed behind `divert` in this epoch, by the `_stage` of their dead letters."""
    changes: list[str] = []
    """What had changed in the query when this run began, and what became of its state: a line each, as in the report
    that `onChange` asks to agree to."""
    expectations: dict[str, DroppedCount] = {}
    """Rows that have not met each expectation, by its name; `total` is since it is in the query."""

    def as_dict(self) -> dict[str, Any]:
        """The keys as users get them."""
        described: dict[str, Any] = msgspec.to_builtins(self)
        return described
