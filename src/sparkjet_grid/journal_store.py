"""Versions of a journal in a grid: what tasks append, what readers hold, and what is said of lost rows."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from sparkjet_grid.client import GridClient
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import GridError, MissingEntriesError
from sparkjet_grid.files import contents_of
from sparkjet_grid.journal_version import (
    EPOCH,
    LARGEST,
    PROGRESS,
    Appended,
    Chunk,
    JournalVersion,
    Offsets,
    lowest,
    thinned,
    to_merge,
)
from sparkjet_grid.known_types import known
from sparkjet_grid.messages import Held
from sparkjet_grid.places import Place
from sparkjet_grid.putting import NewEntry
from sparkjet_grid.reader_leases import LeaseBook, holder_of
from sparkjet_grid.version_store import VersionStore, batches_of, tables_of

_SHOWN = 5
_TRIES = 20


class JournalStore(VersionStore[JournalVersion]):
    """The versions of one journal. See :class:`sparkjet_grid.version_store.VersionStore`."""

    _type = JournalVersion

    def readers(self, book: LeaseBook | None = None) -> dict[str, Offsets]:
        """The registered readers, each with the offsets that it needs next."""
        for _ in range(_TRIES):
            if book is None:
                leases = self.client.entries(self.place.leases())
            else:
                leases, ended = book.inspect(lambda: self.client.entries(self.place.leases()))
                self.client.remove(ended)
            try:
                contents = contents_of(self.client, leases) if leases else {}
            except MissingEntriesError:
                # One was renewed meanwhile: without another look its reader would be missed.
                continue
            return _by_reader(leases, contents)
        raise GridError(f"the readers of {self.place} register faster than they can be read.")

    def _lost_of(self, version: JournalVersion, lost: Sequence[Key]) -> str:
        keys = set(lost)
        told = [
            _told(partition, [chunk for chunk in chunks if chunk.entry.key in keys])
            for partition, chunks in enumerate(version.chunks)
            if keys & {chunk.entry.key for chunk in chunks}
        ]
        if not told:
            return f"with what says how far its epochs came (its newest is {version.epoch})"
        more = f"; and of {len(told) - _SHOWN} more partitions" if len(told) > _SHOWN else ""
        return f"with {'; '.join(told[:_SHOWN])}{more} (its newest epoch is {version.epoch})"


def _by_reader(leases: Sequence[Held], contents: Mapping[str, bytes]) -> dict[str, Offsets]:
    found: dict[str, Offsets] = {}
    for lease in leases:
        offsets = msgspec.msgpack.decode(contents[lease.name], type=known(Offsets))
        # Two of one name, as during a renewal: both count.
        found[holder_of(lease)] = lowest([offsets, found.get(holder_of(lease), offsets)])
    return found


def _told(partition: int, chunks: Sequence[Chunk]) -> str:
    rows = sum(chunk.entry.rows for chunk in chunks)
    return (
        f"{rows} rows of its partition {partition}, offsets {chunks[0].first} to {chunks[-1].end - 1}, of epochs "
        f"{chunks[0].first_epoch} to {chunks[-1].last_epoch}"
    )


class Appending:
    """Appends rows to partitions that no other task appends to in this transaction.

    Each attempt of a task writes under unique names; entries that no manifest names are removed later.

    Args:
        client: Of the grid.
        place: Of the journal.
        transaction: Name of the transaction.
        base: The version before the new one; None if that is the first.
        epoch: Of the rows.
        clock: Of the epoch.
        mergeable: Largest chunk, in bytes, that is merged into another.
    """

    def __init__(
        self,
        client: GridClient,
        place: Place,
        transaction: str,
        base: JournalVersion | None,
        epoch: int,
        clock: int,
        mergeable: int = LARGEST,
    ) -> None:
        self._client, self._place, self._transaction = client, place, transaction
        self._base, self._epoch, self._clock = base, epoch, clock
        self._mergeable = mergeable
        self._ends: dict[int, int] = {}

    def append(self, rows: Mapping[int, pa.Table]) -> list[Appended]:
        """Append rows to some partitions; the first time that one is appended to, its newest chunks are merged in."""
        is_first = {partition: partition not in self._ends for partition in rows}
        there = {
            partition: self._base.chunks[partition] if self._base is not None and is_first[partition] else ()
            for partition in rows
        }
        taken = {
            partition: _taken(there[partition], table.num_rows, self._mergeable) for partition, table in rows.items()
        }
        older = tables_of(self._client, [chunk.entry for chunks in taken.values() for chunk in chunks])
        entries = []
        for partition, table in rows.items():
            new = table.append_column(
                pa.field(EPOCH, pa.int64(), nullable=False), pa.repeat(pa.scalar(self._epoch), table.num_rows)
            )
            merged = pa.concat_tables([*(older[chunk.entry.name] for chunk in taken[partition]), new])
            entries.append(self._entry(f"{partition}-{uuid.uuid4().hex}", merged, partition))
        appended = []
        for (partition, table), held in zip(rows.items(), self._client.put(entries), strict=True):
            before = self._base.ends[partition] if self._base is not None else 0
            first = self._ends.get(partition, before)
            self._ends[partition] = first + table.num_rows
            chunk = _chunk(taken[partition], first, self._epoch, self._clock, held)
            appended.append(Appended(partition, table.num_rows, len(taken[partition]), chunk))
        return appended

    def with_progress(self, version: JournalVersion) -> JournalVersion:
        """Add the position of a version's own epoch to its progress."""
        there = version.progress
        row = {"epoch": version.epoch, "watermark": version.watermark, "ends": [*version.ends]}
        new = pa.Table.from_pylist([row], PROGRESS)
        # Of any size in bytes: their number of rows is bounded.
        taken = _taken(there, 1, sys.maxsize)
        older = tables_of(self._client, [chunk.entry for chunk in taken])
        merged = thinned(pa.concat_tables([*(older[chunk.entry.name] for chunk in taken), new]))
        [held] = self._client.put([self._entry(f"progress-{uuid.uuid4().hex}", merged, 0)])
        chunk = _chunk(taken, version.number, self._epoch, self._clock, held)
        return msgspec.structs.replace(version, progress=(*there[: len(there) - len(taken)], chunk))

    def _entry(self, name: str, rows: pa.Table, partition: int) -> NewEntry:
        where = self._client.key(self._place.root).partition + partition
        where %= len(self._client.state().rows)
        name = f"{self._place.layers(self._transaction)}{name}"
        return self._client.entry(name, rows.schema, batches_of(rows), where)


def _taken(chunks: Sequence[Chunk], rows: int, most: int) -> Sequence[Chunk]:
    """The newest chunks, which are merged with this number of new rows."""
    count = to_merge(rows, [chunk.entry for chunk in chunks], most)
    return chunks[len(chunks) - count :]


def _chunk(taken: Sequence[Chunk], first: int, epoch: int, clock: int, held: Held) -> Chunk:
    if not taken:
        return Chunk(first, epoch, epoch, clock, held)
    return Chunk(taken[0].first, taken[0].first_epoch, epoch, clock, held)
