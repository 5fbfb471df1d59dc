"""Versions of a journal in a grid, what its readers hold, and what is said of rows that are lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sparkjet_grid.entries import Key
from sparkjet_grid.errors import GridError, MissingEntriesError
from sparkjet_grid.files import contents_of
from sparkjet_grid.journal_retention import Offsets, lowest
from sparkjet_grid.journal_version import Chunk, JournalVersion
from sparkjet_grid.known_types import known
from sparkjet_grid.messages import Held
from sparkjet_grid.reader_leases import LeaseBook, holder_of
from sparkjet_grid.version_store import VersionStore

_SHOWN = 5
_TRIES = 20


class JournalStore(VersionStore[JournalVersion]):
    """The versions of one journal. See :class:`sparkjet_grid.version_store.VersionStore`."""

    _type = JournalVersion

    def readers(self, book: LeaseBook | None = None) -> dict[str, Offsets]:
        """The readers that are registered, each with the offsets that it needs next."""
        for _ in range(_TRIES):
            if book is None:
                leases = self.client.entries(self.place.leases())
            else:
                leases, ended = book.looked(lambda: self.client.entries(self.place.leases()))
                self.client.remove(ended)
            try:
                contents = contents_of(self.client, leases) if leases else {}
            except MissingEntriesError:
                # One was renewed meanwhile: without another look its reader would be taken for none.
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
        # Two of one name, as while it is renewed: both count.
        found[holder_of(lease)] = lowest([offsets, found.get(holder_of(lease), offsets)])
    return found


def _told(partition: int, chunks: Sequence[Chunk]) -> str:
    rows = sum(chunk.entry.rows for chunk in chunks)
    return (
        f"{rows} rows of its partition {partition}, offsets {chunks[0].first} to {chunks[-1].end - 1}, of epochs "
        f"{chunks[0].first_epoch} to {chunks[-1].last_epoch}"
    )
