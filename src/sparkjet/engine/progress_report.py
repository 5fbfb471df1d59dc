"""The progress report: what ``lastProgress`` adds to Spark's progress, once an epoch has ended."""

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
    """Whether it has been read to its end; null if its source does not say."""
    late_rows: int
    """Its late rows since the query's first start."""
    null_timestamps: int
    """Its rows without an event time since the query's first start."""
    held_back: int | None = None
    """By how many microseconds it was ahead when `maxWatermarkDrift` gave it no rows in the last batch; null if it was
    not held back."""
    held_by: str | None = None
    """The slowest substream, of which it was ahead; null if it was not held back."""


class EpochReport(msgspec.Struct, frozen=True, rename="camel"):
    """The epoch itself."""

    number: int
    """Its number in the records and in the sinks."""
    duration_ms: dict[str, int]
    """Milliseconds of each phase that it went through: `aggregate`, `advance`, `save`, `prepare`, `decide`,
    `commit`, `clean`. `save` runs in parallel with `prepare`."""
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


class OperatorReport(msgspec.Struct, frozen=True, rename="camel"):
    """The state of one operator."""

    entries: int
    """Rows in its deltas, including those that are replaced or expired and not merged yet."""
    stored_bytes: int | None
    """Size of the files of its deltas; null where that of one of them is not known."""
    memory_bytes: int | None = None
    """Bytes of it in the memory of the executors, as they have told the driver; null where only records are known."""
    spilled_bytes: int | None = None
    """Bytes of it on their local disks, as their memory was full."""
    of_limit: float | None = None
    """The share of `maxStateEntries` or `maxStateBytes` that it held, of both the larger one; null without a limit."""
    shed_windows: int = 0
    """Windows that `onStateLimit` has closed early since the query's first start."""


class SinkReport(msgspec.Struct, frozen=True, rename="camel"):
    """A transaction that the record decides."""

    name: str
    """The output."""
    rows: int | None
    """Number of its rows; null if the sink does not count them."""
    transaction: dict[str, Any]
    """The sink's description of the rows that it commits."""

    @classmethod
    def of(cls, name: str, transaction: dict[str, Any]) -> SinkReport:
        """A transaction in the form of a record; a user's sink may use "rows" for something else."""
        rows = transaction.get("rows")
        return cls(name, rows if type(rows) is int else None, transaction)

    def epoch(self, number: int) -> int:
        """The epoch to which it belongs: the one that the record has ended, unless its sink names another."""
        epoch = self.transaction.get("epoch")
        return epoch if type(epoch) is int else number


class BackupReport(msgspec.Struct, frozen=True, rename="camel"):
    """The copies of snapshots in another home."""

    epoch: int | None
    """Epoch of the newest copy; null as long as there is none."""
    error: str | None
    """The error with which the last copy failed; null if it did not fail."""


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
    """Rows that aggregates have counted in this epoch; a row counts once for each `agg` of the input, and not at all
    without one."""
    late_rows: DroppedCount
    """Rows that came too late for their window. `lateRows` delivers them, with the reason `late`."""
    null_timestamps: DroppedCount
    """Rows without an event time. `lateRows` delivers them, with the reason `null_timestamp`."""
    withheld_windows: int
    """Windows since the query's first start that have no rows, because their length, slide or keys were changed
    between two runs and some of the state from which they are computed was no longer there."""
    epoch: EpochReport
    """The epoch that has ended."""
    snapshot: SnapshotReport
    """The state with which a restart would begin."""
    sinks: list[SinkReport]
    """Transactions that the record decides: this epoch's, and earlier ones that are not committed yet."""
    open_windows: int | None = None
    """Windows of a fixed length that have rows and are not final: windows of the same time count once, whatever
    their keys; null without such windows."""
    backup: BackupReport | None = None
    """The copies that `snapshotBackup` asks for; null without it."""
    failed_rows: dict[str, int] = {}
    """Rows that have failed after `divert` in this epoch, by the `_stage` of their dead letters."""
    changes: list[str] = []
    """Changes of the query when this run began, and what happened to its state: one line each, as in the
    report that `onChange` asks to approve."""
    expectations: dict[str, DroppedCount] = {}
    """Rows that have not met each expectation, by its name; `total` is since it was added to the query."""

    operators: dict[str, OperatorReport] = {}
    """The state of each operator, by its name in the record."""

    def as_dict(self) -> dict[str, Any]:
        """The keys in the form for users."""
        described: dict[str, Any] = msgspec.to_builtins(self)
        return described
