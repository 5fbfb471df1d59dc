"""Versions of a map or a journal: found by readers, published by the writer, and removed when nobody holds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import pyarrow as pa

from sparkjet_grid.client import GridClient
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import GridError, LostRowsError, MissingEntriesError, ReleasedError
from sparkjet_grid.files import contents_of, write_files
from sparkjet_grid.known_types import known
from sparkjet_grid.messages import Held
from sparkjet_grid.places import Place, Version, Writer
from sparkjet_grid.reader_leases import LeaseBook

KEPT = 2
"""Number of versions kept without a lease, so that a reader that has found the newest slot still finds its layers."""
_REMEMBERED = 8
_BATCH = 64 << 20
"""Bytes of a batch of rows, more or less."""
_TRIES = 20


V = TypeVar("V", bound=Version)


class VersionStore(ABC, Generic[V]):
    """The versions of one map or journal. Thread-safe, except for the methods that only its writer calls.

    Args:
        client: Of the grid.
        place: Of the map or journal.
    """

    _type: ClassVar[Any]
    """The type of the versions."""

    def __init__(self, client: GridClient, place: Place) -> None:
        self.client, self.place = client, place
        self._read: dict[str, tuple[Held, V]] = {}

    def numbers(self) -> list[int]:
        """The numbers of the visible versions, ascending."""
        return sorted(int(name.rpartition("/")[2]) for name in self.client.slots(self.place.versions))

    def newest(self) -> V | None:
        """The newest version; None if there is none."""
        for _ in range(_TRIES):
            last = self.last()
            if last is None:
                return None
            found = self._of(*last)
            if found is not None:
                return found
        raise GridError(f"the versions of {self.place} are replaced faster than they can be read.")

    def last(self) -> tuple[int, Held] | None:
        """The number and manifest of the newest version; None if there is none."""
        found = self.client.last_slot(self.place.versions)
        if found is None:
            return None
        name, token = found
        return int(name.rpartition("/")[2]), _manifest(token)

    def at(self, number: int) -> V | None:
        """A version; None if it is not visible, or no longer."""
        manifest = self.manifest_at(number)
        return None if manifest is None else self._of(number, manifest)

    def _of(self, number: int, manifest: Held) -> V | None:
        """The version of a manifest that its slot named; None if it is no longer visible."""
        try:
            return self.decoded(manifest)
        except MissingEntriesError as error:
            # Was it removed just before it was read, or is it lost?
            if self.manifest_at(number) is None:
                return None
            raise LostRowsError(
                self._told([manifest.partition], f"with what says where the rows of its version {number} are")
            ) from error

    def of_epoch(self, epoch: int) -> V | None:
        """The visible version of an epoch; None if there is none."""
        found = (self.at(number) for number in self.numbers())
        return next((each for each in found if each is not None and each.epoch == epoch), None)

    def decoded(self, manifest: Held) -> V:
        """The version that a manifest describes."""
        # By name, which is unique: the sizes in a listing may differ from those in a manifest.
        found = self._read.get(manifest.name)
        if found is not None:
            return found[1]
        content = contents_of(self.client, [manifest])[manifest.name]
        return self._remembered(manifest, msgspec.msgpack.decode(content, type=known(self._type)))

    def _remembered(self, manifest: Held, version: V) -> V:
        # Other threads add and remove at the same time.
        for name in [*self._read][: 1 - _REMEMBERED]:
            self._read.pop(name, None)
        self._read[manifest.name] = manifest, version
        return version

    def manifest_of(self, version: V) -> Held | None:
        """The manifest of a version that was read here; None if it is no longer visible."""
        read = [held for held, each in [*self._read.values()] if each is version]
        return read[0] if read else self.manifest_at(version.number)

    def manifest_at(self, number: int) -> Held | None:
        """The manifest that a slot names; None if the slot is free."""
        token = self.client.slot(self.place.slot(number))
        return None if token is None else _manifest(token)

    def writer(self) -> Writer | None:
        """The writer; None if nobody has written yet."""
        token = self.client.slot(self.place.writer)
        return None if token is None else msgspec.msgpack.decode(token, type=known(Writer))

    def claim(self, writer: Writer) -> Writer:
        """Become the writer, if there is none; returns the writer."""
        found = self.writer()
        if found is None and not self.client.put_slot(self.place.writer, msgspec.msgpack.encode(writer), []):
            found = self.writer()
        return found or writer

    def continued(self, base: Held | None, writer: Writer) -> V | None:
        """The version that a task continues; an error if its driver was taken over, or there is another writer.

        No version would ever name what such a task writes, and with another writer nobody would remove it.
        """
        last = self.last()
        if base is not None and last is not None and last[1].name == base.name:
            # One look per task suffices: names are unique, so it was not removed and recreated by another writer.
            return self.decoded(base)
        there = self.writer()
        if there != writer:
            now = (
                "was removed" if there is None else f"is written by output {there.output!r} of query {there.query} now"
            )
            raise GridError(
                f"{self.place} {now}: output {writer.output!r} of query {writer.query} no longer writes it."
            )
        if last is not None:
            raise GridError(
                f"{self.place} has version {last[0]} already: another driver of query {writer.query} has taken "
                "over from this one, which no longer writes it."
            )
        return None if base is None else self.decoded(base)

    def write(self, version: V, transaction: str) -> Held:
        """Write a manifest, which :meth:`publish` makes visible."""
        content = msgspec.msgpack.encode(version)
        [held] = write_files(self.client, {self.place.manifest(version.number, transaction): content})
        # So that publishing need not read it.
        self._remembered(held, version)
        return held

    def publish(self, manifest: Held) -> bool:
        """Make a version visible; returns whether its slot names this manifest."""
        version = self.decoded(manifest)
        try:
            token = msgspec.msgpack.encode(manifest)
            return self.client.put_slot(self.place.slot(version.number), token, [manifest, *version.held()])
        except MissingEntriesError:
            self.check(version)
            raise

    def check(self, version: V) -> None:
        """Raise an error if entries of a version are on no replica."""
        lost = self.client.lost(version.held())
        if lost:
            partitions = sorted({key.partition for key in lost})
            raise LostRowsError(self._told(partitions, self._lost_of(version, lost)))

    def check_not_removed(self, version: V) -> None:
        """Raise an error if a version was removed with all others, even if new ones have the same numbers."""
        writer = self.writer()
        if writer != version.writer:
            now = "" if writer is None else f", and is written by query {writer.query} now"
            message = (
                f"{self.place}, of which epoch {version.epoch} was read, was removed{now}. Read it from the start."
            )
            raise ReleasedError(message)

    @abstractmethod
    def _lost_of(self, version: V, lost: Sequence[Key]) -> str:
        """A text that says what a version has lost, given its lost entries."""

    def _told(self, partitions: Sequence[int], what: str) -> str:
        shown, why = self.client.lost_text(partitions)
        return (
            f"{self.place} has lost partitions {shown} of the grid, {what}. {why} Remove it (python -m sparkjet grid "
            f"{self.place.kind} remove), and start the query that writes it from the beginning of its source, with "
            "another checkpointLocation: that builds it again."
        )

    def is_kept(self, version: V) -> bool:
        """Whether a version has not been removed yet."""
        return version.number in self._manifests().values()

    def used(self) -> int:
        """Bytes of all entries with rows, including those of old and leased versions, each counted once."""
        return sum(held.size for held in self.client.entries(self.place.layers()))

    def clean(self, book: LeaseBook) -> None:
        """Remove old versions that nobody holds, and layers that no version names; called only by the writer.

        Slots are removed before leases are listed, and a reader puts its lease before it looks at the slot, so that one
        sees the other. A driver that was taken over may call this at any time: its successor's takeover is later.
        """
        numbers = self.numbers()
        old_numbers, kept = numbers[:-KEPT], numbers[-KEPT:]
        self.client.remove_slots([self.place.slot(number) for number in old_numbers])
        newest = self.manifest_at(kept[-1]) if kept else None
        if newest is None:
            # Removed with the map, or by a newer driver.
            return
        entries: list[Held] = []

        def leases_listed() -> list[Held]:
            # Everything at once: each listing asks every member, and is a good part of an epoch's cost.
            entries.extend(self.client.entries(f"{self.place.root}/"))
            return _below(self.place.leases(), entries)

        leases, ended = book.inspect(leases_listed)
        leased = self._leased(leases)
        manifests = {held: self._number(held) for held in _below(self.place.manifests, entries)}
        gone = {held for held, number in manifests.items() if number < kept[0] and number not in leased}
        needed = self._layers_of(manifests.keys() - gone)
        until, prefix = _order(_transaction(newest.name)), self.place.layers()
        # Those of removed versions, and of failed attempts, some of which still write after their epoch.
        layers = [
            held.key
            for held in _below(prefix, entries)
            if held.name not in needed and _order(held.name.removeprefix(prefix)) <= until
        ]
        # Manifests last: after a crash they tell what is still to be removed.
        self.client.remove([*layers, *ended])
        self.client.remove([held.key for held in gone])

    def _leased(self, leases: Sequence[Held]) -> set[int]:
        """The numbers of the versions that leases hold."""
        del leases
        return set()

    def undo(self, is_orphan: Callable[[str], bool], keep: Sequence[Held] = ()) -> None:
        """Remove layers and manifests that never became visible; called only by the writer."""
        visible = self._visible()
        named = {held.name for held in [*visible.values(), *keep]}
        manifests = self._manifests()
        # Older ones may be leased, and are removed later.
        orphans = {
            held
            for held, number in manifests.items()
            if number >= min(visible, default=0) and held.name not in named and is_orphan(_transaction(held.name))
        }
        needed = self._layers_of(manifests.keys() - orphans)
        prefix = self.place.layers()
        layers = [
            held
            for held in self.client.entries(prefix)
            if held.name not in needed and is_orphan(held.name.removeprefix(prefix).partition("/")[0])
        ]
        self.client.remove([held.key for held in [*layers, *orphans]])

    def remove(self) -> None:
        """Remove everything, versions first; a writer that still runs finds it gone."""
        slots = [self.place.slot(number) for number in self.numbers()]
        self.client.remove_slots([*slots, self.place.writer])
        self.client.remove(prefix=f"{self.place.root}/")

    def _visible(self) -> dict[int, Held]:
        """The manifests of the visible versions, by number.

        A driver that was taken over may remove slots meanwhile: a version whose slot has just gone is old, and
        perhaps leased, so it must not count as one that was never visible.
        """
        while True:
            numbers = self.numbers()
            found = {number: held for number in numbers if (held := self.manifest_at(number)) is not None}
            if found or not numbers:
                return found

    def _layers_of(self, manifests: Iterable[Held]) -> set[str]:
        """The names of the layers that versions name, except versions that another driver has removed meanwhile."""
        names: set[str] = set()
        for manifest in manifests:
            try:
                names |= {layer.name for layer in self.decoded(manifest).held()}
            except MissingEntriesError:
                # Otherwise its layers would be removed.
                if manifest in self._manifests():
                    raise
        return names

    def _manifests(self) -> dict[Held, int]:
        """All manifests, with the numbers of their versions."""
        return {held: self._number(held) for held in self.client.entries(self.place.manifests)}

    def _number(self, manifest: Held) -> int:
        return int(manifest.name.removeprefix(self.place.manifests).partition("-")[0])


def _manifest(token: bytes) -> Held:
    return msgspec.msgpack.decode(token, type=known(Held))


def _below(prefix: str, entries: Iterable[Held]) -> list[Held]:
    return [held for held in entries if held.name.startswith(prefix)]


def _transaction(manifest: str) -> str:
    return manifest.rpartition("/")[2].partition("-")[2]


def _order(transaction: str) -> tuple[int, int]:
    """The takeover and the epoch in a transaction's name."""
    takeover, epoch, *_ = transaction.split("-")
    return int(takeover), int(epoch)


def names_of(client: GridClient, kind: type[Place]) -> list[str]:
    """The names of all maps, or of all journals, of a grid, ascending."""
    directory = kind.directory
    names = (name.removeprefix(f"{directory}/").partition("/")[0] for name in client.slots(directory))
    return sorted(set(names))


def tables_of(client: GridClient, entries: Sequence[Held]) -> dict[str, pa.Table]:
    """The rows of entries, by their names."""
    return {each.key.name: pa.Table.from_batches(each.batches, each.schema) for each in client.get(entries)}


def batches_of(rows: pa.Table) -> list[pa.RecordBatch]:
    """Split rows into batches of limited size, as each is sent in one message."""
    count = max(1, rows.num_rows * _BATCH // max(1, rows.nbytes))
    batches: list[pa.RecordBatch] = rows.combine_chunks().to_batches(max_chunksize=count)
    return batches
