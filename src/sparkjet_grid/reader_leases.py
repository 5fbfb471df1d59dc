"""Leases: what readers hold of a map or of a journal, and when a writer takes them for given up."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context

from typing_extensions import Self

from sparkjet_grid.client import GridClient
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import GridError
from sparkjet_grid.files import write_files
from sparkjet_grid.messages import Held
from sparkjet_grid.places import Place

LEASE = 60.0
"""Seconds after which a lease that was not renewed is none."""
_PARTS = 3
_SHARED = "shared"


class Lease:
    """A reader's lease, renewed in a thread of its own until it is released.

    Args:
        client: Of the grid.
        place: Of the map or journal.
        holder: What it is of: the version of a map that is held, or the name of a reader.
        content: What the writer is to know.
        every: Seconds between two renewals.
        shared: Whether others share it who do not know of each other, such as the tasks of a read: each puts the newest
            one in the place of those that are there, and nobody gives it up.
    """

    def __init__(
        self,
        client: GridClient,
        place: Place,
        holder: str,
        content: bytes = b"",
        every: float = LEASE / 3,
        *,
        shared: bool = False,
    ) -> None:
        self._client = client
        self.directory = f"{place.leases(holder)}{_SHARED if shared else uuid.uuid4().hex}"
        """Where its entries are; each renewal is another one."""
        self._shared = shared
        self._every = every
        self._content = content
        self._count = 0
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._taken = self._take()
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._renew,), name=f"grid-lease-of-{place.kind}", daemon=True
        )
        self._thread.start()

    def is_there(self) -> bool:
        """Whether the writer has not taken it for given up."""
        return bool(self._client.entries(f"{self.directory}/"))

    def renew(self, content: bytes | None = None) -> None:
        """Renew it now, with another content if one is given.

        Raises:
            GridError: The grid does not answer; the lease is renewed in its own time.
        """
        with self._lock:
            self._content = self._content if content is None else content
            before, self._taken = self._taken, self._take()
            self._client.remove([before.key])

    def release(self) -> None:
        """Give it up, unless others share it; a second call does nothing."""
        if self._shared:
            self.leave()
        elif not self._over.is_set():
            self._over.set()
            # Without it a renewal that is under way would put another one.
            self._thread.join()
            # Of members that are away: it ends by itself in a minute, and what was read stays read.
            with suppress(GridError):
                self._client.remove([self._taken.key])

    def leave(self) -> None:
        """Renew it no more: it lasts for another minute, for those who take one of their own."""
        self._over.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take(self) -> Held:
        self._count += 1
        # All in one partition: who lists them while the next one takes the place of this one would see neither.
        where = self._client.key(self.directory).partition
        before = self._client.entries(f"{self.directory}/") if self._shared else []
        name = uuid.uuid4().hex if self._shared else self._count
        [held] = write_files(self._client, {f"{self.directory}/{name}": self._content}, where)
        # Without a writer nobody else would ever remove them. The next one tries again.
        with suppress(GridError):
            self._client.remove([each.key for each in before])
        return held

    def _renew(self) -> None:
        while not self._over.wait(self._every):
            # Members elect a leader, or are gone for longer: then reading fails, and says so.
            with suppress(GridError):
                self.renew()


class LeaseBook:
    """What a writer has seen of the leases: one that has not changed for a minute of its own clock is given up.

    Args:
        now: Seconds that never go back.
        seconds: How long a lease lasts.
    """

    def __init__(self, now: Callable[[], float], seconds: float = LEASE) -> None:
        self._now, self._seconds = now, seconds
        self._seen: dict[str, float] = {}

    def looked(self, listed: Callable[[], Sequence[Held]]) -> tuple[list[Held], list[Key]]:
        """The leases that last, and those that are given up.

        Args:
            listed: Lists all entries below the place of the leases.
        """
        # A process may be paused anywhere: what was renewed meanwhile must not count as old, nor what is new.
        before = self._now()
        leases = listed()
        after = self._now()
        self._seen = {each.name: self._seen.get(each.name, after) for each in leases}
        ended = {each.name for each in leases if before - self._seen[each.name] > self._seconds}
        return (
            [each for each in leases if each.name not in ended],
            [each.key for each in leases if each.name in ended],
        )


def holder_of(lease: Held) -> str:
    """What a lease is of."""
    return lease.name.split("/")[-_PARTS]
