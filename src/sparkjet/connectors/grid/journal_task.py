"""The tasks of the journal sink: each has whole partitions of the journal, and appends rows to them."""

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
from sparkjet_grid.journal_store import Appending, JournalStore
from sparkjet_grid.journal_version import Appended
from sparkjet_grid.known_types import known
from sparkjet_grid.messages import Held
from sparkjet_grid.places import Place, Writer

_AT_ONCE = 64 << 20
"""Bytes of rows that a task keeps before it writes them."""


class RefusedEpochError(Exception):
    """The grid does not take the rows; a one-line message for the user."""


@dataclass(frozen=True)
class Appends:
    """The information for a task that appends to a journal; travels to executors.

    Attributes:
        location: The grid.
        place: The journal.
        writer: Writer of the journal.
        transaction: Name of the transaction.
        base: Manifest of the version that the new one follows; None if it is the first.
        epoch: Epoch of the rows.
        clock: Clock of the epoch.
        partitions: Number of partitions of the journal.
        mergeable: Maximum size in bytes of a chunk that is merged into another.
        schema: Schema of the rows, serialized by Arrow.
    """

    location: GridLocation
    place: Place
    writer: Writer
    transaction: str
    base: Held | None
    epoch: int
    clock: int
    partitions: int
    mergeable: int
    schema: bytes

    @property
    def arrow_schema(self) -> pa.Schema:
        """Schema of the rows."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))

    def begun(self) -> Appending:
        """The object that appends them, in a task that has some."""
        client = self.location.client
        base = JournalStore(client, self.place).continued(self.base, self.writer)
        return Appending(client, self.place, self.transaction, base, self.epoch, self.clock, self.mergeable)


@dataclass(frozen=True)
class JournalTask:
    """The information for a task; travels to executors.

    Attributes:
        appends: Where the rows go.
        is_placed: Whether the last column is the partition of a row; otherwise each task has its own partition.
    """

    appends: Appends
    is_placed: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Append the rows of a task, which come partition by partition."""
        schema = self.appends.arrow_schema
        try:
            appending: Appending | None = None
            pending: dict[int, list[pa.Table]] = {}
            size = 0
            for batch in batches:
                for partition, rows in self._by_partition(batch, schema):
                    appending = appending or self.appends.begun()
                    pending.setdefault(partition, []).append(rows)
                    size += rows.nbytes
                    if size > _AT_ONCE:
                        yield _told(appending.append(_tables(pending)))
                        pending, size = {}, 0
            if appending is not None and pending:
                yield _told(appending.append(_tables(pending)))
        except (AnalysisError, StorageError) as error:
            # The first, as when an executor has no token.
            raise RefusedEpochError(str(error)) from error

    def _by_partition(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
        if batch.num_rows == 0:
            return
        columns = batch.columns[: len(schema)]
        rows = fitted(pa.Table.from_arrays(columns, names=schema.names), schema)
        if not self.is_placed:
            yield self._own(), rows
            return
        runs = pc.run_end_encode(batch.columns[-1])
        start = 0
        for end, partition in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield partition, rows.slice(start, end - start)
            start = end

    def _own(self) -> int:
        """The partition of this task: a different one in each epoch, as some tasks always have more rows."""
        from pyspark import TaskContext  # noqa: PLC0415 - in a task only

        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        return (self.appends.epoch + number) % self.appends.partitions


def appended_by(ids: Sequence[str]) -> list[Appended]:
    """The results reported by tasks that appended rows."""
    return [each for id_ in ids for each in msgspec.msgpack.decode(b64decode(id_), type=known(list[Appended]))]


def _tables(pending: dict[int, list[pa.Table]]) -> dict[int, pa.Table]:
    return {partition: pa.concat_tables(tables) for partition, tables in pending.items()}


def _told(appended: Sequence[Appended]) -> pa.RecordBatch:
    rows = sum(each.rows for each in appended)
    return pa.record_batch({"id": [b64encode(msgspec.msgpack.encode(list(appended))).decode()], "rows": [rows]})
