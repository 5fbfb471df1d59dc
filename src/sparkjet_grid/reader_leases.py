"""Leases: what readers hold of a map or a journal, and when a writer considers them expired."""

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
"""Seconds after which a lease that has not been renewed expires."""
_PARTS = 3
_SHARED = "shared"


class Lease:
    """A reader's lease, renewed by a separate thread until it is released.

    Args:
        client: Of the grid.
        place: Of the map or journal.
        holder: What it stands for: the version of a map that is held, or the name of a journal's reader.
        content: Information for the writer.
        every: Seconds between two renewals.
        shared: Whether several processes share it without knowing of each other, such as the tasks of a read: each
            replaces those that are there by a new one, and none releases it.
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
        """The directory of its entries, one for each renewal."""
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
        """Whether it is still there; a writer removes expired leases."""
        return bool(self._client.entries(f"{self.directory}/"))

    def renew(self, content: bytes | None = None) -> None:
        """Renew it now, with a new content if one is given.

        Raises:
            GridError: The grid does not answer; the lease is renewed at its next turn.
        """
        with self._lock:
            self._content = self._content if content is None else content
            before, self._taken = self._taken, self._take()
            self._client.remove([before.key])

    def release(self) -> None:
        """Release the lease, unless others share it; a second call does nothing."""
        if self._shared:
            self.leave()
        elif not self._over.is_set():
            self._over.set()
            # Otherwise a renewal under way would put another entry.
            self._thread.join()
            # If members are away, it expires in a minute, and what was read has been read.
            with suppress(GridError):
                self._client.remove([self._taken.key])

    def leave(self) -> None:
        """Stop renewing the lease: it lasts for another minute, in which others may take their own."""
        self._over.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take(self) -> Held:
        self._count += 1
        # All in one partition: otherwise a listing during a renewal might see neither the old entry nor the new one.
        where = self._client.key(self.directory).partition
        before = self._client.entries(f"{self.directory}/") if self._shared else []
        name = uuid.uuid4().hex if self._shared else self._count
        [held] = write_files(self._client, {f"{self.directory}/{name}": self._content}, where)
        # Without a writer nobody else would remove them. The next renewal tries again.
        with suppress(GridError):
            self._client.remove([each.key for each in before])
        return held

    def _renew(self) -> None:
        while not self._over.wait(self._every):
            # During an election; if members are gone for longer, reading fails and says so.
            with suppress(GridError):
                self.renew()


class LeaseBook:
    """A writer's observations of leases: one that has not changed for a minute of the writer's clock has expired.

    Args:
        now: Monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[str, float] = {}

    def inspect(self, listed: Callable[[], Sequence[Held]]) -> tuple[list[Held], list[Key]]:
        """The valid leases, and the keys of the expired ones.

        Args:
            listed: Lists all entries below the place of the leases.
        """
        # The process may be paused anywhere: a lease that is new, or was renewed meanwhile, must not count as old.
        before = self._now()
        leases = listed()
        after = self._now()
        self._seen = {each.name: self._seen.get(each.name, after) for each in leases}
        ended = {each.name for each in leases if before - self._seen[each.name] > LEASE}
        return (
            [each for each in leases if each.name not in ended],
            [each.key for each in leases if each.name in ended],
        )


def holder_of(lease: Held) -> str:
    """The holder of a lease."""
    return lease.name.split("/")[-_PARTS]
