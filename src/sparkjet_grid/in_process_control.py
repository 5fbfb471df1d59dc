"""The control plane of a grid of one member: no one to agree with, no server, no second process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from uuid import uuid4

from sparkjet_grid.announcements import Announcements
from sparkjet_grid.cluster_state import ClusterState, Member, first
from sparkjet_grid.control import checked, is_below
from sparkjet_grid.errors import QuorumLostError, StaleStateError, StorageError
from sparkjet_grid.partition_table import PARTITIONS


class InProcessControl:
    """A :class:`~sparkjet_grid.control.Control` of a single member, which no other can join.

    Args:
        partitions: Number of partitions.
        backup_count: Number of backups that the state names; a single member has none.
    """

    def __init__(self, *, partitions: int = PARTITIONS, backup_count: int = 1) -> None:
        self._partitions, self._backup_count = partitions, backup_count
        self._lock = threading.Lock()
        self._state: ClusterState | None = None
        self._announcements: Announcements | None = None
        self._left = False
        self._slots: dict[str, bytes] = {}

    def join(
        self,
        member: Member,
        changed: Callable[[ClusterState], None],
        ended: Callable[[str], None],
        reached: Callable[[], bool] = lambda: False,  # noqa: ARG002 - there are no others
    ) -> None:
        """See :meth:`sparkjet_grid.control.Control.join`."""
        with self._lock:
            if self._state is not None:
                raise StorageError(f"Member {member.id} cannot join: this grid can only have one member, and has it.")
            self._state = first(uuid4().hex, member, partitions=self._partitions, backup_count=self._backup_count)
            self._announcements = Announcements(changed, ended)
            self._announcements.publish(self._state)

    def leave(self) -> None:
        """See :meth:`sparkjet_grid.control.Control.leave`."""
        with self._lock:
            self._left = True
            if self._announcements is not None:
                self._announcements.close()

    def state(self) -> ClusterState:
        """See :meth:`sparkjet_grid.control.Control.state`."""
        if self._state is None:
            raise QuorumLostError("This member has not joined a cluster.")
        return self._state

    def contacts(self) -> list[str]:
        """Empty: no other member can join."""
        return []

    def propose(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """See :meth:`sparkjet_grid.control.Control.propose`."""
        with self._lock:
            self._state = change(self._current())
            if self._announcements is not None:
                self._announcements.publish(self._state)
            return self._state

    def put_slot(self, name: str, token: bytes, version: int) -> bool:
        """See :meth:`sparkjet_grid.control.Control.put_slot`."""
        with self._lock:
            state = self._current()
            found = self._slots.get(name)
            if found is None:
                if version != state.version:
                    raise StaleStateError.at(version, state.version)
                found = self._slots[name] = checked(token)
            return found == token

    def slot(self, name: str) -> bytes | None:
        """See :meth:`sparkjet_grid.control.Control.slot`."""
        with self._lock:
            self._current()
            return self._slots.get(name)

    def slots(self, directory: str) -> list[str]:
        """See :meth:`sparkjet_grid.control.Control.slots`."""
        with self._lock:
            self._current()
            return sorted(name for name in self._slots if is_below(name, directory))

    def last_slot(self, directory: str) -> tuple[str, bytes] | None:
        """See :meth:`sparkjet_grid.control.Control.last_slot`."""
        with self._lock:
            self._current()
            names = [name for name in self._slots if name.rpartition("/")[0] == directory]
            return max(((name, self._slots[name]) for name in names), default=None)

    def remove_slots(self, names: Sequence[str]) -> None:
        """See :meth:`sparkjet_grid.control.Control.remove_slots`."""
        with self._lock:
            self._current()
            for name in names:
                self._slots.pop(name, None)

    def confirm(self) -> None:
        """See :meth:`sparkjet_grid.control.Control.confirm`."""
        with self._lock:
            self._current()

    def voters(self) -> list[str]:
        """The only member."""
        return [member.id for member in self.state().members]

    def reform(self, survivors: Collection[str]) -> ClusterState:
        """Not needed: the only member is its own majority."""
        raise StorageError(f"{', '.join(survivors)} cannot be re-formed: this grid can only have one member.")

    def _current(self) -> ClusterState:
        if self._left:
            raise QuorumLostError("This member has left its cluster.")
        return self.state()
