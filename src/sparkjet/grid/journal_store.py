"""Versions of a journal in a grid, what its readers hold, and what is said of rows that are lost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sparkjet.grid.entries import Key
from sparkjet.grid.errors import MissingEntriesError
from sparkjet.grid.files import contents_of
from sparkjet.grid.journal_retention import Offsets, lowest
from sparkjet.grid.journal_version import Chunk, JournalVersion
from sparkjet.grid.messages import Held
from sparkjet.grid.reader_leases import LeaseBook, holder_of
from sparkjet.grid.version_store import VersionStore

_SHOWN = 5


class JournalStore(VersionStore[JournalVersion]):
    """The versions of one journal. See :class:`sparkjet.grid.version_store.VersionStore`."""

    _type = JournalVersion

    def readers(self, book: LeaseBook | None = None) -> dict[str, Offsets]:
        """The readers that are registered, each with the offsets that it needs next.

        Args:
            book: Of the writer: those whose registration it takes for given up are none, and are removed.
        """
        leases = self.client.entries(self.place.leases())
        if book is not None:
            leases, ended = book.looked(leases)
            self.client.remove(ended)
        found: dict[str, Offsets] = {}
        for lease, content in self._contents(leases).items():
            offsets = msgspec.msgpack.decode(content, type=Offsets)
            before = found.setdefault(holder_of(lease), offsets)
            # Two of one name, as while it is renewed: both count.
            found[holder_of(lease)] = lowest([before, offsets])
        return found

    def _contents(self, leases: Sequence[Held]) -> dict[Held, bytes]:
        found = {}
        for lease in leases:
            try:
                found[lease] = contents_of(self.client, [lease])[lease.name]
            except MissingEntriesError:
                # Renewed meanwhile.
                continue
        return found

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


def _told(partition: int, chunks: Sequence[Chunk]) -> str:
    rows = sum(chunk.entry.rows for chunk in chunks)
    return (
        f"{rows} rows of its partition {partition}, offsets {chunks[0].first} to {chunks[-1].end - 1}, of epochs "
        f"{chunks[0].first_epoch} to {chunks[-1].last_epoch}"
    )
