"""The control plane of a grid of one member: nobody to agree with, no server, no second process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import uuid4

from sparkjet.errors import StorageError
from sparkjet.grid.announcements import Announcements
from sparkjet.grid.cluster_state import ClusterState, Member, first
from sparkjet.grid.control import checked
from sparkjet.grid.errors import QuorumLostError, StaleStateError
from sparkjet.grid.partition_table import PARTITIONS


class InProcessControl:
    """A :class:`~sparkjet.grid.control.Control` of one member for ever: nobody can join.

    Args:
        partitions: Number of partitions.
        backup_count: What is wanted; one member has none.
    """

    def __init__(self, *, partitions: int = PARTITIONS, backup_count: int = 1) -> None:
        self._partitions, self._backup_count = partitions, backup_count
        self._lock = threading.Lock()
        self._state: ClusterState | None = None
        self._announcements: Announcements | None = None
        self._left = False
        self._logs: dict[str, dict[int, bytes]] = {}

    def join(self, member: Member, changed: Callable[[ClusterState], None], ended: Callable[[str], None]) -> None:
        """See :meth:`sparkjet.grid.control.Control.join`."""
        with self._lock:
            if self._state is not None:
                message = f"Member {member.id} cannot join: this grid has one member for ever, and it is there."
                raise StorageError(message)
            self._state = first(uuid4().hex, member, partitions=self._partitions, backup_count=self._backup_count)
            self._announcements = Announcements(changed, ended)
            self._announcements.publish(self._state)

    def leave(self) -> None:
        """See :meth:`sparkjet.grid.control.Control.leave`."""
        with self._lock:
            self._left = True
            if self._announcements is not None:
                self._announcements.close()

    def state(self) -> ClusterState:
        """See :meth:`sparkjet.grid.control.Control.state`."""
        if self._state is None:
            message = "This member has not joined a cluster."
            raise QuorumLostError(message)
        return self._state

    def contacts(self) -> list[str]:
        """None: nobody can join."""
        return []

    def propose(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """See :meth:`sparkjet.grid.control.Control.propose`."""
        with self._lock:
            self._state = change(self._current())
            if self._announcements is not None:
                self._announcements.publish(self._state)
            return self._state

    def put_slot(self, log: str, slot: int, token: bytes, version: int) -> bool:
        """See :meth:`sparkjet.grid.control.Control.put_slot`."""
        with self._lock:
            state = self._current()
            found = self._logs.get(log, {}).get(slot)
            if found is None:
                if version != state.version:
                    raise StaleStateError.at(version, state.version)
                found = self._logs.setdefault(log, {})[slot] = checked(token)
            return found == token

    def slots(self, log: str) -> list[int]:
        """See :meth:`sparkjet.grid.control.Control.slots`."""
        with self._lock:
            self._current()
            return sorted(self._logs.get(log, {}))

    def slot(self, log: str, slot: int) -> bytes | None:
        """See :meth:`sparkjet.grid.control.Control.slot`."""
        with self._lock:
            self._current()
            return self._logs.get(log, {}).get(slot)

    def remove_slots(self, log: str, below: int) -> None:
        """See :meth:`sparkjet.grid.control.Control.remove_slots`."""
        with self._lock:
            self._current()
            kept = {slot: token for slot, token in self._logs.pop(log, {}).items() if slot >= below}
            if kept:
                self._logs[log] = kept

    def logs(self) -> list[str]:
        """See :meth:`sparkjet.grid.control.Control.logs`."""
        with self._lock:
            self._current()
            return sorted(self._logs)

    def voters(self) -> list[str]:
        """The only member."""
        with self._lock:
            return [member.id for member in self._current().members]

    def _current(self) -> ClusterState:
        if self._left:
            message = "This member has left its cluster."
            raise QuorumLostError(message)
        return self.state()
