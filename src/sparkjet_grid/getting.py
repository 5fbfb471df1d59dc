"""Getting: entries are fetched from replicas on the client's host first, and from others where these fail."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sparkjet_grid.background import in_background
from sparkjet_grid.connections import Fetched, fetched, grouped
from sparkjet_grid.contact import AWAY, Contact
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import GridError, MissingEntriesError
from sparkjet_grid.log import logger
from sparkjet_grid.messages import Held

T = TypeVar("T")

_AHEAD = 6
"""Calls whose entries are fetched before the reader asks for them."""
_CALL = 120.0


@dataclass
class Counters:
    """The numbers of entries and bytes fetched from members on this host, and from others."""

    entries_here: int = 0
    entries_elsewhere: int = 0
    bytes_here: int = 0
    bytes_elsewhere: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(self, *, is_here: bool, size: int) -> None:
        """Count an entry."""
        with self.lock:
            if is_here:
                self.entries_here += 1
                self.bytes_here += size
            else:
                self.entries_elsewhere += 1
                self.bytes_elsewhere += size


class Wanted(Generic[T]):
    """Entries that replicas are asked for, one after the other, until each has been answered.

    Args:
        contact: With the cluster.
        entries: What is asked, by key.
    """

    def __init__(self, contact: Contact, entries: dict[Key, T]) -> None:
        self._contact, self.left = contact, entries
        self.wrong: dict[Key, str] = {}
        """Error texts for entries of which a replica has another content."""
        self._lacking: dict[Key, set[str]] = {}
        self._failure: GridError | None = None

    def rounds(self) -> Iterator[None]:
        """Yield once per round of calls while entries are left; an error if no replica has them in time."""
        until = time.monotonic() + self._contact.patience
        while self.left:
            before, self._failure = len(self.left), None
            yield
            # Progress restarts the patience.
            if len(self.left) < before:
                until = time.monotonic() + self._contact.patience
            elif self.left:
                self._ask_again(until)

    def replicas(self, key: Key) -> list[str]:
        """The ids of an entry's replicas that have not been found to lack it."""
        lacking = self._lacking.get(key, ())
        return [each for each in self._contact.state().rows[key.partition].replicas if each not in lacking]

    def lack(self, keys: Iterable[Key], member: str, failure: GridError | None = None) -> None:
        """Note that a member lacks some entries, or has failed."""
        self._failure = failure or self._failure
        for key in keys:
            self._lacking.setdefault(key, set()).add(member)

    def _ask_again(self, until: float) -> None:
        """Continue with other replicas or, once none is left to ask, with all of them by a newer state."""
        contact, left = self._contact, list(self.left)
        if any(map(self.replicas, left)):
            return
        version = contact.state().version
        newer = contact.attempts()(lambda: contact.newer(version))
        asked = sorted({member for key in left for member in self._lacking.get(key, ())})
        if self._failure is None and newer.version == version and not contact.is_replaced(version, asked):
            wrong = next((text for key, text in self.wrong.items() if key in self.left), None)
            raise MissingEntriesError(wrong or missing_text(contact, left))
        if time.monotonic() > until:
            raise self._failure or MissingEntriesError(missing_text(contact, left))
        self._lacking = {}


class Getting:
    """Fetches entries and compares them with their digests.

    Args:
        contact: With the cluster.
        counters: Where fetched entries are counted.
    """

    def __init__(self, contact: Contact, counters: Counters) -> None:
        self._contact, self._counters = contact, counters

    def get(self, manifest: Sequence[Held]) -> Iterator[Fetched]:
        """The entries of a manifest, in any order."""
        wanted = Wanted(self._contact, {held.key: held for held in manifest})
        for _ in wanted.rounds():
            for member, group, answer in self._answers(wanted):
                try:
                    found = self._contact.awaited(answer, member, _CALL)
                except AWAY as error:
                    wanted.lack([held.key for held in group], member, error)
                    continue
                came = {entry.key for entry in found}
                wanted.lack([held.key for held in group if held.key not in came], member)
                for entry in found:
                    size = wanted.left.pop(entry.key).size
                    self._counters.count(is_here=self._contact.is_on_this_host(member), size=size)
                    yield entry

    def _answers(self, wanted: Wanted[Held]) -> Iterator[tuple[str, list[Held], Future[list[Fetched]]]]:
        asked = [(replicas, held) for key, held in wanted.left.items() if (replicas := wanted.replicas(key))]
        waiting: deque[tuple[str, list[Held], Future[list[Fetched]]]] = deque()
        for member, group in grouped((self._contact.nearest(replicas), held) for replicas, held in asked):
            work = functools.partial(self._fetch, member, group, wanted)
            waiting.append((member, group, in_background(work, f"grid-from-{member}")))
            if len(waiting) == _AHEAD:
                yield waiting.popleft()
        yield from waiting

    def _fetch(self, member: str, group: list[Held], wanted: Wanted[Held]) -> list[Fetched]:
        digests = {held.key: held.digest for held in group}
        found = []
        for entry in fetched(self._contact.connections, self._contact.uri(member), list(digests), _CALL):
            if str(entry.digest) == digests[entry.key]:
                found.append(entry)
            else:
                # Another replica may have the right content.
                text = f'entry "{entry.key.name}" of member {member} has another content than the record says.'
                logger.warning("The %s", text)
                wanted.wrong[entry.key] = text
        return found


def missing_text(contact: Contact, keys: Sequence[Key]) -> str:
    """A message that says what is missing, from which partitions, which members held it last, and the ways out."""
    partitions = sorted({key.partition for key in keys})
    shown, why = contact.lost_text(partitions)
    return (
        f'{len(keys)} entries are missing, of {len(partitions)} partitions ({shown}), such as "{keys[0].name}". {why} '
        "Go on from a copy (option snapshotBackup, python -m sparkjet snapshots copy), or start the query from its "
        "beginning under another name."
    )
