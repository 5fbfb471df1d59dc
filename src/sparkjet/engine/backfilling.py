"""Backfilling: the epochs of history, before Spark's first batch of the stream."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkjet.catalyst.recorded_batches import first_offsets
from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.plan.backfill import Backfilled, Seam, backfilled, begins_of, gaps
from sparkjet.plan.written import Written
from sparkjet.query_log import logger
from sparkjet.snapshots.record import History

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame

    from sparkjet.engine.engine import Engine
    from sparkjet.snapshots import SnapshotStore
    from sparkjet.snapshots.record import Record

_TOLD = 5
"""Number of substreams with missing rows that an error names."""


class Backfilling:
    """Runs the buckets of history, one epoch each; Spark's batches wait until all are decided.

    Args:
        engine: The engine, at its newest record.
        found: The backfill in the query's rows.
        seam: Where history ends.
        history: How far it was read; has the name of the seam's blob in any case.
    """

    def __init__(self, engine: Engine, found: Backfilled, seam: Seam, history: History) -> None:
        self._engine = engine
        self._found = found
        self._seam = seam
        self._history = history
        self._ended = threading.Event()
        if history.is_read:
            self._ended.set()

    @property
    def is_over(self) -> bool:
        """Whether all of history is decided, so that the stream comes next."""
        return self._ended.is_set()

    @property
    def source(self) -> DataFrame:
        """The DataFrame that Spark runs: the stream without the rows that history has."""
        return self._found.live(self._seam)

    def step(self) -> None:
        """Run the next bucket as an epoch; the caller must have the engine's turn."""
        number, of = self._history.done, self._history.of
        engine = self._engine

        def batch(epoch: str, now: int) -> DataFrame:
            return self._found.of_bucket(self._seam, number, epoch, now)

        after = History(number + 1, of, self._history.seam)
        engine.run_history(batch, after)
        self._history = after
        if after.is_read:
            engine.join()
            logger.info("backfill: the history is read, in %d epochs; the stream comes next", of)
            self._ended.set()


def backfilling(engine: Engine, source: DataFrame, store: SnapshotStore) -> Backfilling | None:
    """The backfill of a query at its newest record; None if it has none.

    A new query determines where its history ends; from its first epoch on, the record says so.

    Raises:
        AnalysisError: History cannot be cut.
        RecoveryError: The query has begun without this backfill, or with one that it no longer has.
    """
    found, record = backfilled(source), engine.record
    if found is None:
        if record.history is not None:
            message = (
                f"backfill: the query has begun with a history, of which {record.history.done} of {record.history.of} "
                "buckets are read, and its stream is cut where that ends. Give it sj.backfill(history, live, …) as "
                "before; what is read is not read again."
            )
            raise RecoveryError(message)
        return None
    if record.history is not None:
        name = record.history.seam
        seam = Seam.decode(store.read_blob(name), name)
        found.backfill.check(seam, is_read=record.history.is_read)
        # What is read may have gone since.
        found = found if record.history.is_read else _at(engine, found, seam.version)
        if record.spark is None and seam.offsets:
            # No batch has begun: the stream begins where it begins now, and what followed the seam may have gone.
            _check_gapless(seam.offsets, first_offsets(engine.session, found.stream))
        return Backfilling(engine, found, seam, record.history)
    if record.epoch > 0:
        message = (
            f"backfill: the query is at epoch {record.epoch}, without a history, whose rows would be late now. "
            "Start it from scratch with another checkpointLocation."
        )
        raise RecoveryError(message)
    return _new(engine, found, record, store)


def _check_gapless(offsets: Mapping[str, int], first: Sequence[str]) -> None:
    missing = gaps(offsets, first)
    if missing:
        told = "; ".join(
            f"{name}: history ends at {last}, the stream begins at {at}" for name, last, at in missing[:_TOLD]
        )
        rows = sum(at - last - 1 for _, last, at in missing)
        message = (
            f"backfill: up to {rows} rows are in neither ({told}). Let the stream begin earlier, as with "
            'option("startingOffsets", "earliest"), or take a history that ends later.'
        )
        raise AnalysisError(message)


def _new(engine: Engine, found: Backfilled, record: Record, store: SnapshotStore) -> Backfilling:
    table = found.backfill.table
    if isinstance(table, Written):
        committed = table.newest()
        found = _at(engine, found, committed.version)
        first = first_offsets(engine.session, found.stream)
        seam = found.backfill.seam_of_commits(committed, begins_of(first))
    else:
        seam = found.backfill.seam()
        first = first_offsets(engine.session, found.stream) if seam.offsets else []
    if seam.offsets:
        _check_gapless(seam.offsets, first)
    name = f"{record.takeover:06d}-{record.epoch:09d}-seam"
    store.put_blob(name, seam.encode())
    return Backfilling(engine, found, seam, History(0, seam.buckets, name))


def _at(engine: Engine, found: Backfilled, version: str) -> Backfilled:
    """The backfill with the table as it was when the seam was found."""
    found = replace(found, backfill=found.backfill.at(version))
    _check_substreams(engine, found.backfill.absent)
    return found


def _check_substreams(engine: Engine, absent: Collection[str]) -> None:
    """Refuse substreams that history cannot name: its rows would form one without a stream, and hold all back."""
    for each in engine.inputs:
        lacking = [name for name in each.watermark.by if name in absent]
        if lacking:
            message = (
                f"backfill: the watermark is by {', '.join(each.watermark.by)}, and the history has no column "
                f"{lacking[0]!r}: its rows would be a separate substream, which the watermark waits for. Leave "
                "by= out, or take a history that has it."
            )
            raise AnalysisError(message)
