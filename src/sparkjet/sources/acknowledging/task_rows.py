"""The rows of a task, which travel with it, so that executors need no access to the driver."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

# Needs neither msgspec nor a broker's client, which executors may not have.
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sparkjet.workers import QuickReader

if TYPE_CHECKING:
    from collections.abc import Iterable

TASK = 1 << 19
"""Approximate number of bytes of a task: Spark warns of tasks beyond a megabyte."""
_ROWS = 20_000
"""The most rows of a task, so that many are read by several cores."""
_AT_ONCE = 1 << 24
"""Bytes of rows that are compressed together."""
_COMPRESSION = "lz4" if pa.Codec.is_available("lz4") else None
"""Queue, exchange and routing key are the same in most rows; a task takes Spark longer than its rows."""


class TaskRows(QuickReader, DataSourceStreamReader):
    """The executors' part of a reader: it unpacks the rows of a task, and plans nothing."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        with pa.ipc.open_stream(partition.value) as stream:
            yield from stream


def tasks(batches: Iterable[pa.RecordBatch]) -> list[InputPartition]:
    """Rows in order, packed into tasks of a sensible size: few or many rows may have arrived together."""
    table = pa.Table.from_batches(batches) if (batches := list(batches)) else None
    if table is None or not len(table):
        return []
    return [InputPartition(packed) for part in _equal(table, max(table.nbytes / _AT_ONCE, 1)) for packed in _fit(part)]


def _fit(rows: pa.Table) -> Iterator[bytes]:
    """Rows in as few tasks as are not too large; by bytes, as one message may be as large as thousands."""
    packed = _packed(rows)
    wanted = max(min(round(len(packed) / TASK), len(rows)), len(rows) / _ROWS)
    if wanted <= 1:
        yield packed
        return
    for part in _equal(rows, wanted):
        yield from _fit(part)


def _equal(rows: pa.Table, count: float) -> Iterator[pa.Table]:
    length = -(-len(rows) // math.ceil(count))
    for start in range(0, len(rows), length):
        yield rows.slice(start, length)


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=_COMPRESSION)) as stream:
        stream.write_table(rows.combine_chunks())
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
