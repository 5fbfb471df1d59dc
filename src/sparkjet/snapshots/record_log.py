"""The record log: the slot is the decision."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError, FencedError, RecoveryError
from sparkjet.query_log import logger
from sparkjet.snapshots.directory import DirectoryStore
from sparkjet.snapshots.pins import Pins
from sparkjet.snapshots.record import Record

if TYPE_CHECKING:
    from sparkjet.snapshots import SnapshotStore
    from sparkjet.storage.directory import Directory

RETAINED_SLOTS = 8
"""The number of newest slots that stay."""
TRIMMED = 4
"""One in this many slots trims the log, by a listing and, in an object store, one request for all removals."""
LOOKS = 60
"""One in this many looks for a successor lists the log."""


class RecordLog:
    """The sequence of a query's records, appended by one driver at a time.

    The driver that fills the next slot first has decided; the other one finds it taken, and learns that it is fenced.

    Args:
        store: The store of the records.
        pin_retention: How long pins stay, in microseconds; None for forever.
    """

    def __init__(self, store: SnapshotStore, pin_retention: int | None = None) -> None:
        self._store = store
        self._pin_retention = pin_retention
        self._looks = 0
        self.pins = Pins(store)

    def newest(self) -> tuple[int, Record] | None:
        """The newest slot and its record, None before the first."""
        read: int | None = None
        while slots := self._store.slots():
            try:
                return slots[-1], Record.decode(self._store.read(slots[-1]), f"record {slots[-1]}")
            except FileNotFoundError:
                # Whoever looks from outside may be slow: superseded and trimmed since it was listed, unless it is
                # listed once more.
                if slots[-1] == read:
                    raise
                read = slots[-1]
        return None

    def append(self, slot: int, record: Record) -> None:
        """Decide ``record`` in ``slot``."""
        content = record.encode()
        if not (self._store.put(slot, content) or self._holds(slot, content)) or self._superseded(slot, record):
            raise _fenced(record, slot)
        if slot % TRIMMED == 0:
            if self._pin_retention is not None:
                for pin in self.pins.expire(record.clock - self._pin_retention):
                    logger.info("pin %s of epoch %d is older than pinRetention and was removed", pin.name, pin.epoch)
            self._store.trim(self.pins.first(slot - RETAINED_SLOTS + 1))

    def clean(self, obsolete: Collection[str], record: Record) -> None:
        """Remove those deltas and blobs that neither the newest record nor a pinned one names."""
        removed = set(obsolete) - record.names()
        # Pins are listed only if there is something to remove, and after the record was written: see `Pins`.
        for name in sorted(removed - self.pins.named()) if removed else ():
            self._store.remove(name)

    def clean_before(self, takeover: int, record: Record) -> None:
        """Remove what drivers of earlier takeovers wrote, unless the newest record or a pinned one names it.

        No others: a driver that was itself taken over while it started must not remove what its successor has written
        since. Foreign names are left alone: ``.nfs…``, ``.snapshot``, ``lost+found``.
        """
        written = ((name, name.partition("-")[0]) for name in self._store.names())
        self.clean([name for name, by in written if by.isdecimal() and int(by) < takeover], record)

    def fenced(self, slot: int, record: Record) -> FencedError | None:
        """The error of a driver whose last record is ``record`` in ``slot``; None unless another one has taken over."""
        slots = self._store.slots()
        if slots and slots[-1] == slot:
            # The record is not read, as it may be large.
            return None
        newest = self.newest()
        return None if newest is None or newest[1].run == record.run else _fenced(record, slot + 1)

    def switched(self, slot: int, record: Record) -> Record | None:
        """The record in the next slot if another process has put it there for this run, with only a switch added."""
        try:
            found = Record.decode(self._store.read(slot + 1), f"record {slot + 1}")
        except FileNotFoundError:
            return None
        return found if found.run == record.run and found.until is not None and record.until is None else None

    def followed(self, slot: int, record: Record) -> FencedError | Record | None:
        """Like :meth:`fenced`, for a call every second: mostly a single read, of a slot that does not exist.

        If the query was switched in the meantime, returns the record that says so.

        A listing costs several times as much in an object store. But if a driver sleeps until its next slot has been
        written and trimmed again, only a listing shows it; so one in :data:`LOOKS` calls lists the slots.
        """
        self._looks += 1
        if self._looks % LOOKS:
            try:
                self._store.read(slot + 1)
            except FileNotFoundError:
                return None
        return self.fenced(slot, record) or self.switched(slot, record)

    def _holds(self, slot: int, content: bytes) -> bool:
        # A put that was sent twice, as NFS does with link(), meets its own entry. No two drivers write the
        # same content: it names the run.
        try:
            return self._store.read(slot) == content
        except FileNotFoundError:
            # Taken, then superseded and trimmed.
            return False

    def _superseded(self, slot: int, record: Record) -> bool:
        # A driver that slept so long that its next slot was written, superseded and trimmed finds the slot free:
        # only the later slots show that its decision is void.
        if self._store.slots()[-1] <= slot:
            return False
        # On top of the driver's own record there may be a switch of its run by now, or its next record on top of a
        # switch. Who switches is not the driver, and may be the one that slept.
        newest = self.newest()
        if newest is None or (newest[1].run, newest[1].takeover) != (record.run, record.takeover):
            return True
        return record.until is not None and newest[1].until != record.until


def _fenced(record: Record, slot: int) -> FencedError:
    return FencedError(
        f"Another driver has taken over query {record.query} (slot {slot} is not ours). "
        "This one stops without committing or rolling back anything."
    )


@contextmanager
def reading(home: Directory, command: str) -> Iterator[None]:
    """Name the home in the error of a command that cannot read it.

    Raises:
        AnalysisError: The home cannot be read.
    """
    try:
        yield
    except OSError as error:
        raise AnalysisError(f'{command}: "{home}" cannot be read: {error.strerror or error}') from error


def newest_record(home: Directory, command: str) -> tuple[int, Record]:
    """The newest slot of a home, and its record.

    Raises:
        AnalysisError: The home cannot be read.
        RecoveryError: It has no record.
    """
    with reading(home, command):
        newest = RecordLog(DirectoryStore(home.below("snapshots"))).newest()
    if newest is None:
        raise RecoveryError(f'{command}: "{home}" contains no record of a query. Give its checkpointLocation.')
    return newest
