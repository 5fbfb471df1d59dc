"""Reruns: the recorded epochs of one query, run by another one with the same batches and clock readings."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sparkjet.catalyst.recorded_batches import RecordedSources
from sparkjet.connectors.grid.unregistered import unregistered
from sparkjet.engine.caught_up import in_order
from sparkjet.engine.context import Again, EpochRequest
from sparkjet.engine.moved_sources import moved_sources
from sparkjet.engine.spark_checkpoint import ends_of, planned_at, starts_of
from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.plan.static_tables import MapTable
from sparkjet.query_log import logger
from sparkjet.snapshots.record import EpochKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.engine.context import CaughtUp
    from sparkjet.engine.engine import Engine
    from sparkjet.plan.plan import Plan
    from sparkjet.snapshots import SnapshotStore
    from sparkjet.snapshots.record import Record, SparkPosition
    from sparkjet.snapshots.record_log import RecordLog
    from sparkjet.time import InputsState

_ATTEMPTS = 10


@dataclass(frozen=True)
class RecordedEpoch:
    """An epoch, as recorded.

    Attributes:
        record: The first record of the epoch.
        before: The last record before it.
    """

    record: Record
    before: Record

    @property
    def position(self) -> SparkPosition | None:
        """Position of Spark's checkpoint after the batch; None without one."""
        return self.record.spark if self.record.kind is EpochKind.BATCH else None

    @property
    def polled(self) -> InputsState:
        """The state from which its watermarks continued."""
        return self.record.polled or self.before.watermarks

    @property
    def substreams(self) -> set[str]:
        """Full names of the substreams that it knew when it continued, retired or not."""
        return {
            prefix + name for prefix, each in self.polled.inputs.items() for name in (*each.substreams, *each.retired)
        }

    @property
    def told(self) -> dict[str, bool | None]:
        """The ends that the sources reported, by the full names of substreams."""
        inputs = self.record.watermarks.inputs
        return {
            prefix + name: substream.caught_up
            for prefix, each in inputs.items()
            for name, substream in each.substreams.items()
        }

    @property
    def retired(self) -> list[str]:
        """Full names of the substreams that were retired since the previous epoch."""
        before = self.before.watermarks.inputs
        return [
            prefix + name
            for prefix, each in self.polled.inputs.items()
            for name in each.retired
            if prefix not in before or name not in before[prefix].retired
        ]


@dataclass(frozen=True)
class RecordedEpochs:
    """The epochs of a query from a pinned record on, in its home.

    Attributes:
        log: Its records.
        store: The store that has them.
        slot: Slot of the pinned record.
        epoch: Epoch of the pinned record.
        pin: Name of the pin.
        until: The last epoch.
    """

    log: RecordLog
    store: SnapshotStore
    slot: int
    epoch: int
    pin: str
    until: int

    def after(self, record: Record) -> Iterator[RecordedEpoch]:
        """The epochs after that of another query's record, which originates from the pinned one.

        Raises:
            AnalysisError: That query has had epochs of its own.
            RecoveryError: Records are gone, as the pin was removed.
        """
        slots = [slot for slot in self.store.slots() if slot >= self.slot]
        if slots[:1] != [self.slot]:
            raise self._gone()
        before, is_same = None, False
        for slot in slots:
            try:
                # As a fork reads a journal, without being registered: see `unregistered`.
                found = unregistered(self.log.pins.record(slot))
            except FileNotFoundError as error:
                raise self._gone() from error
            if before is None or found.epoch > before.epoch:
                if found.epoch == record.epoch:
                    is_same = _is_same(found, record)
                if found.epoch >= record.epoch and not is_same:
                    break
                if before is not None and record.epoch < found.epoch <= self.until:
                    yield RecordedEpoch(found, before)
            if is_same and found.epoch >= self.until:
                break
            before = found
        if not is_same:
            message = (
                f"replay: up to epoch {record.epoch} this fork has read its sources by itself, so that what was "
                "recorded does not follow. Make a new fork of the same pin, and replay there."
            )
            raise AnalysisError(message)

    def sources(self) -> dict[str, bytes]:
        """Spark's logs of its sources, by path below its checkpoint; the newest record has them for all batches.

        Raises:
            RecoveryError: Something that the record names is missing.
        """
        for attempt in range(_ATTEMPTS):
            newest = self.log.newest()
            position = None if newest is None else newest[1].spark
            try:
                named = {} if position is None else position.sources
                return {path: self.store.read_blob(blob) for path, blob in named.items()}
            except RecoveryError:
                # The query continues, and has removed what its newest record does not name.
                if attempt == _ATTEMPTS - 1:
                    raise
        return {}

    def _gone(self) -> RecoveryError:
        return RecoveryError(
            f"replay: records after epoch {self.epoch} are gone from the home of the query, as its pin "
            f'"{self.pin}" was removed. Pin it again, and fork it from there.'
        )


def _is_same(recorded: Record, record: Record) -> bool:
    """Whether an epoch has read the same rows at the same time as another query's."""
    positions = [None if each.spark is None else ends_of(each.spark) for each in (recorded, record)]
    return recorded.clock == record.clock and positions[0] == positions[1]


def check_rerun(plan: Plan) -> None:
    """Refuse a query that reads something that no record can bring back.

    Raises:
        AnalysisError: It does.
    """
    if any(isinstance(table, MapTable) for table in plan.tables):
        message = (
            "replay: the query joins a map of a grid, whose versions of that time are gone. Join a table instead, such "
            "as one with the rows it had."
        )
        raise AnalysisError(message)


def check_sources(plan: Plan, record: Record) -> None:
    """Refuse a query that reads other sources than the one that has written a record, whose offsets are of those.

    Raises:
        RecoveryError: It reads other sources.
    """
    _, changes = moved_sources(plan, record)
    if changes:
        message = (
            f"replay: the query reads other sources than the one that has recorded epoch {record.epoch}: "
            f"{'; '.join(map(str, changes))}. Replay it with the sources it had then, or from a pin after the change."
        )
        raise RecoveryError(message)


class Rerun:
    """Runs recorded epochs; on the driver, in place of Spark's query.

    As long as the watermarks are the recorded ones, they continue from the state in the record, so that they are the
    same although policies were polled between the epochs. From the first epoch in which they differ, as the query has
    other policies or reads other event times, the policies are polled only in the epochs.

    Args:
        engine: The engine, at the record that precedes the epochs.
        plan: The query.
        epochs: The epochs to run.
        checkpoint: The directory of this run's checkpoint.
        store: The store of the engine's records.
    """

    def __init__(
        self, engine: Engine, plan: Plan, epochs: RecordedEpochs, checkpoint: Path, store: SnapshotStore
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._epochs = epochs
        self._checkpoint = checkpoint
        self._store = store
        self._names: dict[str, str] = {}
        self._is_same = True

    def run(self) -> Iterator[int]:
        """Run them, and yield the number of each one that has run."""
        engine, epochs = self._engine, self._epochs.after(self._engine.record)
        first = next(epochs, None)
        if first is None:
            return
        self._begin(first)
        sources = self._open()
        try:
            for recorded in chain((first,), epochs):
                self._run(recorded, sources)
                yield recorded.record.epoch
            engine.join()
        finally:
            sources.close()

    def _begin(self, first: RecordedEpoch) -> None:
        """Undo what the start has told the watermarks: it did not happen when the epochs were recorded."""
        tracker, record = self._engine.state.tracker, self._engine.record
        tracker.restore(record.watermarks)
        awaited = [substream for each in self._plan.inputs for substream in each.awaited]
        is_same = record.watermarks.goes_on_like(first.before.watermarks)
        # Substreams of the first start are in no record before its first epoch, but in the state from which that
        # continued.
        self._is_same = is_same and first.substreams.issuperset(awaited)
        if not self._is_same:
            for substream in awaited:
                tracker.add(substream, record.clock)

    def _open(self) -> RecordedSources:
        found, record = self._epochs.sources(), self._engine.record
        shutil.rmtree(self._checkpoint / "sources", ignore_errors=True)
        for number, (path, content) in enumerate(found.items()):
            place = self._checkpoint / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            # A start after this run reads them: each record of this run names them all.
            self._names[path] = f"{record.takeover:06d}-{record.epoch + 1:09d}-source{number}"
            self._store.put_blob(self._names[path], content)
        plan = self._plan
        return RecordedSources(self._engine.session, plan.source, plan.source_names, self._checkpoint)

    def _run(self, recorded: RecordedEpoch, sources: RecordedSources) -> None:
        engine, record = self._engine, recorded.record
        if record.replayed != recorded.before.replayed:
            message = (
                f"replay: in epoch {record.epoch} dead letters were replayed, which no source has. Replay until "
                f"{record.epoch - 1}, or from a later pin."
            )
            raise RecoveryError(message)
        if record.history != recorded.before.history:
            message = (
                f"replay: epoch {record.epoch} is of the history of a backfill, which no source has. Pin the query "
                "when its history is read, and replay from there."
            )
            raise RecoveryError(message)
        check_sources(self._plan, record)
        if not self._is_same:
            self._retire(recorded)
        position = recorded.position
        kept = None if position is None else msgspec.structs.replace(position, sources=self._names)
        request = EpochRequest(
            record.kind,
            record.clock,
            None if position is None else self._batch(record, position, sources),
            None if position is None else position.batch,
            self._caught_up(recorded),
            again=Again(record.query, kept, recorded.polled if self._is_same else None, record.heard),
        )
        engine.repeat(request)
        if self._is_same and not engine.state.tracker.snapshot().goes_on_like(record.watermarks):
            logger.info("epoch %d: from here on its watermarks are others than those that were recorded", record.epoch)
            self._is_same = False

    def _retire(self, recorded: RecordedEpoch) -> None:
        """Retire the substreams that were retired then; if the watermarks are the same, ``polled`` includes this."""
        known = {each.id for each in self._engine.state.tracker.progress()}
        for substream in recorded.retired:
            if substream in known:
                self._engine.join()
                self._engine.state.tracker.retire(substream, recorded.record.clock)

    def _batch(self, record: Record, position: SparkPosition, sources: RecordedSources) -> DataFrame:
        names = self._plan.source_names
        starts, ends = starts_of(position), ends_of(position)
        given = in_order(starts, names) if starts else []
        return sources.batch(given, in_order(ends, names), f"{record.query}/{record.epoch}", planned_at(position))

    def _caught_up(self, recorded: RecordedEpoch) -> CaughtUp:
        told = recorded.told
        if self._is_same or recorded.position is None:
            return told
        # Sources are not asked during a batch: idle substreams stay idle, as in any query.
        return {
            each.id: None if told.get(each.id) is None else each.idle for each in self._engine.state.tracker.progress()
        }


def last_epoch(log: RecordLog, origin_epoch: int, until: int | str | None) -> int:
    """The last epoch of a replay: the newest recorded one, or the one that the user specifies, by number or pin.

    Raises:
        AnalysisError: There is no such epoch after the pinned one.
        RecoveryError: There are no records.
    """
    newest = log.newest()
    if newest is None:
        message = "replay: the home of the query that the fork comes from has no records. Restore it, or fork again."
        raise RecoveryError(message)
    if until is None:
        return newest[1].epoch
    given: object = log.pins.get(until).epoch if isinstance(until, str) else until
    if type(given) is not int or not origin_epoch <= given <= newest[1].epoch:
        message = (
            f"until: {until!r} is neither a pin nor the number of an epoch from {origin_epoch} (the pinned one) to "
            f"{newest[1].epoch} (the newest)."
        )
        raise AnalysisError(message)
    return given
