"""Getting: entries come from replicas on the client's own host first, and from the others where these fail."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from sparkjet_grid.background import in_background
from sparkjet_grid.connections import Fetched, fetched
from sparkjet_grid.contact import AWAY, Contact
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import GridError, MissingEntriesError
from sparkjet_grid.log import logger
from sparkjet_grid.messages import MOST, Held

_GROUP = 32 << 20
"""Bytes that one call gets."""
_AHEAD = 6
"""Calls whose entries are fetched before the reader asks for them."""
_CALL = 120.0
_SHOWN = 10


@dataclass
class Counters:
    """How many entries and bytes came from members on this host, and from others."""

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


class Getting:
    """Gets entries and compares them with their digests.

    Args:
        contact: With the cluster.
        counters: Where it counts.
    """

    def __init__(self, contact: Contact, counters: Counters) -> None:
        self._contact, self._counters = contact, counters
        self._wrong: dict[Key, str] = {}

    def get(self, manifest: Sequence[Held]) -> Iterator[Fetched]:
        """The entries of a manifest, in any order."""
        left = {held.key: held for held in manifest}
        lacking: dict[Key, set[str]] = {}
        until = time.monotonic() + self._contact.patience
        while left:
            before, failure = len(left), None
            for member, group, answer in self._answers(self._groups(left.values(), lacking)):
                try:
                    found = self._contact.awaited(answer, member, _CALL)
                except AWAY as error:
                    failure = error
                    self._lack(lacking, group, member)
                    continue
                came = {entry.key for entry in found}
                self._lack(lacking, [held for held in group if held.key not in came], member)
                for entry in found:
                    self._counters.count(is_here=self._contact.is_on_this_host(member), size=left[entry.key].size)
                    del left[entry.key]
                    yield entry
            if len(left) < before:
                until = time.monotonic() + self._contact.patience
            elif left:
                wrong = next((text for key, text in self._wrong.items() if key in left), None)
                lacking = again(self._contact, list(left), lacking, failure, until, wrong)

    def _lack(self, lacking: dict[Key, set[str]], group: Iterable[Held], member: str) -> None:
        for held in group:
            lacking.setdefault(held.key, set()).add(member)

    def _groups(self, wanted: Iterable[Held], lacking: dict[Key, set[str]]) -> Iterator[tuple[str, list[Held]]]:
        rows = self._contact.state().rows
        groups: dict[str, list[Held]] = {}
        sizes: dict[str, int] = {}
        for held in wanted:
            replicas = [each for each in rows[held.partition].replicas if each not in lacking.get(held.key, ())]
            if not replicas:
                continue
            member = self._contact.nearest(replicas)
            if member in groups and (sizes[member] + held.size > _GROUP or len(groups[member]) == MOST):
                yield member, groups.pop(member)
            if member not in groups:
                sizes[member] = 0
            groups.setdefault(member, []).append(held)
            sizes[member] += held.size
        yield from groups.items()

    def _answers(
        self, groups: Iterator[tuple[str, list[Held]]]
    ) -> Iterator[tuple[str, list[Held], Future[list[Fetched]]]]:
        waiting: deque[tuple[str, list[Held], Future[list[Fetched]]]] = deque()
        for member, group in [*groups]:
            work = functools.partial(self._fetch, member, group)
            waiting.append((member, group, in_background(work, f"grid-from-{member}")))
            if len(waiting) == _AHEAD:
                yield waiting.popleft()
        yield from waiting

    def _fetch(self, member: str, group: list[Held]) -> list[Fetched]:
        digests = {held.key: held.digest for held in group}
        found = []
        for entry in fetched(self._contact.connections, self._contact.uri(member), list(digests), _CALL):
            if str(entry.digest) == digests[entry.key]:
                found.append(entry)
            else:
                # Another replica may have it as it was.
                text = f'entry "{entry.key.name}" of member {member} has another content than the record says.'
                logger.warning("The %s", text)
                self._wrong[entry.key] = text
        return found


def again(
    contact: Contact,
    left: Sequence[Key],
    lacking: dict[Key, set[str]],
    failure: GridError | None,
    until: float,
    wrong: str | None = None,
) -> dict[Key, set[str]]:
    """Which replicas to leave out when entries are asked for once more; none if all of a partition were asked."""
    rows = contact.state().rows
    if any(set(rows[key.partition].replicas) - lacking.get(key, set()) for key in left):
        return lacking
    version = contact.state().version
    newer = contact.attempts()(lambda: contact.newer(version))
    asked = sorted({member for key in left for member in lacking.get(key, ())})
    if failure is None and newer.version == version and not contact.is_replaced(version, asked):
        raise MissingEntriesError(wrong or missing_text(contact, left))
    if time.monotonic() > until:
        raise failure or MissingEntriesError(missing_text(contact, left))
    return {}


def missing_text(contact: Contact, keys: Sequence[Key]) -> str:
    """What is missing, of which partitions, who held it last, and the ways out."""
    state = contact.state()
    partitions = sorted({key.partition for key in keys})
    shown = ", ".join(map(str, partitions[:_SHOWN])) + (", …" if len(partitions) > _SHOWN else "")
    holders = sorted({member for each in partitions for member in state.lost.get(each, ())})
    by = f"Members {', '.join(holders)} held them last, and are gone. " if holders else ""
    return (
        f'{len(keys)} entries are missing, of {len(partitions)} partitions ({shown}), such as "{keys[0].name}". {by}'
        "More members were lost at once than --backup-count covers. Go on from a copy (option snapshotBackup, "
        "python -m sparkjet snapshots import), or start the query from its beginning under another name."
    )
