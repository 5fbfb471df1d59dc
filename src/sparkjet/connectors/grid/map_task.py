"""The tasks of the map sink: each has whole partitions of the map, and writes what has changed in them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sparkjet.errors import AnalysisError, StorageError
from sparkjet.storage.grid_location import GridLocation
from sparkjet_grid.fitting import fitted
from sparkjet_grid.known_types import known
from sparkjet_grid.map_layers import GONE, HASH, layer_schema
from sparkjet_grid.map_store import MapStore, Written, write_layers
from sparkjet_grid.map_version import MapVersion
from sparkjet_grid.messages import Held
from sparkjet_grid.places import Place, Writer

_AT_ONCE = 64 << 20
"""Bytes of rows that a task keeps before it writes those of complete partitions."""


class MapTaskError(Exception):
    """The grid does not take the rows of a task; a one-line message for the user."""


class RefusedRowError(Exception):
    """A map does not take some row of a task, and would take the others; also a one-line message."""


@dataclass(frozen=True)
class MapTask:
    """The information for a task; travels to executors.

    Attributes:
        location: The grid.
        place: The map.
        writer: Writer of the map.
        transaction: Name of the transaction.
        base: Manifest of the version that the new one follows; None if it is the first.
        keys: The key columns.
        schema: Schema of the rows, serialized by Arrow.
        clock: Clock of the epoch.
    """

    location: GridLocation
    place: Place
    writer: Writer
    transaction: str
    base: Held | None
    keys: tuple[str, ...]
    schema: bytes
    clock: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task, sorted by partition, and so that the first row of a key counts."""
        try:
            for deltas in self.deltas(batches):
                yield self._write(deltas)
        except (AnalysisError, StorageError) as error:
            # The first, as when an executor has no token.
            raise MapTaskError(str(error)) from error

    def deltas(self, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[int, pa.Table]]:
        """The rows of a task, by partition, each of which comes once."""
        schema = layer_schema(pa.ipc.read_schema(pa.py_buffer(self.schema)))
        pending: dict[int, list[pa.Table]] = {}
        size = 0
        for batch in batches:
            for partition, rows in self._by_partition(batch, schema):
                if size > _AT_ONCE and partition not in pending:
                    yield _joined(pending)
                    pending, size = {}, 0
                pending.setdefault(partition, []).append(rows)
                size += rows.nbytes
        if pending:
            yield _joined(pending)

    def begun(self) -> tuple[MapStore, MapVersion | None]:
        """The map, and the version from which the task continues."""
        store = MapStore(self.location.client, self.place)
        return store, store.continued(self.base, self.writer)

    def _by_partition(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
        *columns, partitions = batch.columns
        if batch.num_rows == 0:
            return
        rows = pa.Table.from_arrays(columns, names=schema.names)
        # Rows that only name a partition do not tell whether they are deletions.
        is_mixed = rows.column(GONE).null_count > 0
        if not is_mixed:
            rows = self._checked(rows, schema)
        runs = pc.run_end_encode(partitions)
        start = 0
        for end, partition in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            own = rows.slice(start, end - start)
            yield partition, self._checked(own.filter(pc.is_valid(own.column(GONE))), schema) if is_mixed else own
            start = end

    def _checked(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        if rows.column(HASH).null_count:
            raise RefusedRowError(self._null_key(rows))
        return fitted(rows, schema)

    def _null_key(self, rows: pa.Table) -> str:
        # Of the keys alone: other columns may have values without a Python equivalent, such as the year 10000.
        row = rows.select(self.keys).filter(pc.is_null(rows.column(HASH)))
        values = {name: _told_of(row.column(name)[0]) for name in self.keys}
        return (
            f'keys: a row of map "{self.place.name}" has the key {values}: without a value it cannot be found. Leave '
            "such rows out with where(…), or give them one with coalesce(…)."
        )

    def _write(self, deltas: dict[int, pa.Table]) -> pa.RecordBatch:
        store, base = self.begun()
        written = write_layers(store.client, self.place, self.transaction, deltas, base, self.keys, self.clock)
        return told([(each, each.rows) for each in written])


def _told_of(value: pa.Scalar) -> object:
    """A value for a message."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        # Text that is not UTF-8, or a year out of Python's range.
        return "…"


def told(written: Sequence[tuple[msgspec.Struct, int]]) -> pa.RecordBatch:
    """A task's report to the driver, each part with the number of changed keys."""
    ids = [b64encode(msgspec.msgpack.encode(each)).decode() for each, _ in written]
    return pa.record_batch({"id": pa.array(ids), "rows": pa.array([rows for _, rows in written], pa.int64())})


def written_by(id_: str) -> Written:
    """A task's report on a partition."""
    return msgspec.msgpack.decode(b64decode(id_), type=known(Written))


def _joined(pending: dict[int, list[pa.Table]]) -> dict[int, pa.Table]:
    return {partition: pa.concat_tables(tables) for partition, tables in pending.items()}
