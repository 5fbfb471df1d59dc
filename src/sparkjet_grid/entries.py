"""Entries: what a member holds in its bounded memory, by partition and name."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from typing_extensions import Self

from sparkjet_grid.contents import Content
from sparkjet_grid.errors import DifferentContentError, GridFullError


class Key(NamedTuple):
    """The key of an entry: its partition and its name, any text with ``/`` between its parts."""

    partition: int
    name: str


def key_of(name: str, partitions: int) -> Key:
    """The key of an entry whose partition follows from its name.

    >>> key_of("home/blobs/a", 271)
    Key(partition=15, name='home/blobs/a')
    """
    return Key(zlib.crc32(name.encode()) % partitions, name)


class Entries:
    """The entries of one member. Thread-safe.

    An entry never changes: putting the same content again changes nothing, and another content is refused.

    Args:
        limit: Bytes that all entries together may take.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.RLock()
        self._by_partition: dict[int, dict[str, Content]] = {}
        self._used = 0

    @property
    def used(self) -> int:
        """Bytes in use, including entries that are arriving."""
        return self._used

    def reserve(self) -> Reservation:
        """Reserve memory for arriving entries."""
        return Reservation(self)

    def get(self, key: Key) -> Content | None:
        """The content of an entry; None if there is none."""
        with self._lock:
            return self._by_partition.get(key.partition, {}).get(key.name)

    def listed(self, partitions: Iterable[int] | None = None, prefix: str = "") -> list[tuple[Key, Content]]:
        """The entries of some partitions, or of all, whose names begin with a prefix, ascending."""
        with self._lock:
            chosen = sorted(self._by_partition if partitions is None else set(partitions) & set(self._by_partition))
            return [
                (Key(partition, name), content)
                for partition in chosen
                for name, content in sorted(self._by_partition[partition].items(), key=lambda item: item[0])
                if name.startswith(prefix)
            ]

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove entries, some of which may be missing."""
        with self._lock:
            for partition, name in keys:
                content = self._by_partition.get(partition, {}).pop(name, None)
                if content is not None:
                    self._used -= content.size
                    if not self._by_partition[partition]:
                        del self._by_partition[partition]

    def remove_below(self, prefix: str) -> None:
        """Remove all entries whose names begin with a prefix."""
        with self._lock:
            self.remove([key for key, _ in self.listed(prefix=prefix)])

    def drop(self, partition: int) -> None:
        """Remove all entries of a partition."""
        with self._lock:
            self._used -= sum(content.size for content in self._by_partition.pop(partition, {}).values())

    def partitions(self) -> list[int]:
        """The partitions that have entries."""
        with self._lock:
            return sorted(self._by_partition)

    def __iter__(self) -> Iterator[Key]:
        return iter([key for key, _ in self.listed()])

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._by_partition.values()))

    def take(self, size: int) -> None:
        """Reserve memory; see :meth:`Reservation.take`."""
        with self._lock:
            if self._used + size > self.limit:
                raise GridFullError(
                    f"--max-memory: {size} bytes more than the {self._used} that are taken would exceed {self.limit}. "
                    "Nothing was stored, and what was stays. Start members with more memory, or more members."
                )
            self._used += size

    def give_back(self, size: int) -> None:
        """Give back memory that was reserved in vain."""
        with self._lock:
            self._used -= size

    def put(self, key: Key, content: Content) -> bool:
        """Store a content for which memory was reserved; see :meth:`Reservation.store`."""
        with self._lock:
            held = self._by_partition.setdefault(key.partition, {}).setdefault(key.name, content)
            if (held.digest, held.rows, held.schema) != (content.digest, content.rows, content.schema):
                message = f'there is an entry "{key.name}" with another content in partition {key.partition}.'
                raise DifferentContentError(message)
            return held is content


class Reservation:
    """Memory reserved for arriving entries; on exit, what has not become an entry is given back.

    Args:
        entries: Where they are stored.
    """

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._taken = 0

    def take(self, size: int) -> None:
        """Reserve memory before anything is kept in it."""
        self._entries.take(size)
        self._taken += size

    def store(self, key: Key, content: Content) -> bool:
        """Store a content for which memory was reserved; returns whether the entry is new."""
        is_new = self._entries.put(key, content)
        if is_new:
            self._taken -= content.size
        return is_new

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._entries.give_back(self._taken)
        self._taken = 0
