"""Versions of a map in a grid: found by readers, published by the writer, removed when nobody holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from sparkjet.grid.client import GridClient
from sparkjet.grid.errors import GridError, LostRowsError, MissingEntriesError
from sparkjet.grid.files import contents_of, write_files
from sparkjet.grid.map_leases import LeaseBook
from sparkjet.grid.map_version import ROOT, MapPlace, MapVersion, epochs_of
from sparkjet.grid.messages import Held

KEPT = 2
"""Versions that are kept without a lease: who has found the newest slot still finds its layers."""
_REMEMBERED = 8
_TRIES = 20
_SHOWN = 5


class Writer(msgspec.Struct, frozen=True, array_like=True):
    """The only writer of a map: an output of a query."""

    query: str
    output: str


class MapStore:
    """The versions of one map. Thread-safe, but for what only its writer calls.

    Args:
        client: Of the grid.
        place: Of the map.
    """

    def __init__(self, client: GridClient, place: MapPlace) -> None:
        self.client, self.place = client, place
        self._read: dict[str, MapVersion] = {}

    def numbers(self) -> list[int]:
        """Numbers of the versions that are visible, ascending."""
        return sorted(int(name.rpartition("/")[2]) for name in self.client.slots(self.place.versions))

    def newest(self) -> MapVersion | None:
        """The newest version; None if there is none.

        Raises:
            LostRowsError: Its manifest is lost.
        """
        for _ in range(_TRIES):
            numbers = self.numbers()
            if not numbers:
                return None
            found = self.at(numbers[-1])
            if found is not None:
                return found
        raise GridError(f'the versions of map "{self.place.name}" are replaced faster than they can be read.')

    def at(self, number: int) -> MapVersion | None:
        """A version; None if it is not visible, or no more.

        Raises:
            LostRowsError: Its manifest is lost.
        """
        manifest = self.manifest_at(number)
        if manifest is None:
            return None
        try:
            return self.decoded(manifest)
        except MissingEntriesError as error:
            # Removed while it was about to be read, or lost?
            if self.manifest_at(number) is None:
                return None
            message = self._told([manifest.partition], f"with what says where the rows of its version {number} are")
            raise LostRowsError(message) from error

    def of_epoch(self, epoch: int) -> MapVersion | None:
        """The visible version of an epoch; None if there is none."""
        found = (self.at(number) for number in self.numbers())
        return next((each for each in found if each is not None and each.epoch == epoch), None)

    def decoded(self, manifest: Held) -> MapVersion:
        """The version that a manifest describes.

        Raises:
            MissingEntriesError: It is lost.
        """
        # By its name, which is never used again: members of a listing may count other sizes.
        found = self._read.get(manifest.name)
        if found is None:
            content = contents_of(self.client, [manifest])[manifest.name]
            found = msgspec.msgpack.decode(content, type=MapVersion)
            # Other threads read and forget at the same time.
            for name in [*self._read][: 1 - _REMEMBERED]:
                self._read.pop(name, None)
            self._read[manifest.name] = found
        return found

    def manifest_at(self, number: int) -> Held | None:
        """The manifest that a slot names; None if the slot is free."""
        token = self.client.slot(self.place.slot(number))
        return None if token is None else msgspec.msgpack.decode(token, type=Held)

    def writer(self) -> Writer | None:
        """Who writes the map; None if nobody has yet."""
        token = self.client.slot(self.place.writer)
        return None if token is None else msgspec.msgpack.decode(token, type=Writer)

    def claim(self, writer: Writer) -> Writer:
        """Become the map's writer, if it has none; returns who is."""
        found = self.writer()
        if found is None and not self.client.put_slot(self.place.writer, msgspec.msgpack.encode(writer), []):
            found = self.writer()
        return found or writer

    def write(self, version: MapVersion, transaction: str) -> Held:
        """Write a manifest, which :meth:`publish` makes visible."""
        content = msgspec.msgpack.encode(version)
        [held] = write_files(self.client, {self.place.manifest(version.number, transaction): content})
        return held

    def publish(self, manifest: Held) -> bool:
        """Make a version visible; whether the manifest is that of its slot.

        Raises:
            LostRowsError: Layers are lost; nothing is visible.
            MissingEntriesError: A replica lacks some, or the manifest is lost.
        """
        version = self.decoded(manifest)
        try:
            token = msgspec.msgpack.encode(manifest)
            return self.client.put_slot(self.place.slot(version.number), token, [manifest, *version.held()])
        except MissingEntriesError:
            self.check(version)
            raise

    def check(self, version: MapVersion) -> None:
        """Refuse a version of which layers are on no replica.

        Raises:
            LostRowsError: Naming partitions, who held them last, and epochs.
        """
        try:
            self.client.check(version.held())
        except MissingEntriesError as error:
            raise LostRowsError(self._told_of(version)) from error

    def _told_of(self, version: MapVersion) -> str:
        state = self.client.state()
        unheld = self.client.unheld(version.held(), state)
        lost = [key for key, members in unheld.items() if members >= set(state.rows[key.partition].replicas)]
        epochs = epochs_of(key.name for key in lost) or [version.epoch]
        told = f"with rows of epochs up to {epochs[-1]} (its newest is {version.epoch})"
        return self._told(sorted({key.partition for key in lost}), told)

    def _told(self, partitions: Sequence[int], what: str) -> str:
        lost = self.client.state().lost
        shown = ", ".join(map(str, partitions[:_SHOWN])) + (", …" if len(partitions) > _SHOWN else "")
        holders = sorted({member for each in partitions for member in lost.get(each, ())})
        by = f"Members {', '.join(holders)} held them last, and are gone. " if holders else ""
        return (
            f'map "{self.place.name}" has lost partitions {shown}, {what}. {by}More members were lost at once than '
            "--backup-count covers. Remove the map (python -m sparkjet grid map remove), and start the query that "
            "writes it from the beginning of its source, with another checkpointLocation: that builds it again."
        )

    def is_kept(self, version: MapVersion) -> bool:
        """Whether a version is not removed yet."""
        return version.number in self._manifests().values()

    def used(self) -> int:
        """Bytes of all layers that members hold, once for each, those of old and leased versions included."""
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
        manifests = self._manifests()
        leased, ended = book.looked(lambda: self.client.entries(self.place.leases()))
        gone = {held for held, number in manifests.items() if number < kept[0] and number not in leased}
        needed = self._layers_of(manifests.keys() - gone)
        until, prefix = _order(_transaction(newest.name)), self.place.layers()
        # Those of versions that are gone, and of attempts that failed, some of which write on after their epoch.
        layers = [
            held.key
            for held in self.client.entries(prefix)
            if held.name not in needed and _order(held.name.removeprefix(prefix)) <= until
        ]
        # The manifests last: after a crash, they say what is still to be removed.
        self.client.remove([*layers, *ended])
        self.client.remove([held.key for held in gone])

    def undo(self, is_orphan: Callable[[str], bool], keep: Sequence[Held] = ()) -> None:
        """Remove layers and manifests that never became visible; called by the writer alone.

        Args:
            is_orphan: Whether a transaction is one unless it is visible, by its name.
            keep: Manifests that are decided and not yet visible.
        """
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
        """Remove the map with everything, versions first; its writer, if it still runs, finds it gone."""
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
        found = self.client.entries(self.place.manifests)
        return {held: int(held.name.removeprefix(self.place.manifests).partition("-")[0]) for held in found}


def _transaction(manifest: str) -> str:
    return manifest.rpartition("/")[2].partition("-")[2]


def _order(transaction: str) -> tuple[int, int]:
    """Takeover and epoch of a transaction, by its name."""
    takeover, epoch, *_ = transaction.split("-")
    return int(takeover), int(epoch)


def maps_of(client: GridClient) -> list[str]:
    """Names of all maps of a grid, ascending."""
    names = (name.removeprefix(f"{ROOT}/").partition("/")[0] for name in client.slots(ROOT))
    return sorted(set(names))
