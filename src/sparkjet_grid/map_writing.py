"""Writing layers of a map: what a task does with the rows of its partitions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from sparkjet_grid.client import GridClient
from sparkjet_grid.map_layers import merged, to_merge
from sparkjet_grid.map_version import MapVersion
from sparkjet_grid.messages import Held
from sparkjet_grid.places import Place

_BATCH = 64 << 20
"""Bytes of the batches of a layer, more or less."""


class Written(msgspec.Struct, frozen=True, array_like=True):
    """What a task has written of one partition.

    Attributes:
        partition: The partition.
        rows: Number of keys that have changed.
        merged: How many of the layers that were there are in the new one.
        layer: The new one; None if nothing is left.
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
    """Write what has changed in some partitions, merged with newer layers that are there.

    An attempt of a task writes under names of its own; those that no manifest names are removed later.
    """
    there = {partition: base.layers.get(partition, ()) if base is not None else () for partition in deltas}
    changed = {partition: merged([delta], keys, clock, is_oldest=False) for partition, delta in deltas.items()}
    counts = {
        partition: to_merge(table.num_rows, [layer.rows for layer in there[partition]])
        for partition, table in changed.items()
    }
    older = _read(client, [layer for partition, count in counts.items() for layer in there[partition][:count]])
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
            # In several: a partition of a small grid may be larger than what one message takes.
            rows = max(1, new.num_rows * _BATCH // max(1, new.nbytes))
            batches = new.combine_chunks().to_batches(max_chunksize=rows)
            entries.append(client.entry(name, new.schema, batches, partition))
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


def _read(client: GridClient, layers: Sequence[Held]) -> dict[str, pa.Table]:
    return {each.key.name: pa.Table.from_batches(each.batches, each.schema) for each in client.get(layers)}
