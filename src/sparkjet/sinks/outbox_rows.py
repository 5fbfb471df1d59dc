"""The rows of an outbox entry, read on the driver without Spark, which may read files in another order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyarrow import parquet

from sparkjet.snapshots.outbox_entries import files_of

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkjet.sinks.protocol import Handle
    from sparkjet.storage.directory import Directory


def batches_of(entry: Directory, handle: Handle) -> Iterator[pa.RecordBatch]:
    """All rows of an epoch, in the same order whenever they are read."""
    for name in files_of(handle):
        with entry.open(name) as content, parquet.ParquetFile(content) as file:
            yield from file.iter_batches()


def count_of(entry: Directory, handle: Handle) -> int:
    """The number of rows in the files of an epoch."""
    total = 0
    for name in files_of(handle):
        with entry.open(name) as content, parquet.ParquetFile(content) as file:
            total += file.metadata.num_rows
    return total
