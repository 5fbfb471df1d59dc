"""Versions of a map or a journal: found by readers, published by the writer, removed when nobody holds them."""

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
"""Versions that are kept without a lease: who has found the newest slot still finds its layers."""
_REMEMBERED = 8
_BATCH = 64 << 20
"""Bytes of a batch of rows, more or less."""
_TRIES = 20


V = TypeVar("V", bound=Version)


class VersionStore(ABC, Generic[V]):
    """The versions of one map or journal. Thread-safe, but for what only its writer calls.

    Args:
        client: Of the grid.
        place: Of the map or journal.
    """

    _type: ClassVar[Any]
    """Of the versions."""

    def __init__(self, client: GridClient, place: Place) -> None:
        self.client, self.place = client, place
        self._read: dict[str, tuple[Held, V]] = {}

    def numbers(self) -> list[int]:
        """Numbers of the versions that are visible, ascending."""
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
        """Number and manifest of the newest version; None if there is none."""
        found = self.client.last_slot(self.place.versions)
        if found is None:
            return None
        name, token = found
        return int(name.rpartition("/")[2]), _manifest(token)

    def at(self, number: int) -> V | None:
        """A version; None if it is not visible, or no more."""
        manifest = self.manifest_at(number)
        return None if manifest is None else self._of(number, manifest)

    def _of(self, number: int, manifest: Held) -> V | None:
        """The version whose slot names a manifest; None if it is not visible any more."""
        try:
            return self.decoded(manifest)
        except MissingEntriesError as error:
            # Removed while it was about to be read, or lost?
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
        # By its name, which is never used again: members of a listing may count other sizes.
        found = self._read.get(manifest.name)
        if found is not None:
            return found[1]
        content = contents_of(self.client, [manifest])[manifest.name]
        return self._remembered(manifest, msgspec.msgpack.decode(content, type=known(self._type)))

    def _remembered(self, manifest: Held, version: V) -> V:
        # Other threads read and forget at the same time.
        for name in [*self._read][: 1 - _REMEMBERED]:
            self._read.pop(name, None)
        self._read[manifest.name] = manifest, version
        return version

    def manifest_of(self, version: V) -> Held | None:
        """The manifest of a version that was read here; None if it is not visible any more."""
        read = [held for held, each in [*self._read.values()] if each is version]
        return read[0] if read else self.manifest_at(version.number)

    def manifest_at(self, number: int) -> Held | None:
        """The manifest that a slot names; None if the slot is free."""
        token = self.client.slot(self.place.slot(number))
        return None if token is None else _manifest(token)

    def writer(self) -> Writer | None:
        """Who writes here; None if nobody has yet."""
        token = self.client.slot(self.place.writer)
        return None if token is None else msgspec.msgpack.decode(token, type=known(Writer))

    def claim(self, writer: Writer) -> Writer:
        """Become the writer, if there is none; returns who is."""
        found = self.writer()
        if found is None and not self.client.put_slot(self.place.writer, msgspec.msgpack.encode(writer), []):
            found = self.writer()
        return found or writer

    def continued(self, base: Held | None, writer: Writer) -> V | None:
        """The version that a task goes on from; refused where its driver was taken over meanwhile, or another writes.

        What such a task writes no version would ever name, and beside another writer nobody would remove it.
        """
        last = self.last()
        if base is not None and last is not None and last[1].name == base.name:
            # One look, for each task: names are never used again, so it was not removed and begun by another writer.
            return self.decoded(base)
        there = self.writer()
        if there != writer:
            now = (
                "was removed" if there is None else f"is written by output {there.output!r} of query {there.query} now"
            )
            raise GridError(f"{self.place} {now}: output {writer.output!r} of query {writer.query} writes it no more.")
        if last is not None:
            raise GridError(
                f"{self.place} has version {last[0]} already: another driver of query {writer.query} has taken "
                "over from this one, which writes it no more."
            )
        return None if base is None else self.decoded(base)

    def write(self, version: V, transaction: str) -> Held:
        """Write a manifest, which :meth:`publish` makes visible."""
        content = msgspec.msgpack.encode(version)
        [held] = write_files(self.client, {self.place.manifest(version.number, transaction): content})
        # Who publishes it need not read it.
        self._remembered(held, version)
        return held

    def publish(self, manifest: Held) -> bool:
        """Make a version visible; whether the manifest is that of its slot."""
        version = self.decoded(manifest)
        try:
            token = msgspec.msgpack.encode(manifest)
            return self.client.put_slot(self.place.slot(version.number), token, [manifest, *version.held()])
        except MissingEntriesError:
            self.check(version)
            raise

    def check(self, version: V) -> None:
        """Refuse a version of which entries are on no replica."""
        lost = self.client.lost(version.held())
        if lost:
            partitions = sorted({key.partition for key in lost})
            raise LostRowsError(self._told(partitions, self._lost_of(version, lost)))

    def check_not_removed(self, version: V) -> None:
        """Refuse to go on with a version that went with all others, also if new ones have their numbers."""
        writer = self.writer()
        if writer != version.writer:
            now = "" if writer is None else f", and is written by query {writer.query} now"
            message = f"{self.place}, of which epoch {version.epoch} was read, was removed{now}. Begin to read it anew."
            raise ReleasedError(message)

    @abstractmethod
    def _lost_of(self, version: V, lost: Sequence[Key]) -> str:
        """What is lost of a version, by its entries on no replica."""

    def _told(self, partitions: Sequence[int], what: str) -> str:
        shown, why = self.client.lost_text(partitions)
        return (
            f"{self.place} has lost partitions {shown} of the grid, {what}. {why} Remove it (python -m sparkjet grid "
            f"{self.place.kind} remove), and start the query that writes it from the beginning of its source, with "
            "another checkpointLocation: that builds it again."
        )

    def is_kept(self, version: V) -> bool:
        """Whether a version is not removed yet."""
        return version.number in self._manifests().values()

    def used(self) -> int:
        """Bytes of all entries with rows that members hold, once for each, also those of old and leased versions."""
        return sum(held.size for held in self.client.entries(self.place.layers()))

    def clean(self, book: LeaseBook) -> None:
        """Remove old versions that nobody holds, and layers that no version names; called by the writer alone.

        Slots first, and then a look at leases: a reader puts its lease, and looks at the slot then. One sees the other.
        A driver that was taken over may call it at any time: what its successor writes is of a later takeover.
        """
        numbers = self.numbers()
        old_numbers, kept = numbers[:-KEPT], numbers[-KEPT:]
        self.client.remove_slots([self.place.slot(number) for number in old_numbers])
        newest = self.manifest_at(kept[-1]) if kept else None
        if newest is None:
            # Removed with the map, or by a driver that has gone on.
            return
        entries: list[Held] = []

        def leases_listed() -> list[Held]:
            # With all the rest: each listing asks every member, and is a good part of what an epoch costs.
            entries.extend(self.client.entries(f"{self.place.root}/"))
            return _below(self.place.leases(), entries)

        leases, ended = book.looked(leases_listed)
        leased = self._leased(leases)
        manifests = {held: self._number(held) for held in _below(self.place.manifests, entries)}
        gone = {held for held, number in manifests.items() if number < kept[0] and number not in leased}
        needed = self._layers_of(manifests.keys() - gone)
        until, prefix = _order(_transaction(newest.name)), self.place.layers()
        # Those of versions that are gone, and of attempts that failed, some of which write on after their epoch.
        layers = [
            held.key
            for held in _below(prefix, entries)
            if held.name not in needed and _order(held.name.removeprefix(prefix)) <= until
        ]
        # The manifests last: after a crash, they say what is still to be removed.
        self.client.remove([*layers, *ended])
        self.client.remove([held.key for held in gone])

    def _leased(self, leases: Sequence[Held]) -> set[int]:
        """Numbers of the versions that leases hold."""
        del leases
        return set()

    def undo(self, is_orphan: Callable[[str], bool], keep: Sequence[Held] = ()) -> None:
        """Remove layers and manifests that never became visible; called by the writer alone."""
        visible = self._visible()
        named = {held.name for held in [*visible.values(), *keep]}
        manifests = self._manifests()
        # Older ones may be leased, and go when they are not.
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
        """Remove it with everything, versions first; its writer, if it still runs, finds it gone."""
        slots = [self.place.slot(number) for number in self.numbers()]
        self.client.remove_slots([*slots, self.place.writer])
        self.client.remove(prefix=f"{self.place.root}/")

    def _visible(self) -> dict[int, Held]:
        """The manifests of the versions that are visible, by number.

        A driver that was taken over may remove slots meanwhile: a version whose slot has just gone is old, and leased
        perhaps, so it must not count as one that never was visible.
        """
        while True:
            numbers = self.numbers()
            found = {number: held for number in numbers if (held := self.manifest_at(number)) is not None}
            if found or not numbers:
                return found

    def _layers_of(self, manifests: Iterable[Held]) -> set[str]:
        """Names of the layers that some versions name; of what another driver has removed meanwhile, nothing is."""
        names: set[str] = set()
        for manifest in manifests:
            try:
                names |= {layer.name for layer in self.decoded(manifest).held()}
            except MissingEntriesError:
                # Otherwise what it names would be removed.
                if manifest in self._manifests():
                    raise
        return names

    def _manifests(self) -> dict[Held, int]:
        """All manifests, of whichever versions, with their numbers."""
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
    """Takeover and epoch of a transaction, by its name."""
    takeover, epoch, *_ = transaction.split("-")
    return int(takeover), int(epoch)


def names_of(client: GridClient, kind: type[Place]) -> list[str]:
    """Names of all maps, or of all journals, of a grid, ascending."""
    directory = kind.directory
    names = (name.removeprefix(f"{directory}/").partition("/")[0] for name in client.slots(directory))
    return sorted(set(names))


def tables_of(client: GridClient, entries: Sequence[Held]) -> dict[str, pa.Table]:
    """The rows of entries, by their names."""
    return {each.key.name: pa.Table.from_batches(each.batches, each.schema) for each in client.get(entries)}


def batches_of(rows: pa.Table) -> list[pa.RecordBatch]:
    """Rows in batches of limited size: a message may have no room for all."""
    count = max(1, rows.num_rows * _BATCH // max(1, rows.nbytes))
    batches: list[pa.RecordBatch] = rows.combine_chunks().to_batches(max_chunksize=count)
    return batches
