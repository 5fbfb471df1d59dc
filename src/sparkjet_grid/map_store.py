"""Versions of a map in a grid: the rows of keys, the layers that tasks write, and what is said of lost rows."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
import pyarrow as pa

from sparkjet_grid.client import GridClient
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import MissingEntriesError
from sparkjet_grid.finding import Found
from sparkjet_grid.map_keys import hash_of
from sparkjet_grid.map_layers import merged, still_there, to_merge
from sparkjet_grid.map_version import MapVersion, epochs_of
from sparkjet_grid.messages import Held, Lookup
from sparkjet_grid.places import Place
from sparkjet_grid.reader_leases import holder_of
from sparkjet_grid.version_store import VersionStore, batches_of, tables_of

KEYS = 10_000
_TEXT = 2 << 20
"""Keys that are looked up in one call, and their characters: a message has room for no more."""


class MapStore(VersionStore[MapVersion]):
    """The versions of one map, some held by leases. See :class:`sparkjet_grid.version_store.VersionStore`."""

    _type = MapVersion

    def rows(self, version: MapVersion, texts: Sequence[str]) -> Iterator[Found]:
        """The rows that keys have in a version, each with the place of its key."""
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
        """The versions that leases hold, visible or not, each with its number of leases."""
        leases = Counter(int(holder_of(each)) for each in self.client.entries(self.place.leases()))
        found = []
        for manifest, number in self._manifests().items():
            # Gone if its reader has released it meanwhile, or was too late to hold it.
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
    """The places of the keys that are looked up in one call."""
    start = size = 0
    for place, text in enumerate(texts):
        if place > start and (place - start == KEYS or size + len(text) > _TEXT):
            yield range(start, place)
            start, size = place, 0
        size += len(text)
    yield range(start, len(texts))


class Written(msgspec.Struct, frozen=True, array_like=True):
    """One partition as written by a task.

    Attributes:
        partition: The partition.
        rows: Number of changed keys.
        merged: Number of older layers that are merged into the new one.
        layer: The new layer; None if no rows are left.
    """

    partition: int
    rows: int
    merged: int
    layer: Held | None


def write_layers(
    client: GridClient,
    place: Place,
    transaction: str,
    deltas: Mapping[int, pa.Table],
    base: MapVersion | None,
    keys: Sequence[str],
    clock: int,
) -> list[Written]:
    """Write the changes of some partitions, merged with the newest of their layers.

    Each attempt of a task writes under unique names; entries that no manifest names are removed later.
    """
    there = {partition: base.layers.get(partition, ()) if base is not None else () for partition in deltas}
    changed = {partition: merged([delta], keys, clock, is_oldest=False) for partition, delta in deltas.items()}
    counts = {
        partition: to_merge(table.num_rows, [layer.rows for layer in there[partition]])
        for partition, table in changed.items()
    }
    older = tables_of(client, [layer for partition, count in counts.items() for layer in there[partition][:count]])
    entries, tables = [], {}
    for partition, table in changed.items():
        taken = there[partition][: counts[partition]]
        tables[partition] = new = merged(
            [table, *(older[layer.name] for layer in taken)],
            keys,
            clock,
            is_oldest=len(taken) == len(there[partition]),
        )
        if new.num_rows:
            name = f"{place.layers(transaction)}{partition}-{uuid.uuid4().hex}"
            entries.append(client.entry(name, new.schema, batches_of(new), partition))
    layers = {held.partition: held for held in client.put(entries)}
    return [
        Written(partition, changed[partition].num_rows, counts[partition], layers.get(partition))
        for partition in deltas
    ]


def following(base: MapVersion | None, written: Sequence[Written]) -> dict[int, tuple[Held, ...]]:
    """The layers of the next version, by partition."""
    layers = dict(base.layers) if base is not None else {}
    for each in written:
        rest = layers.get(each.partition, ())[each.merged :]
        layers[each.partition] = rest if each.layer is None else (each.layer, *rest)
    return {partition: each for partition, each in layers.items() if each}
