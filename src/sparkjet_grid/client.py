"""The client of a grid, for Spark's driver, its Python workers, and processes without Spark."""

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
"""Seconds after which a call to a grid gives up."""
LARGEST_BATCH = 512 << 20
_AT_ONCE = 8
_REPEATS = 100
_SHOWS_WITHIN = 5.0
"""Seconds that a member has to report its status."""


class GridClient:
    """Reads and writes entries and slots of a grid, found by some of its members. Thread-safe.

    While members come and go, every call is retried, for as long as ``patience``.

    Args:
        addresses: Of some members, as ``host:port``.
        access: Where token and certificates are.
        host: Name of this machine, as given to the member on it; the host name by default.
        patience: Seconds after which a call gives up.
        cluster: Id of the grid; by default that of the first members to answer.

    Raises:
        AnalysisError: An address is malformed, or there is no token.
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
        """Counts of what was fetched from where."""

    def state(self) -> ClusterState:
        """The newest state, asked for now."""
        return self._contact.attempts()(lambda: self._contact.newer(-1, 0.0))

    def entry(
        self, name: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch], partition: int | None = None
    ) -> NewEntry:
        """An entry for :meth:`put`, in a given partition, or in the one that follows from its name."""
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
        """The key of an entry whose partition follows from its name."""
        return key_of(name, len(self._contact.state().rows))

    def put(self, entries: Sequence[NewEntry]) -> list[Held]:
        """Put entries on all replicas of their partitions; returns them as they are held, in the same order.

        Putting the same content again changes nothing. After an error some may be stored: remove them by name.
        """
        return Putting(self._contact).put(entries)

    def get(self, manifest: Sequence[Held]) -> Iterator[Fetched]:
        """Fetch entries in any order, replicas on this host first, and compare them with the manifest's digests."""
        return Getting(self._contact, self.counters).get(manifest)

    def find(self, columns: Sequence[str], lookups: Sequence[Lookup]) -> list[Found]:
        """Find the newest rows of some keys of a map, in any order; the search is done by the members."""
        return Finding(self._contact).find(columns, lookups)

    def unheld(self, manifest: Sequence[Held], state: ClusterState | None = None) -> dict[Key, set[str]]:
        """The entries that some in-sync replica lacks, with the ids of these members."""
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
        """The entries that no replica holds."""

        def once() -> list[Key]:
            state = self.state()
            unheld = self.unheld(manifest, state)
            return [key for key, members in unheld.items() if members >= set(state.rows[key.partition].replicas)]

        return self._contact.attempts()(once)

    def check(self, manifest: Sequence[Held]) -> None:
        """Raise an error if entries of a manifest are lost."""
        lost = self.lost(manifest)
        if lost:
            raise MissingEntriesError(missing_text(self._contact, lost))

    def put_slot(self, name: str, token: bytes, manifest: Sequence[Held]) -> bool:
        """Write a slot if it is free and all replicas hold the manifest; returns whether the slot has this token.

        Tokens must be unique: where an answer was lost, the slot itself tells who has won.
        """
        asked = False

        def once() -> bool:
            nonlocal asked
            # An earlier attempt may have written it, and its answer was lost.
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
        """The name and token of the last slot of a directory, in the order of names; None if the directory is empty."""
        found = self._contact.ask(GetLastSlot(directory), LastSlot)
        return None if found.name is None else (found.name, found.token)

    def slots(self, directory: str = "") -> list[str]:
        """The names of the slots below a directory, ascending."""
        return self._contact.ask(GetSlots(directory), list[str])

    def remove_slots(self, names: Sequence[str]) -> None:
        """Remove slots, some of which may be free already."""
        for start in range(0, len(names), MOST):
            self._contact.ask(RemoveSlots(list(names[start : start + MOST])), int)

    def lost_text(self, partitions: Sequence[int]) -> tuple[str, str]:
        """See :meth:`Contact.lost_text`."""
        self.state()
        return self._contact.lost_text(partitions)

    def contacts(self) -> list[str]:
        """The addresses that another member needs to join; empty if none can."""
        return self._contact.ask(GetContacts(), list[str])

    def entries(self, prefix: str = "") -> list[Held]:
        """The entries whose names begin with a prefix, as their primaries hold them, ascending by name."""
        return self._contact.attempts()(lambda: self._list_once(prefix))

    def remove(self, keys: Sequence[Key] = (), prefix: str | None = None) -> None:
        """Remove entries, some of which may be missing, and all whose names begin with a prefix, from all members."""
        requests = [Remove(list(keys[start : start + MOST])) for start in range(0, len(keys), MOST)]
        if prefix is not None:
            requests.append(Remove([], prefix))
        for request in requests:
            self._contact.attempts()(self._remove_once, request)

    def status(self) -> dict[str, Status | GridError]:
        """The status of each member by its id, or why it does not answer; works without a majority as well."""
        state, ask = self._contact.any_status().state, self._contact.connections.ask
        # In parallel: each that is paused or gone takes until its deadline.
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
        """Close the connections; a later call opens new ones."""
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
        # A primary that has not heard of its successor would miss what was put since, such as a reader's lease.
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
            # A member that has joined since may have copied entries before others had removed them.
            state = self._contact.newer(state.version)
