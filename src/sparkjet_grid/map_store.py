"""Versions of a map in a grid, the rows of keys in one, and what is said of one that is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from sparkjet_grid.entries import Key
from sparkjet_grid.errors import MissingEntriesError
from sparkjet_grid.finding import Found
from sparkjet_grid.map_keys import hash_of
from sparkjet_grid.map_layers import still_there
from sparkjet_grid.map_version import MapVersion, epochs_of
from sparkjet_grid.messages import Held
from sparkjet_grid.reader_leases import holder_of
from sparkjet_grid.requests import Lookup
from sparkjet_grid.version_store import VersionStore

KEYS = 10_000
_TEXT = 2 << 20
"""Keys that are looked for in one go, and their characters: a message to a member has room for as many."""


class MapStore(VersionStore[MapVersion]):
    """The versions of one map, of which leases hold some. See :class:`sparkjet_grid.version_store.VersionStore`."""

    _type = MapVersion

    def rows(self, version: MapVersion, texts: Sequence[str]) -> Iterator[Found]:
        """The rows of keys that are there in a version, each with the place of its key."""
        for places in _groups(texts):
            wanted: dict[int, list[tuple[int, int, str]]] = {}
            for place in places:
                hash_ = hash_of(texts[place])
                wanted.setdefault(hash_ % version.partitions, []).append((place, hash_, texts[place]))
            lookups = [
                Lookup(partition, [layer.name for layer in version.layers[partition]], of_partition)
                for partition, of_partition in wanted.items()
                if partition in version.layers
            ]
            for found in self.client.find(version.keys, lookups):
                yield Found(*still_there(found.places, found.rows, version.clock))

    def leased(self) -> list[tuple[MapVersion, int]]:
        """The versions that leases hold, visible or not, each with the number of these."""
        leases = Counter(int(holder_of(each)) for each in self.client.entries(self.place.leases()))
        found = []
        for manifest, number in self._manifests().items():
            # Gone where a reader has let it go meanwhile, or was too late to hold it.
            with suppress(MissingEntriesError):
                if leases[number]:
                    found.append((self.decoded(manifest), leases[number]))
        return found

    def _lost_of(self, version: MapVersion, lost: Sequence[Key]) -> str:
        epochs = epochs_of(key.name for key in lost) or [version.epoch]
        return f"with rows of epochs up to {epochs[-1]} (its newest is {version.epoch})"

    def _leased(self, leases: Sequence[Held]) -> set[int]:
        return {int(holder_of(each)) for each in leases}


def _groups(texts: Sequence[str]) -> Iterator[range]:
    """Places of the keys that are looked for in one go."""
    start = size = 0
    for place, text in enumerate(texts):
        if place > start and (place - start == KEYS or size + len(text) > _TEXT):
            yield range(start, place)
            start, size = place, 0
        size += len(text)
    yield range(start, len(texts))
