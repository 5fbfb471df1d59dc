"""A version of a journal: a list of chunks for each partition, in the order of their offsets, and how far epochs came.

Everything here is a function of versions and of a clock reading: no member, no socket and no Spark. An offset is the
end of the partition in the version before, and the number of the row in the order of the manifest: it follows from what
was decided, and no other row ever has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from sparkjet_grid.messages import Held
from sparkjet_grid.places import Version

PARTITION, OFFSET, EPOCH = "_partition", "_offset", "_epoch"
"""Columns after the user's, as readers see them; chunks have only the last one."""
TECHNICAL = (PARTITION, OFFSET, EPOCH)
PROGRESS = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("watermark", pa.int64()),
        pa.field("ends", pa.list_(pa.int64()), nullable=False),
    ]
)
"""Rows of chunks that say how far epochs came."""
FAN = 8
"""So many chunks become one, unless one is more than twice as large as what is newer."""
LARGEST = 8 << 20
"""Bytes of a chunk that is merged no more, unless the journal is small."""
MOST_PROGRESS = 512
"""Rows of a chunk that says how far epochs came."""


class Position(msgspec.Struct, frozen=True):
    """How far the writer was with an epoch.

    Attributes:
        epoch: Of the query that writes.
        watermark: No row of a later epoch is older, but for late ones, in microseconds since 1970; the least there is
            before the first, None where the rows have none.
        ends: Of each partition, the offset after its last row.
    """

    epoch: int
    watermark: int | None
    ends: dict[int, int]


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one partition that follow each other.

    Attributes:
        first: Offset of the first row; of progress, number of the first version.
        first_epoch: Epoch of that row.
        last_epoch: Epoch of the last one.
        clock: Microseconds of that epoch's clock.
        entry: Where they are.
    """

    first: int
    first_epoch: int
    last_epoch: int
    clock: int
    entry: Held

    @property
    def end(self) -> int:
        """The offset after the last row."""
        return self.first + self.entry.rows


class JournalVersion(Version, frozen=True, kw_only=True):
    """One version of a journal, as its manifest has it; ``watermark`` is that of its :class:`Position`.

    Attributes:
        ends: Of each partition, the offset after its last row.
        chunks: Of each partition what is retained, the oldest first.
        progress: How far epochs came that have rows which are retained, the oldest first.
    """

    ends: tuple[int, ...]
    chunks: tuple[tuple[Chunk, ...], ...]
    progress: tuple[Chunk, ...]

    @property
    def partitions(self) -> int:
        """How many there are."""
        return len(self.ends)

    @property
    def position(self) -> Position:
        """How far it comes."""
        return Position(self.epoch, self.watermark, dict(enumerate(self.ends)))

    def base(self, partition: int) -> int:
        """Offset of the first row that is retained; the end if none is."""
        chunks = self.chunks[partition]
        return chunks[0].first if chunks else self.ends[partition]

    def held(self) -> list[Held]:
        """All of its entries."""
        return [chunk.entry for chunks in (*self.chunks, self.progress) for chunk in chunks]

    @property
    def size(self) -> int:
        """Bytes of the rows that are retained."""
        return sum(chunk.entry.size for chunks in self.chunks for chunk in chunks)

    def between(self, partition: int, start: int, end: int) -> list[Chunk]:
        """The chunks with some offsets, in their order."""
        return [chunk for chunk in self.chunks[partition] if chunk.first < end and start < chunk.end]


class Appended(msgspec.Struct, frozen=True, array_like=True):
    """A chunk that was written.

    Attributes:
        partition: The partition.
        rows: How many of its rows are new.
        merged: How many of the chunks that were there are in it.
        chunk: The chunk.
    """

    partition: int
    rows: int
    merged: int
    chunk: Chunk


def to_merge(rows: int, chunks: Sequence[Held], most: int = LARGEST) -> int:
    """How many of the newest chunks a new one takes in: of n rows there are never more than about log n small chunks.

    A reader that follows closely reads rows twice only when chunks are merged.

    >>> def of_rows(*counts):
    ...     return [Held(0, "chunk", rows, 100, "") for rows in counts]
    >>> to_merge(10, of_rows(*[10] * 6)), to_merge(10, of_rows(*[10] * 7)), to_merge(10, of_rows(100, *[10] * 6))
    (0, 7, 0)
    """
    merged = 0
    while True:
        group = chunks[max(0, len(chunks) - merged - FAN + 1) : len(chunks) - merged]
        if len(group) < FAN - 1 or any(each.rows > 2 * rows or each.size > most for each in group):
            return merged
        merged += len(group)
        rows += sum(each.rows for each in group)


def following(version: JournalVersion, appended: Iterable[Appended]) -> JournalVersion:
    """A version with what was appended."""
    chunks, ends = list(version.chunks), list(version.ends)
    for each in appended:
        there = chunks[each.partition]
        chunks[each.partition] = (*there[: len(there) - each.merged], each.chunk)
        ends[each.partition] += each.rows
    return msgspec.structs.replace(version, chunks=tuple(chunks), ends=tuple(ends))


def thinned(progress: pa.Table, most: int = MOST_PROGRESS) -> pa.Table:
    """Progress without epochs that had no rows and were followed by another one: whoever is there, is there as well.

    Of more than ``most`` epochs each second or third is kept, or fewer, and always the newest: who reads the rows of
    the others has the watermark of an epoch before for a little longer, which makes no row late.
    """
    ends = progress.column("ends").to_pylist()
    kept = [place for place, each in enumerate(ends) if place + 1 == len(ends) or ends[place + 1] != each]
    every = -(-len(kept) // most)
    return progress.take(pa.array(kept[::-every][::-1], pa.int64()))


Offsets = dict[int, int]
"""Of some partitions, the offset of the next row that a reader wants."""
Chunks = tuple[tuple[Chunk, ...], ...]
"""By partition, the oldest first."""


class FullError(Exception):
    """A journal has no room for an epoch as long as readers need what is there.

    Attributes:
        size: Bytes that it would take.
        readers: Who needs the oldest rows, and how many they are; empty if the epoch alone is too large.
    """

    def __init__(self, size: int, readers: Mapping[str, int]) -> None:
        super().__init__(size, readers)
        self.size, self.readers = size, dict(readers)


_CHUNKS = 64
"""Of chunks that are merged no more, a partition has about so many."""


@dataclass(frozen=True)
class Retention:
    """What is retained.

    Attributes:
        size: Bytes of rows that stay when nobody needs them.
        age: Microseconds of the epochs' clock for which they stay then; None for ever.
        limit: Bytes that readers may have it retain.
        waits: Whether it waits for them then, rather than letting go what they need.
    """

    size: int = 256 << 20
    age: int | None = None
    limit: int = 512 << 20
    waits: bool = True

    def mergeable(self, partitions: int) -> int:
        """Bytes of a chunk that is merged into another: what is retained goes by whole chunks."""
        return min(LARGEST, self.size // (_CHUNKS * partitions))

    def kept(self, version: JournalVersion, registered: Callable[[], Mapping[str, Offsets]]) -> JournalVersion:
        """A version without the chunks that go, the oldest first; those of its newest epoch stay."""
        since = None if self.age is None else version.clock - self.age
        readers: Mapping[str, Offsets] = {}
        chunks = _trimmed(version.chunks, version.epoch, size=self.size, since=since)
        if chunks != version.chunks:
            readers = registered()
            needed = lowest([*readers.values()])
            chunks = _trimmed(version.chunks, version.epoch, size=self.size, since=since, needed=needed)
        if not self.waits:
            chunks = _trimmed(chunks, version.epoch, size=self.limit)
        size = _size(chunks)
        if size > self.limit:
            # Waiting does not help where the epoch has no room even without them.
            is_readers_fault = _size(_trimmed(chunks, version.epoch, size=self.limit)) <= self.limit
            behind = {
                each: lag(version, offsets) for each, offsets in readers.items() if _holds(chunks, version, offsets)
            }
            raise FullError(size, behind if is_readers_fault else {})
        return msgspec.structs.replace(version, chunks=chunks, progress=_progress_of(version.progress, chunks))


def lag(version: JournalVersion, offsets: Mapping[int, int]) -> int:
    """How many rows there are after some offsets, which may be of a journal that was removed."""
    return sum(max(0, end - offsets.get(partition, end)) for partition, end in enumerate(version.ends))


def lowest(readers: Sequence[Mapping[int, int]]) -> Offsets:
    """Of each partition that a reader names, the lowest offset."""
    found: Offsets = {}
    for offsets in readers:
        for partition, offset in offsets.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def _holds(chunks: Chunks, version: JournalVersion, offsets: Mapping[int, int]) -> bool:
    """Whether a reader needs rows of earlier epochs: those of the newest are visible to nobody yet."""
    return any(
        chunk.last_epoch < version.epoch and chunk.end > offsets.get(partition, chunk.end)
        for partition, each in enumerate(chunks)
        for chunk in each
    )


def _size(chunks: Chunks) -> int:
    return sum(chunk.entry.size for each in chunks for chunk in each)


def _trimmed(
    chunks: Chunks, epoch: int, *, size: int, since: int | None = None, needed: Mapping[int, int] | None = None
) -> Chunks:
    """Chunks without the oldest, whole ones, until the others are few and young enough."""
    left = [list(each) for each in chunks]
    total = _size(chunks)
    for partition, chunk in _oldest_first(chunks):
        is_old = total > size or (since is not None and chunk.clock < since)
        is_needed = needed is not None and partition in needed and chunk.end > needed[partition]
        # Otherwise of a partition something in the middle would go.
        is_next = left[partition][:1] == [chunk]
        if is_old and is_next and not is_needed and chunk.last_epoch < epoch:
            del left[partition][0]
            total -= chunk.entry.size
    return tuple(map(tuple, left))


def _progress_of(progress: Sequence[Chunk], chunks: Chunks) -> tuple[Chunk, ...]:
    """Progress without that of epochs of which no rows are retained; never without the newest."""
    oldest = min((each[0].first_epoch for each in chunks if each), default=None)
    return tuple(
        chunk
        for place, chunk in enumerate(progress)
        if place == len(progress) - 1 or (oldest is not None and chunk.last_epoch >= oldest)
    )


def _oldest_first(chunks: Chunks) -> Iterator[tuple[int, Chunk]]:
    placed = [(partition, chunk) for partition, each in enumerate(chunks) for chunk in each]
    yield from sorted(placed, key=lambda each: (each[1].last_epoch, each[0], each[1].first))
