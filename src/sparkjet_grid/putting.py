"""Putting: entries go to the primaries of their partitions, again if the cluster has changed meanwhile."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from sparkjet_grid.background import in_context
from sparkjet_grid.connections import Sending, grouped
from sparkjet_grid.contact import AWAY, Contact
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import GridError, MovedError
from sparkjet_grid.messages import SLOWEST, Held, Part, Put

_AT_ONCE = 2
"""Simultaneous calls to each member: one is acknowledged while the next is being sent."""
_SLOW = 4 << 20
"""Bytes per second that a connection must carry."""


@dataclass(frozen=True)
class NewEntry:
    """An entry that is to be put.

    Attributes:
        key: Its key.
        schema: Of its batches.
        batches: Its rows.
    """

    key: Key
    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Approximate bytes of each batch; cached, as counting takes as long as sending a small batch."""
        return [batch.nbytes for batch in self.batches]

    @property
    def size(self) -> int:
        """Approximate bytes of its rows."""
        return sum(self.sizes)

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return sum(batch.num_rows for batch in self.batches)


class Putting:
    """Puts entries, each on every replica of its partition.

    Args:
        contact: With the cluster.
    """

    def __init__(self, contact: Contact) -> None:
        self._contact = contact

    def put(self, entries: Sequence[NewEntry]) -> list[Held]:
        """Put entries; returns them as they are held, in the same order."""
        held: dict[Key, Held] = {}

        def once() -> None:
            before = len(held)
            try:
                self._put_once([entry for entry in entries if entry.key not in held], held)
            except AWAY:
                self._contact.newer(self._contact.state().version)
                # Progress restarts the patience.
                if len(held) == before:
                    raise

        while any(entry.key not in held for entry in entries):
            self._contact.attempts()(once)
        for entry in entries:
            if held[entry.key].rows != entry.rows:
                raise GridError(f'entry "{entry.key.name}" has {held[entry.key].rows} rows instead of {entry.rows}.')
        return [held[entry.key] for entry in entries]

    def _put_once(self, entries: Sequence[NewEntry], held: dict[Key, Held]) -> None:
        """Make one attempt for each entry; all that can be put are, before the first failure is raised."""
        groups = self._groups(entries)
        failures: list[GridError] = []
        members, put_group = len({member for member, _ in groups}), in_context(self._put_group)
        with ThreadPoolExecutor(max(1, _AT_ONCE * members), "grid-put") as pool:
            futures = [pool.submit(put_group, member, group) for member, group in groups]
            for future in futures:
                try:
                    held.update((each.key, each) for each in future.result())
                except GridError as error:
                    failures.append(error)
        # First those that a newer state will not mend.
        failures.sort(key=lambda error: isinstance(error, AWAY))
        if failures:
            raise failures[0]

    def _put_group(self, member: str, group: Sequence[NewEntry]) -> list[Held]:
        contact = self._contact
        seconds = min(30.0 + sum(entry.size for entry in group) / _SLOW, SLOWEST)
        sending = Sending(contact.connections, contact.uri(member), Put("", seconds), group[0].schema)
        for entry in group:
            batches = entry.batches or [pa.RecordBatch.from_pylist([], entry.schema)]
            sending.send(Part(entry.key.partition, entry.key.name, len(batches)), batches)
        sending.finish()
        return contact.awaited(sending.answer, member, seconds)

    def _groups(self, entries: Iterable[NewEntry]) -> list[tuple[str, list[NewEntry]]]:
        """Group entries into calls, each to one primary and of one schema."""
        rows = self._contact.state().rows
        addressed: list[tuple[tuple[str, pa.Schema], NewEntry]] = []
        for entry in entries:
            replicas = rows[entry.key.partition].replicas
            if not replicas:
                raise MovedError(f"partition {entry.key.partition} has no members yet.")
            addressed.append(((replicas[0], entry.schema), entry))
        return [(member, group) for (member, _), group in grouped(addressed)]
