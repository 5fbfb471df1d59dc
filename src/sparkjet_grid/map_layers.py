"""Layers: a partition of a map is a list of immutable batches, of which the newest one with a key has its row.

Everything here is a function of batches and a clock reading, without members, sockets or Spark. A version of a
partition is the list of its layers, the newest first. Each new version puts one layer in front, into which some of the
next ones are merged; older versions keep theirs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkjet_grid.map_keys import texts_of

HASH, GONE, EXPIRES = "sparkjet.hash", "sparkjet.gone", "sparkjet.expires"
"""Columns before the user's: the key's hash, by which a layer is sorted; whether the key was deleted; the microsecond
at which the row expires, null for never."""
TECHNICAL = (HASH, GONE, EXPIRES)
_TYPES = pa.int64(), pa.bool_(), pa.int64()
GROWTH = 4
"""A layer is merged unless it has more than this many times the rows of the newer layers that are merged."""


def layer_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of layers for rows of a schema."""
    own = [pa.field(name, kind, name == EXPIRES) for name, kind in zip(TECHNICAL, _TYPES, strict=True)]
    return pa.schema([*own, *schema])


def to_merge(rows: int, layers: Sequence[int]) -> int:
    """How many of the newest layers are merged into a new one, so that n rows have no more than about log n layers.

    >>> to_merge(10, [8, 60, 900]), to_merge(10, [50, 900]), to_merge(1, [])
    (2, 0, 0)
    """
    total = rows
    for merged, count in enumerate(layers):
        if count > GROWTH * total:
            return merged
        total += count
    return len(layers)


def merged(layers: Sequence[pa.Table], keys: Sequence[str], clock: int, *, is_oldest: bool) -> pa.Table:
    """Merge layers, the newest first, into one that has each key once."""
    table = pa.concat_tables(layers).combine_chunks()
    # The sort is stable: of several rows of a key the first is that of the newest layer.
    order = [(name, "ascending") for name in (HASH, *keys)]
    table = table.take(pc.sort_indices(table, sort_keys=order))
    table = table.filter(_is_first(table, keys))
    return table.filter(_is_there(table, clock)) if is_oldest else table


def visible(table: pa.Table, clock: int) -> pa.Table:
    """The rows of a merged layer that exist at some time, with the user's columns."""
    return table.filter(_is_there(table, clock)).drop_columns(list(TECHNICAL))


def found(
    layers: Sequence[Sequence[pa.RecordBatch]], keys: Sequence[str], wanted: Sequence[Sequence[tuple[int, int, str]]]
) -> tuple[list[int], pa.RecordBatch | None]:
    """Find the rows of keys in some layers; the texts of all keys are compared together."""
    places: list[int] = []
    texts: list[str] = []
    rows: list[pa.RecordBatch] = []
    for batches, of_layer in zip(layers, wanted, strict=True):
        for batch in batches:
            hashes = _hashes(batch)
            for place, hash_, text in of_layer:
                row = bisect_left(hashes, hash_)
                while row < len(hashes) and hashes[row] == hash_:
                    places.append(place)
                    texts.append(text)
                    rows.append(batch.slice(row, 1))
                    row += 1
    if not rows:
        return [], None
    together = pa.concat_batches(rows)
    there = texts_of([together.column(key) for key in keys])
    if there == texts:
        return places, together
    # Another key may have the same hash.
    same = [number for number, text in enumerate(texts) if there[number] == text]
    return [places[number] for number in same], together.take(pa.array(same, pa.int64()))


def still_there(places: list[int], rows: pa.RecordBatch, clock: int) -> tuple[list[int], pa.RecordBatch]:
    """The found rows that exist at some time, with their places."""
    is_there = _is_there(rows, clock)
    if is_there.true_count == len(places):
        return places, rows
    return [place for place, each in zip(places, is_there.to_pylist(), strict=True) if each], rows.filter(is_there)


def _hashes(batch: pa.RecordBatch) -> memoryview:
    """The hashes as they are in memory: a search reads a dozen of them, too many to make each an Arrow scalar."""
    column = batch.column(HASH)
    data = column.buffers()[1]
    whole = memoryview(data if data is not None else b"").cast("b").cast("q")
    return whole[column.offset : column.offset + len(column)]


def _is_first(table: pa.Table, keys: Sequence[str]) -> pa.Array:
    """Whether each of the rows, sorted by hash and key, is the first of its key."""
    if table.num_rows == 0:
        return pa.array([], pa.bool_())
    differs = None
    for name in (HASH, *keys):
        column = table.column(name).combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        changed = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
        differs = changed if differs is None else pc.or_(differs, changed)
    return pa.concat_arrays([pa.array([True]), differs])


def _is_there(table: pa.Table, clock: int) -> Any:
    lasts = pc.fill_null(pc.greater(table.column(EXPIRES), clock), fill_value=True)
    return pc.and_(pc.invert(table.column(GONE)), lasts)
