"""A version of a journal: the chunks of each partition in the order of offsets, their retention, and its progress.

Everything here is a function of versions and a clock reading, without members, sockets or Spark. The offset of a row is
the end of its partition in the version before, plus its number in the order of the manifest: it follows from what was
decided, and no other row ever has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from sparkjet_grid.messages import Held
from sparkjet_grid.places import Version

PARTITION, OFFSET, EPOCH = "_partition", "_offset", "_epoch"
"""Columns that readers see after the user's; chunks have only the last one."""
TECHNICAL = (PARTITION, OFFSET, EPOCH)
PROGRESS = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("watermark", pa.int64()),
        pa.field("ends", pa.list_(pa.int64()), nullable=False),
    ]
)
"""The schema of progress: the position of the writer after each epoch."""
FAN = 8
"""Number of chunks that are merged into one, unless one has more than twice the rows of what is newer."""
LARGEST = 8 << 20
"""Bytes of a chunk from which on it is not merged again, unless the journal is small."""
MOST_PROGRESS = 512
"""Rows of a chunk of progress."""
_CHUNKS = 64
"""About how many chunks that are not merged again a partition has."""


class Position(msgspec.Struct, frozen=True):
    """The position of the writer after an epoch.

    Attributes:
        epoch: Of the writing query.
        watermark: Rows of later epochs are not older, except late ones; in microseconds since 1970. The least integer
            before the first watermark, None if the rows have none.
        ends: Of each partition, the offset after its last row.
    """

    epoch: int
    watermark: int | None
    ends: dict[int, int]


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive rows of one partition.

    Attributes:
        first: Offset of the first row; for progress, the number of the first version.
        first_epoch: Epoch of the first row.
        last_epoch: Epoch of the last row.
        clock: Microseconds of the last epoch's clock.
        entry: The entry that has the rows.
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
        chunks: Retained chunks of each partition, the oldest first.
        progress: Positions after the epochs with retained rows, the oldest first.
    """

    ends: tuple[int, ...]
    chunks: tuple[tuple[Chunk, ...], ...]
    progress: tuple[Chunk, ...]

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.ends)

    @property
    def position(self) -> Position:
        """The position after the newest epoch."""
        return Position(self.epoch, self.watermark, dict(enumerate(self.ends)))

    def base(self, partition: int) -> int:
        """The offset of the first retained row of a partition; its end if none is retained."""
        chunks = self.chunks[partition]
        return chunks[0].first if chunks else self.ends[partition]

    def held(self) -> list[Held]:
        """All its entries."""
        return [chunk.entry for chunks in (*self.chunks, self.progress) for chunk in chunks]

    @property
    def size(self) -> int:
        """Bytes of the retained rows."""
        return sum(chunk.entry.size for chunks in self.chunks for chunk in chunks)

    def between(self, partition: int, start: int, end: int) -> list[Chunk]:
        """The chunks that have some of a range of offsets, in order."""
        return [chunk for chunk in self.chunks[partition] if chunk.first < end and start < chunk.end]


class Appended(msgspec.Struct, frozen=True, array_like=True):
    """A chunk that was appended.

    Attributes:
        partition: The partition.
        rows: Number of its rows that are new.
        merged: Number of older chunks that are merged into it.
        chunk: The chunk.
    """

    partition: int
    rows: int
    merged: int
    chunk: Chunk


def to_merge(rows: int, chunks: Sequence[Held], most: int = LARGEST) -> int:
    """How many of the newest chunks are merged into a new one: n rows have no more than about log n small chunks.

    A reader that keeps up reads rows twice only when chunks are merged.

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
    """The version that follows from appended chunks."""
    chunks, ends = list(version.chunks), list(version.ends)
    for each in appended:
        there = chunks[each.partition]
        chunks[each.partition] = (*there[: len(there) - each.merged], each.chunk)
        ends[each.partition] += each.rows
    return msgspec.structs.replace(version, chunks=tuple(chunks), ends=tuple(ends))


def thinned(progress: pa.Table, most: int = MOST_PROGRESS) -> pa.Table:
    """Drop epochs from progress whose successor has the same ends: a reader that has reached one has reached the other.

    Of more than ``most`` epochs every second, third or nth is kept, and always the newest. A reader of the rows of
    others keeps an earlier watermark for a little longer, which makes no row late.
    """
    ends = progress.column("ends").to_pylist()
    kept = [place for place, each in enumerate(ends) if place + 1 == len(ends) or ends[place + 1] != each]
    every = -(-len(kept) // most)
    return progress.take(pa.array(kept[::-every][::-1], pa.int64()))


Offsets = dict[int, int]
"""The offset of the next row that a reader needs, by partition."""
Chunks = tuple[tuple[Chunk, ...], ...]
"""The chunks of each partition, oldest first."""


class FullError(Exception):
    """A journal has no room for an epoch while readers need what it retains.

    Attributes:
        size: Bytes that the journal would take.
        readers: By reader that holds back retention, its number of unread rows; empty if the epoch alone is too large.
    """

    def __init__(self, size: int, readers: Mapping[str, int]) -> None:
        super().__init__(size, readers)
        self.size, self.readers = size, dict(readers)


@dataclass(frozen=True)
class Retention:
    """The retention of a journal.

    Attributes:
        size: Bytes of rows that are retained though no reader needs them.
        age: Microseconds, by the epochs' clock, for which these are retained; None for no limit.
        limit: Bytes that are retained at most for readers.
        waits: Whether the writer then waits for readers, rather than dropping rows that they need.
    """

    size: int = 256 << 20
    age: int | None = None
    limit: int = 512 << 20
    waits: bool = True

    def mergeable(self, partitions: int) -> int:
        """The largest chunk, in bytes, that is merged into another: rows are dropped by whole chunks."""
        return min(LARGEST, self.size // (_CHUNKS * partitions))

    def kept(self, version: JournalVersion, registered: Callable[[], Mapping[str, Offsets]]) -> JournalVersion:
        """Drop the chunks that are not retained, the oldest first; those of the newest epoch stay."""
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
    """The number of rows after some offsets, which may be those of a journal that was removed."""
    return sum(max(0, end - offsets.get(partition, end)) for partition, end in enumerate(version.ends))


def lowest(readers: Sequence[Mapping[int, int]]) -> Offsets:
    """The lowest offset of any reader, by partition."""
    found: Offsets = {}
    for offsets in readers:
        for partition, offset in offsets.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def _holds(chunks: Chunks, version: JournalVersion, offsets: Mapping[int, int]) -> bool:
    """Whether a reader needs rows of earlier epochs; those of the newest are not visible yet."""
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
    """Drop whole chunks, the oldest first, until the others are small and young enough."""
    left = [list(each) for each in chunks]
    total = _size(chunks)
    for partition, chunk in _oldest_first(chunks):
        is_old = total > size or (since is not None and chunk.clock < since)
        is_needed = needed is not None and partition in needed and chunk.end > needed[partition]
        # Otherwise a gap would arise in the middle of a partition.
        is_next = left[partition][:1] == [chunk]
        if is_old and is_next and not is_needed and chunk.last_epoch < epoch:
            del left[partition][0]
            total -= chunk.entry.size
    return tuple(map(tuple, left))


def _progress_of(progress: Sequence[Chunk], chunks: Chunks) -> tuple[Chunk, ...]:
    """Drop the progress of epochs without retained rows, except that of the newest."""
    oldest = min((each[0].first_epoch for each in chunks if each), default=None)
    return tuple(
        chunk
        for place, chunk in enumerate(progress)
        if place == len(progress) - 1 or (oldest is not None and chunk.last_epoch >= oldest)
    )


def _oldest_first(chunks: Chunks) -> Iterator[tuple[int, Chunk]]:
    placed = [(partition, chunk) for partition, each in enumerate(chunks) for chunk in each]
    yield from sorted(placed, key=lambda each: (each[1].last_epoch, each[0], each[1].first))
