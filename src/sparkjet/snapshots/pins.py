"""Pins: records that are kept under a name, with everything that they name and every record since."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from sparkjet.errors import AnalysisError, RecoveryError, StorageError, nearest
from sparkjet.known_types import known
from sparkjet.snapshots.record import Record

if TYPE_CHECKING:
    from sparkjet.snapshots.store import SnapshotStore

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ATTEMPTS = 100


class Pin(msgspec.Struct, frozen=True):
    """A record that is kept.

    Attributes:
        name: The name given by the user.
        slot: Slot of the record.
        epoch: Epoch of the record.
        at: When it was pinned, in microseconds since 1970, by the clock of the process that pinned it.
    """

    name: str
    slot: int
    epoch: int
    at: int


_PIN = msgspec.json.Decoder(known(Pin))


class Pins:
    """The pins of one query. Any process may set and remove them while a driver runs, and the driver honours them.

    After writing a record, a driver lists the pins, and then removes what this record no longer names. So a record that
    is still the newest once its pin exists keeps everything that it names: see :meth:`put`.
    """

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        # The record of a slot changes only by an erasure, which fences the driver first: it is read once.
        self._named: dict[int, frozenset[str]] = {}
        self._revised: dict[int, tuple[int, bytes]] | None = None

    def all(self) -> list[Pin]:
        """The pins, the oldest record first."""
        return [pin for pin in map(self._read, self._store.pins()) if pin is not None]

    def named(self) -> set[str]:
        """Deltas and blobs that pinned records name."""
        slots = {slot for slot, _ in self._store.pins()}
        self._named = {slot: names for slot, names in self._named.items() if slot in slots}
        new = self._found(slots - self._named.keys())
        self._named |= {slot: frozenset(record.names()) for slot, record in new.items()}
        return {name for names in self._named.values() for name in names}

    def first(self, otherwise: int) -> int:
        """The first slot that must stay: the earliest pinned one, if it comes before ``otherwise``."""
        return min([otherwise, *(slot for slot, _ in self._store.pins())])

    def records(self) -> list[Record]:
        """The pinned records, without those whose pins were abandoned while being set: see :meth:`put`."""
        return list(self._found({slot for slot, _ in self._store.pins()}).values())

    def _found(self, slots: Iterable[int]) -> dict[int, Record]:
        found = {}
        for slot in sorted(slots):
            # Abandoned while being set: see `put`.
            with contextlib.suppress(FileNotFoundError):
                found[slot] = self.record(slot)
        return found

    def record(self, slot: int) -> Record:
        """A record that is pinned, or that came after a pinned one; if it was revised, its revision."""
        return self._revision(slot)[1]

    def _revision(self, slot: int) -> tuple[int, Record]:
        if self._revised is None:
            # Read once: a replay reads thousands of records, and only an erasure revises any.
            self._revised = self._store.revised()
        number, content = self._revised.get(slot) or (0, self._store.read(slot))
        return number, Record.decode(content, f"record {slot}")

    def revisions(self) -> dict[int, tuple[int, Record]]:
        """The pinned records as they are now, by their slots, and how many revisions each of them has had.

        Without those whose pins were abandoned while being set: see :meth:`put`.
        """
        self._revised, self._named, found = None, {}, {}
        for slot in {slot for slot, _ in self._store.pins()}:
            with contextlib.suppress(FileNotFoundError):
                found[slot] = self._revision(slot)
        return found

    def revise(self, slot: int, record: Record, after: int) -> bool:
        """Replace a pinned record with a revision, which lacks what was erased; False if it was revised meanwhile.

        Args:
            slot: Its slot.
            record: The revision.
            after: Number of the revision that it was made of.
        """
        self._revised = None
        self._named.pop(slot, None)
        return self._store.revise(slot, record.encode(), after)

    def put(self, name: str, now: int) -> Pin:
        """Pin the newest record.

        Raises:
            AnalysisError: The name is not valid, or is taken.
            RecoveryError: There is no record.
            StorageError: The home cannot be written to.
        """
        given: object = name
        if not isinstance(given, str) or _NAME.fullmatch(given) is None:
            message = (
                f'pin: "{given}" cannot be a name: it begins with a letter or a digit, and has up to 100 of these, '
                "dots, hyphens and underscores."
            )
            raise AnalysisError(message)
        if any(name == other for _, other in self._store.pins()):
            raise _taken(name)
        for _ in range(_ATTEMPTS):
            slots = self._store.slots()
            if not slots:
                raise RecoveryError(f'pin: there is no record of a query yet, so nothing to pin as "{name}".')
            try:
                pin = Pin(name, slots[-1], self.record(slots[-1]).epoch, now)
            except FileNotFoundError:
                # Superseded and trimmed between the two calls.
                continue
            if not self._set(pin):
                raise _taken(name)
            if self._store.slots()[-1] == pin.slot:
                return pin
            # A driver that had listed the pins before may be removing files that the record names.
            self._store.remove_pin(pin.slot, name)
        raise RecoveryError(f'pin: the query writes records faster than one can be pinned as "{name}". Try again.')

    def _set(self, pin: Pin) -> bool:
        """Write a pin; returns False if another process has pinned the same name in the meantime, whose pin stays."""
        content = msgspec.json.encode(pin)
        try:
            is_new = self._store.put_pin(pin.slot, pin.name, content)
        except OSError as error:
            raise _unwritable(pin.name, error) from error
        if not is_new:
            try:
                # A put that was sent twice, as NFS does with link(), meets its own entry.
                return self._store.read_pin(pin.slot, pin.name) == content
            except FileNotFoundError:
                return False
        if any(pin.name == name and pin.slot != slot for slot, name in self._store.pins()):
            # Both processes list after writing: at least one of them sees the other's pin.
            self._store.remove_pin(pin.slot, pin.name)
            return False
        return True

    def get(self, name: str) -> Pin:
        """A pin by its name.

        Raises:
            AnalysisError: There is none.
        """
        pins = {pin.name: pin for pin in reversed(self.all())}
        if name not in pins:
            there = nearest(name, pins) if pins else "nothing is pinned."
            raise AnalysisError(f'pin: there is no pin "{name}"; {there}')
        return pins[name]

    def remove(self, name: str) -> None:
        """Remove a pin; what only it has kept is removed with the driver's next epoch, or at the next start.

        Raises:
            AnalysisError: There is none.
            StorageError: The home cannot be written to.
        """
        self.get(name)
        for slot in (slot for slot, other in self._store.pins() if name == other):
            try:
                self._store.remove_pin(slot, name)
            except OSError as error:
                raise _unwritable(name, error) from error

    def expire(self, before: int) -> list[Pin]:
        """Remove the pins that were set before a time, in microseconds, and return them."""
        expired = [pin for pin in self.all() if pin.at < before]
        for pin in expired:
            self._store.remove_pin(pin.slot, pin.name)
        return expired

    def _read(self, at: tuple[int, str]) -> Pin | None:
        slot, name = at
        try:
            return _PIN.decode(self._store.read_pin(slot, name))
        except FileNotFoundError:
            # Removed since it was listed.
            return None
        except msgspec.MsgspecError as error:
            message = f'The pin "{name}" of record {slot} cannot be read: {error}. Remove its file, or restore it.'
            raise RecoveryError(message) from error


def _taken(name: str) -> AnalysisError:
    return AnalysisError(f'pin: there is a pin "{name}" already. Remove it first, or take another name.')


def _unwritable(name: str, error: OSError) -> StorageError:
    why = f"{error.strerror or error}" + (f' ("{error.filename}")' if error.filename else "")
    return StorageError(
        f'pin: "{name}" cannot be set or removed: {why}. A pin is a small file in the home of its query.'
    )
