"""Leases: versions of a map that readers hold, and when a writer takes them for given up."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

from typing_extensions import Self

from sparkjet.grid.client import GridClient
from sparkjet.grid.entries import Key
from sparkjet.grid.errors import GridError
from sparkjet.grid.files import write_files
from sparkjet.grid.map_version import MapPlace
from sparkjet.grid.messages import Held

LEASE = 60.0
"""Seconds after which a lease that was not renewed is none."""
_PARTS = 3
_SHARED = "shared"


class Lease:
    """A reader's lease on a version, renewed in a thread of its own until it is released.

    Args:
        client: Of the grid.
        place: Of the map.
        number: Of the version.
        every: Seconds between two renewals.
        shared: Whether others share it who do not know of each other, such as the tasks of a read: each puts the newest
            one in the place of those that are there, and nobody gives it up.
    """

    def __init__(
        self, client: GridClient, place: MapPlace, number: int, every: float = LEASE / 3, *, shared: bool = False
    ) -> None:
        self._client = client
        self._directory = f"{place.leases(number)}{_SHARED if shared else uuid.uuid4().hex}"
        self._shared = shared
        self._every = every
        self._count = 0
        self._over = threading.Event()
        self._taken = self._take()
        self._thread = threading.Thread(target=self._renew, name="grid-lease-of-map", daemon=True)
        self._thread.start()

    def is_there(self) -> bool:
        """Whether the writer has not taken it for given up."""
        return bool(self._client.entries(f"{self._directory}/"))

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
        before = self._client.entries(f"{self._directory}/") if self._shared else []
        name = uuid.uuid4().hex if self._shared else self._count
        [held] = write_files(self._client, {f"{self._directory}/{name}": b""})
        # Without a writer nobody else would ever remove them. The next one tries again.
        with suppress(GridError):
            self._client.remove([each.key for each in before])
        return held

    def _renew(self) -> None:
        while not self._over.wait(self._every):
            try:
                before, self._taken = self._taken, self._take()
                self._client.remove([before.key])
            except GridError:
                # Members elect a leader, or are gone for longer: then reading fails, and says so.
                continue


class LeaseBook:
    """What a writer has seen of the leases: one that has not changed for a minute of its own clock is given up.

    Args:
        now: Seconds that never go back.
        seconds: How long a lease lasts.
    """

    def __init__(self, now: Callable[[], float], seconds: float = LEASE) -> None:
        self._now, self._seconds = now, seconds
        self._seen: dict[str, float] = {}

    def looked(self, listed: Callable[[], Sequence[Held]]) -> tuple[set[int], list[Key]]:
        """Numbers of the versions that are held, and the leases that are given up.

        Args:
            listed: Lists all entries below the map's leases.
        """
        # A process may be paused anywhere: what was renewed meanwhile must not count as old, nor what is new.
        before = self._now()
        leases = listed()
        after = self._now()
        self._seen = {each.name: self._seen.get(each.name, after) for each in leases}
        ended = [each for each in leases if before - self._seen[each.name] > self._seconds]
        return {_number(each) for each in leases if each not in ended}, [each.key for each in ended]


def _number(lease: Held) -> int:
    return int(lease.name.split("/")[-_PARTS])
