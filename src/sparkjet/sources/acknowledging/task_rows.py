"""The rows of a task, which travel with it, so that executors need no access to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

# Needs neither msgspec nor a broker's client, which executors may not have.
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sparkjet.sources.workers import begin_task

if TYPE_CHECKING:
    from collections.abc import Iterable

TASK = 1 << 19
"""Approximate number of bytes of rows in a task: Spark warns of tasks beyond a megabyte."""


class TaskRows(DataSourceStreamReader):
    """The executors' part of a reader: it unpacks the rows of a task, and plans nothing."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        with pa.ipc.open_stream(partition.value) as stream:
            yield from stream


def received() -> TaskRows:
    """The reader in a worker, which calls this as it unpickles it."""
    begin_task()
    return TaskRows()


def tasks(batches: Iterable[pa.RecordBatch]) -> list[InputPartition]:
    """Rows in order, packed into tasks of a sensible size: few or many rows may have arrived together."""
    table = pa.Table.from_batches(batches) if (batches := list(batches)) else None
    if table is None or not len(table):
        return []
    return [InputPartition(_packed(part)) for part in _parts(table)]


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows in as few parts as are not too large; by bytes, as one message may be as large as thousands."""
    wanted = min(round(rows.nbytes / TASK), len(rows))
    if wanted <= 1:
        yield rows
        return
    length = -(-len(rows) // wanted)
    for start in range(0, len(rows), length):
        yield from _parts(rows.slice(start, length))


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
