"""What a journal retains of its rows: by size and age, and for as long as readers need them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from sparkjet_grid.journal_version import LARGEST, Chunk, JournalVersion

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
