"""Changes that an epoch makes to a map, each exactly once: the old row of a key, and the new one.

A row that expires is a change too, of the epoch whose clock says so. As the journal of changes must have it, finding
such rows takes a sweep, which reads partitions as a whole; epochs without a sweep leave the map's clock alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sparkjet_grid.errors import GridError
from sparkjet_grid.fitting import fitted
from sparkjet_grid.journal_store import Appending
from sparkjet_grid.journal_version import Appended
from sparkjet_grid.map_keys import hash_of, texts_of
from sparkjet_grid.map_layers import EXPIRES, GONE, found, layer_schema, merged
from sparkjet_grid.map_store import MapStore, Written, write_layers
from sparkjet_grid.map_version import MapVersion
from sparkjet_grid.version_store import tables_of

OLD, NEW = "old", "new"
"""Columns after the keys: the row before the epoch and the one after it, null where there is none."""
_NUMBER = "sparkjet.number"


class Changed(msgspec.Struct, frozen=True, array_like=True):
    """The partitions of a map, and of its journal, that a task has written.

    Attributes:
        written: Of the map.
        appended: Of the journal.
        expiry: The first and the last time at which one of the older rows that were read and are left expires; None if
            none does.
    """

    written: list[Written]
    appended: list[Appended]
    expiry: tuple[int, int] | None


class Changes:
    """Writes the changes of an epoch, each partition once, to a map and its journal.

    Args:
        store: Of the map.
        base: The version before the new one; None if that is the first.
        keys: The key columns.
        schema: Of changes.
        clock: Of the new version.
        sweeps: Whether partitions are searched for rows that have expired by then.
        appending: To the journal.
        partitions: Number of partitions of the journal; changes go to the map's partition modulo this number.
    """

    def __init__(
        self,
        store: MapStore,
        base: MapVersion | None,
        keys: Sequence[str],
        schema: pa.Schema,
        clock: int,
        *,
        sweeps: bool,
        appending: Appending,
        partitions: int,
    ) -> None:
        self._store, self._base = store, base
        self._keys, self._schema, self._clock = keys, schema, clock
        self._sweeps = sweeps
        self._appending, self._partitions = appending, partitions
        self._rows = pa.schema([*schema.field(NEW).type])
        self._expiry: tuple[int, int] | None = None

    def write(self, transaction: str, deltas: Mapping[int, pa.Table]) -> Changed:
        """Write some partitions."""
        once = {each: merged([delta], self._keys, self._clock, is_oldest=False) for each, delta in deltas.items()}
        tables: dict[int, list[pa.Table]] = {}
        for partition, table in self._swept(once) if self._sweeps else self._found(once):
            # Deleting a row that was not there changes nothing.
            changed = table.filter(pc.or_(pc.is_valid(table.column(OLD)), pc.is_valid(table.column(NEW))))
            if changed.num_rows:
                tables.setdefault(partition % self._partitions, []).append(changed)
        with_rows = {partition: delta for partition, delta in once.items() if delta.num_rows}
        client, place = self._store.client, self._store.place
        written = write_layers(client, place, transaction, with_rows, self._base, self._keys, self._clock)
        appended = self._appending.append({each: pa.concat_tables(of_one) for each, of_one in tables.items()})
        expiry, self._expiry = self._expiry, None
        return Changed(written, appended, expiry)

    def _found(self, deltas: Mapping[int, pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The changes of each partition, with the old rows of keys found by members."""
        if not deltas:
            return
        batch = _one(pa.concat_tables(deltas.values()))
        places: list[int | None] = [None] * batch.num_rows
        old = pa.Table.from_batches([], self._rows)
        if self._base is not None:
            texts = texts_of([batch.column(name) for name in self._keys])
            there = [*self._store.rows(self._base, texts)]
            taken = [fitted(pa.Table.from_batches([each.rows.select(self._rows.names)]), self._rows) for each in there]
            old = pa.concat_tables([old, *taken])
            for number, place in enumerate(place for each in there for place in each.places):
                places[place] = number
        before, after = self._structs(_one(old)).take(pa.array(places, pa.int64())), self._structs(batch)
        start = 0
        for partition, delta in deltas.items():
            count = delta.num_rows
            yield partition, self._changes(*(each.slice(start, count) for each in (batch, before, after)))
            start += count

    def _swept(self, deltas: Mapping[int, pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The changes of each partition, including expired rows, found by reading all its rows."""
        for partition, delta in deltas.items():
            there = _one(self._all_of(partition))
            batch = _one(delta)
            places = _places(there, self._keys, texts_of([batch.column(name) for name in self._keys]))
            before = self._structs(there)
            yield partition, self._changes(batch, before.take(pa.array(places, pa.int64())), self._structs(batch))
            replaced = pa.array([place for place in places if place is not None], pa.int64())
            is_left = pc.invert(pc.is_in(pa.array(range(there.num_rows), pa.int64()), replaced))
            has_expired = pc.fill_null(pc.less_equal(there.column(EXPIRES), self._clock), fill_value=False)
            expired = pc.and_(is_left, has_expired)
            none = pa.nulls(there.num_rows, before.type)
            yield partition, self._changes(there, before, none).filter(expired)
            self._see(there.column(EXPIRES).filter(pc.and_not(is_left, has_expired)))

    def _all_of(self, partition: int) -> pa.Table:
        """The rows of a partition in the version before."""
        layers = self._base.layers.get(partition, ()) if self._base is not None else ()
        if self._base is None or not layers:
            return pa.Table.from_batches([], layer_schema(self._rows))
        tables = tables_of(self._store.client, layers)
        return merged([tables[layer.name] for layer in layers], self._keys, self._base.clock, is_oldest=True)

    def _see(self, expires: pa.Array) -> None:
        found = pc.min_max(expires).as_py()
        if found["min"] is not None:
            first, last = self._expiry or (found["min"], found["max"])
            self._expiry = min(first, found["min"]), max(last, found["max"])

    def _changes(self, rows: pa.RecordBatch, before: pa.StructArray, after: pa.StructArray) -> pa.Table:
        """The changes of the keys of some rows."""
        keys = [rows.column(name) for name in self._keys]
        return pa.Table.from_arrays([*keys, before, after], schema=self._schema)

    def _structs(self, rows: pa.RecordBatch) -> pa.StructArray:
        """The rows of a layer as structs, null for deletions."""
        table = fitted(pa.Table.from_batches([rows]).select(self._rows.names), self._rows)
        columns = [column.chunk(0) for column in table.columns]
        is_none = rows.column(GONE) if GONE in rows.schema.names else None
        return pa.StructArray.from_arrays(columns, fields=[*self._rows], mask=is_none)


def _one(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch."""
    batches = table.to_batches()
    try:
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], table.schema)
    except pa.ArrowInvalid as error:
        raise GridError(
            f"a partition of a map with a journal has more than 2 GB in one column: {error}. Its changes cannot be "
            "found. Write it in a grid of more partitions (grid start --partitions), or without a journal."
        ) from error


def _places(there: pa.RecordBatch, keys: Sequence[str], texts: Sequence[str]) -> list[int | None]:
    """The number of the row that has each key in a partition; None if no row has it."""
    numbered = there.append_column(_NUMBER, pa.array(range(there.num_rows), pa.int64()))
    wanted = [(place, hash_of(text), text) for place, text in enumerate(texts)]
    which, rows = found([[numbered]], keys, [wanted])
    places: list[int | None] = [None] * len(texts)
    for place, row in zip(which, [] if rows is None else rows.column(_NUMBER).to_pylist(), strict=True):
        places[place] = row
    return places
