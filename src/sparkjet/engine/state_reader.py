"""State as users see it, read without the query and independently of its driver: which record, and which operator."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec

from sparkjet.engine.shown_state import kind_of_operator, shown_rows
from sparkjet.errors import AnalysisError, RecoveryError, nearest
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog, newest_record, reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.snapshots.record import Record
    from sparkjet.storage.directory import Directory

_ATTEMPTS = 10


class StateReader:
    """Reads the state in a home; changes nothing there, and needs no permission to.

    Returned rows are persisted in the executors first: the query may continue, and remove the files that were read.

    Args:
        home: The home of the query, which may be running.
        pin: Name of the pinned record to read, None for the newest.
        epoch: The epoch to read, None for the newest.

    Raises:
        AnalysisError: There is no such pin or epoch.
        RecoveryError: There is no record.
    """

    def __init__(self, home: Directory, pin: str | None = None, epoch: int | None = None) -> None:
        if pin is not None and epoch is not None:
            raise AnalysisError(f'read_state: pin="{pin}" and epoch={epoch} exclude each other: a pin names one epoch.')
        self._home = home
        self._store = DirectoryStore(home.below("snapshots"))
        self._log = RecordLog(self._store)
        self._pin = pin
        self._epoch = epoch
        self.slot, self.record = self._found()

    @property
    def operators(self) -> dict[str, str]:
        """The kind of each operator that has state, by its name."""
        return {name: kind_of_operator(stage) for name, stage in self.record.stages.items()}

    def rows(self, session: SparkSession, operator: str | None = None, side: str | None = None) -> DataFrame:
        """The rows of an operator.

        Raises:
            AnalysisError: There is no such operator, or there are several and none is named.
            RecoveryError: Something that the record names is missing.
        """
        for _ in range(_ATTEMPTS):
            name = self._named(operator)
            try:
                return shown_rows(session, self._store, self.record, name, side)
            except (RecoveryError, OSError):
                # While a query runs, the next record may do without what this one names.
                before, (self.slot, self.record) = self.slot, self._found()
                if self.slot == before:
                    raise
        message = (
            f'read_state: the query of "{self._home}" replaces its state faster than it can be read. Pin a record.'
        )
        raise RecoveryError(message)

    def empty(self, session: SparkSession, operator: str | None = None, side: str | None = None) -> DataFrame:
        """The same without the rows, and without reading them.

        Raises:
            AnalysisError: As in :meth:`rows`.
        """
        name = self._named(operator)
        without = msgspec.structs.replace(self.record.stages[name], deltas=[])
        record = msgspec.structs.replace(self.record, stages={name: without})
        return shown_rows(session, self._store, record, name, side)

    def _found(self) -> tuple[int, Record]:
        if self._pin is not None:
            with reading(self._home, "read_state"):
                pin = self._log.pins.get(self._pin)
                return pin.slot, self._log.pins.record(pin.slot)
        newest = newest_record(self._home, "read_state")
        return newest if self._epoch is None or newest[1].epoch == self._epoch else self._of_epoch(self._epoch)

    def _of_epoch(self, epoch: int) -> tuple[int, Record]:
        """The last record of an epoch: epochs ascend, and a pin may keep many."""
        slots = self._store.slots()
        after = bisect_right(slots, epoch, key=lambda slot: self._log.pins.record(slot).epoch)
        found = None if after == 0 else self._log.pins.record(slots[after - 1])
        names = {delta.name for stage in found.stages.values() for delta in stage.deltas} if found else set()
        if found is None or found.epoch != epoch or not names <= set(self._store.names()):
            message = (
                f"read_state: the state of epoch {epoch} is no longer there. The newest epoch is there, and each "
                "that is pinned (query.snapshot, or sparkjet snapshots pin)."
            )
            raise AnalysisError(message)
        return slots[after - 1], found

    def _named(self, operator: str | None) -> str:
        there = self.operators
        if not there:
            message = (
                f'read_state: the query of "{self._home}" has no state at epoch {self.record.epoch}: it keeps none, or '
                "has ended no epoch yet."
            )
            raise RecoveryError(message)
        told = ", ".join(f"{name} ({kind})" for name, kind in there.items())
        if operator is None and len(there) > 1:
            raise AnalysisError(f"read_state: the query has {len(there)} operators. Name one as operatorId: {told}.")
        if operator is not None and operator not in there:
            message = (
                f'read_state: operatorId="{operator}" is not an operator of the query; {nearest(operator, there)}.'
            )
            raise AnalysisError(message)
        return operator or next(iter(there))
