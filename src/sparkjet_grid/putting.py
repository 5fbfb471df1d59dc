"""Putting: entries go to the primaries of their partitions, again where the cluster has changed meanwhile."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
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
"""Calls to each member at the same time: one is confirmed while the next is sent."""
_SLOW = 4 << 20
"""Bytes in a second that a connection must carry."""


@dataclass(frozen=True)
class NewEntry:
    """What is to become an entry.

    Attributes:
        key: Where it is to be.
        schema: Of its batches.
        batches: Its rows.
    """

    key: Key
    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Bytes of each batch, about; counting them takes as long as sending a small one."""
        return [batch.nbytes for batch in self.batches]

    @property
    def size(self) -> int:
        """Bytes of its rows, about."""
        return sum(self.sizes)

    @property
    def rows(self) -> int:
        """Number of its rows."""
        return sum(batch.num_rows for batch in self.batches)


class Putting:
    """Puts entries; each is on every replica when it is done.

    Args:
        contact: With the cluster.
    """

    def __init__(self, contact: Contact) -> None:
        self._contact = contact

    def put(self, entries: Sequence[NewEntry]) -> list[Held]:
        """Put entries, and return how they are held, in the same order."""
        held: dict[Key, Held] = {}

        def once() -> None:
            before = len(held)
            try:
                self._put_once([entry for entry in entries if entry.key not in held], held)
            except AWAY:
                self._contact.newer(self._contact.state().version)
                # As long as there is progress, the patience begins anew.
                if len(held) == before:
                    raise

        while any(entry.key not in held for entry in entries):
            self._contact.attempts()(once)
        for entry in entries:
            if held[entry.key].rows != entry.rows:
                raise GridError(f'entry "{entry.key.name}" has {held[entry.key].rows} rows instead of {entry.rows}.')
        return [held[entry.key] for entry in entries]

    def _put_once(self, entries: Sequence[NewEntry], held: dict[Key, Held]) -> None:
        """One attempt for each; all that can be put is, before the first failure is raised."""
        groups = [(member, group) for (member, _), group in grouped(self._addressed(entries))]
        failures: list[GridError] = []
        members, put_group = len({member for member, _ in groups}), in_context(self._put_group)
        with ThreadPoolExecutor(max(1, _AT_ONCE * members), "grid-put") as pool:
            futures = [pool.submit(put_group, member, group) for member, group in groups]
            for future in futures:
                try:
                    held.update((each.key, each) for each in future.result())
                except GridError as error:
                    failures.append(error)
        # What will not be over with a newer state first.
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

    def _addressed(self, entries: Iterable[NewEntry]) -> Iterator[tuple[tuple[str, pa.Schema], NewEntry]]:
        """Entries with the primary that each goes to, and its schema: a call is of one."""
        rows = self._contact.state().rows
        for entry in entries:
            replicas = rows[entry.key.partition].replicas
            if not replicas:
                raise MovedError(f"partition {entry.key.partition} has no members yet.")
            yield (replicas[0], entry.schema), entry
