"""The client of a grid: what Spark's driver and its Python workers use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
from typing_extensions import Self

from sparkjet_grid.access import Access
from sparkjet_grid.background import in_background, in_context
from sparkjet_grid.cluster_state import ClusterState
from sparkjet_grid.connections import Fetched
from sparkjet_grid.contact import Contact
from sparkjet_grid.entries import Key, key_of
from sparkjet_grid.errors import GridError, MissingEntriesError, MovedError, StaleStateError
from sparkjet_grid.finding import Finding, Found
from sparkjet_grid.getting import Counters, Getting, missing_text
from sparkjet_grid.messages import (
    MOST,
    GetContacts,
    GetLastSlot,
    GetSlot,
    GetSlots,
    GetStatus,
    Held,
    LastSlot,
    Listed,
    ListEntries,
    Lookup,
    PutSlot,
    Remove,
    RemoveSlots,
    SlotToken,
    Status,
    Unheld,
    Verify,
)
from sparkjet_grid.putting import NewEntry, Putting

PATIENCE = 60.0
"""Seconds until a grid is given up."""
LARGEST_BATCH = 512 << 20
_AT_ONCE = 8
_REPEATS = 100
_SHOWS_WITHIN = 5.0
"""Seconds in which a member says how it is."""


class GridClient:
    """Reads and writes entries and slots of a grid, of which it knows some members. Thread-safe.

    Every call waits for the patience at most, while members come and go; then the grid is given up.

    Args:
        addresses: Of some members, as ``host:port``.
        access: Where token and certificates are.
        host: Name of this machine as its member has it; found out by default.
        patience: Seconds.
        cluster: Id of the grid; by default that of the members that answer first.

    Raises:
        AnalysisError: An address is not one, or there is no token.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        access: Access,
        *,
        host: str | None = None,
        patience: float = PATIENCE,
        cluster: str | None = None,
    ) -> None:
        self._contact = Contact(addresses, access, host, patience, cluster)
        self.counters = Counters()
        """What was got from where."""

    def state(self) -> ClusterState:
        """The newest state that a member knows."""
        return self._contact.attempts()(lambda: self._contact.newer(-1, 0.0))

    def entry(
        self, name: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch], partition: int | None = None
    ) -> NewEntry:
        """What :meth:`put` takes: in a partition of its own choice, or in one that follows from its name."""
        count = len(self._contact.state().rows)
        if partition is not None and partition not in range(count):
            raise GridError(f'partition {partition} of "{name}" does not exist: the grid has {count}, from 0.')
        entry = NewEntry(self.key(name) if partition is None else Key(partition, name), schema, batches)
        largest = max(entry.sizes, default=0)
        if largest > LARGEST_BATCH:
            raise GridError(
                f'a batch of "{name}" has {largest} bytes: Flight sends each in one message, and {LARGEST_BATCH} are '
                "the most for a grid. Split it into several."
            )
        return entry

    def key(self, name: str) -> Key:
        """Where an entry is whose partition follows from its name."""
        return key_of(name, len(self._contact.state().rows))

    def put(self, entries: Sequence[NewEntry]) -> list[Held]:
        """Put entries onto all replicas of their partitions; returns how they are held, in the same order.

        What is put again with the same content is no change. After an error some may be there: remove them by their
        names.
        """
        return Putting(self._contact).put(entries)

    def get(self, manifest: Sequence[Held]) -> Iterator[Fetched]:
        """Entries, in any order, from replicas on this host first; compared with the digests of the manifest."""
        return Getting(self._contact, self.counters).get(manifest)

    def find(self, columns: Sequence[str], lookups: Sequence[Lookup]) -> list[Found]:
        """The newest rows of the keys of a map, in any order; members look for them."""
        return Finding(self._contact).find(columns, lookups)

    def unheld(self, manifest: Sequence[Held], state: ClusterState | None = None) -> dict[Key, set[str]]:
        """Entries that are not on all replicas in sync, with the ids of those that lack them."""
        if state is None:
            return self._contact.attempts()(lambda: self.unheld(manifest, self.state()))
        by_member: dict[str, list[Held]] = {}
        found: dict[Key, set[str]] = {}
        for held in manifest:
            replicas = state.rows[held.partition].replicas
            for member in replicas:
                by_member.setdefault(member, []).append(held)
            if not replicas:
                found[held.key] = set()
        calls = [
            (member, Verify(group[start : start + MOST]))
            for member, group in by_member.items()
            for start in range(0, len(group), MOST)
        ]
        with ThreadPoolExecutor(_AT_ONCE, "grid-verify") as pool:
            for (member, _), keys in zip(calls, pool.map(in_context(self._verify), calls), strict=True):
                for key in keys:
                    found.setdefault(key, set()).add(member)
        if self._contact.is_replaced(state.version, sorted({each for members in found.values() for each in members})):
            raise MovedError(f"the cluster's state {state.version} has been replaced.")
        return found

    def lost(self, manifest: Sequence[Held]) -> list[Key]:
        """Entries that are on no replica."""

        def once() -> list[Key]:
            state = self.state()
            unheld = self.unheld(manifest, state)
            return [key for key, members in unheld.items() if members >= set(state.rows[key.partition].replicas)]

        return self._contact.attempts()(once)

    def check(self, manifest: Sequence[Held]) -> None:
        """Refuse a manifest of which entries are lost."""
        lost = self.lost(manifest)
        if lost:
            raise MissingEntriesError(missing_text(self._contact, lost))

    def put_slot(self, name: str, token: bytes, manifest: Sequence[Held]) -> bool:
        """Write a slot if it is free, and all replicas hold the manifest; whether the token is the slot's.

        Tokens must be unlike anyone else's: where an answer was lost, the slot itself tells who has won.
        """
        asked = False

        def once() -> bool:
            nonlocal asked
            # An earlier attempt may have written it, though its answer was lost.
            held = self.slot(name) if asked else None
            if held is not None:
                return held == token
            state = self.state()
            unheld = self.unheld(manifest, state)
            if unheld:
                raise MissingEntriesError(missing_text(self._contact, list(unheld)))
            asked = True
            try:
                return self._contact.ask_once(PutSlot(name, token, state.version), bool)
            except StaleStateError as error:
                raise MovedError(str(error)) from error

        return self._contact.attempts()(once)

    def slot(self, name: str) -> bytes | None:
        """The token of a slot; None if it is free."""
        return self._contact.ask(GetSlot(name), SlotToken).token

    def last_slot(self, directory: str) -> tuple[str, bytes] | None:
        """The last slot of a directory, in the order of names, and its token; None if there is none."""
        found = self._contact.ask(GetLastSlot(directory), LastSlot)
        return None if found.name is None else (found.name, found.token)

    def slots(self, directory: str = "") -> list[str]:
        """Names of the slots below a directory, ascending."""
        return self._contact.ask(GetSlots(directory), list[str])

    def remove_slots(self, names: Sequence[str]) -> None:
        """Remove slots, of which some may be free."""
        for start in range(0, len(names), MOST):
            self._contact.ask(RemoveSlots(list(names[start : start + MOST])), int)

    def lost_text(self, partitions: Sequence[int]) -> tuple[str, str]:
        """See :meth:`Contact.lost_text`."""
        self.state()
        return self._contact.lost_text(partitions)

    def contacts(self) -> list[str]:
        """What another member must know to join; nothing if none can."""
        return self._contact.ask(GetContacts(), list[str])

    def entries(self, prefix: str = "") -> list[Held]:
        """The entries whose names begin with a prefix, as the primaries hold them, in ascending order of names."""
        return self._contact.attempts()(lambda: self._list_once(prefix))

    def remove(self, keys: Sequence[Key] = (), prefix: str | None = None) -> None:
        """Remove entries, of which some may be missing, and all whose names begin with a prefix, on all members."""
        requests = [Remove(list(keys[start : start + MOST])) for start in range(0, len(keys), MOST)]
        if prefix is not None:
            requests.append(Remove([], prefix))
        for request in requests:
            self._contact.attempts()(self._remove_once, request)

    def status(self) -> dict[str, Status | GridError]:
        """How the members are, by their ids, or why they do not answer; also in a grid that has lost its majority."""
        state, ask = self._contact.any_status().state, self._contact.connections.ask
        # At once: each that is paused, or gone, is waited for.
        answers = {
            member.id: in_background(
                partial(ask, member.uri, GetStatus(), Status, _SHOWS_WITHIN), f"grid-status-{member.id}"
            )
            for member in state.members
        }
        found: dict[str, Status | GridError] = {}
        for id_, answer in answers.items():
            try:
                found[id_] = answer.result()
            except GridError as error:
                found[id_] = error
        return found

    def close(self) -> None:
        """End the connections; a call after that opens new ones."""
        self._contact.connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _verify(self, call: tuple[str, Verify]) -> list[Key]:
        member, request = call
        return self._contact.connections.ask(self._contact.uri(member), request, Unheld).keys

    def _list_once(self, prefix: str) -> list[Held]:
        state = self.state()
        by_primary: dict[str, dict[int, int]] = {}
        for partition, row in enumerate(state.rows):
            if row.replicas:
                by_primary.setdefault(row.replicas[0], {})[partition] = row.version
        answers = [
            in_background(partial(self._listed, member, ListEntries(prefix, rows)), f"grid-list-{member}")
            for member, rows in by_primary.items()
        ]
        found = [held for answer in answers for held in answer.result()]
        # A primary that has not heard of its successor would not have what was put since, such as a reader's lease.
        if self._contact.is_replaced(state.version, [member.id for member in state.members]):
            raise MovedError(f"the cluster's state {state.version} has been replaced.")
        return sorted(found, key=lambda held: (held.name, held.partition))

    def _listed(self, member: str, request: ListEntries) -> list[Held]:
        answers = self._contact.connections.answers(self._contact.uri(member), request, Listed)
        return [held for listed in answers for held in listed.held]

    def _remove_once(self, request: Remove) -> None:
        state, ask = self.state(), self._contact.connections.ask
        for _ in range(_REPEATS):
            answers = [
                in_background(partial(ask, member.uri, request, int), f"grid-remove-{member.id}")
                for member in state.members
            ]
            newest = max(answer.result() for answer in answers)
            if newest <= state.version:
                return
            # Who has joined since may have copied what others had not removed yet.
            state = self._contact.newer(state.version)
