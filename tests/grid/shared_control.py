"""A control plane for several members in one process, which can cut members off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from sparkjet_grid.cluster_state import ClusterState, Member, departed, first, joined, reformed
from sparkjet_grid.control import is_below
from sparkjet_grid.errors import QuorumLostError, StaleStateError, StorageError


@dataclass
class SharedCluster:
    """The control plane that the members of a test share."""

    partitions: int = 12
    backup_count: int = 1
    id: str = field(default_factory=lambda: uuid4().hex)
    state: ClusterState | None = None
    slots: dict[str, bytes] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    controls: dict[str, SharedControl] = field(default_factory=dict)
    before_proposal: Callable[[], None] = lambda: None
    before_slot: Callable[[], object] = lambda: None

    def now(self) -> ClusterState:
        """The state."""
        assert self.state is not None
        return self.state

    def change(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """Change the state, and tell all members that are not cut off."""
        with self.lock:
            state = change(self.now())
            if state is not self.state:
                self.state = state
                for control in [*self.controls.values()]:
                    control.tell(state)
            return state


class SharedControl:
    """The control plane as one member of the test sees it."""

    def __init__(self, cluster: SharedCluster) -> None:
        self._cluster = cluster
        self._seen: ClusterState | None = None
        self._id = ""
        self.is_cut_off = False
        self.is_behind = False
        self.is_silent = False
        self.loses_answers = 0
        self._changed: Callable[[ClusterState], None] = lambda _: None

    def join(
        self,
        member: Member,
        changed: Callable[[ClusterState], None],
        ended: Callable[[str], None],
        reached: Callable[[], bool] = lambda: False,
    ) -> None:
        self._id, self._changed = member.id, changed
        with self._cluster.lock:
            self._cluster.controls[member.id] = self
            if self._cluster.state is None:
                self._cluster.state = first(
                    self._cluster.id,
                    member,
                    partitions=self._cluster.partitions,
                    backup_count=self._cluster.backup_count,
                )
                self.tell(self._cluster.state)
            else:
                self._cluster.change(lambda state: joined(state, member))

    def tell(self, state: ClusterState) -> None:
        if not (self.is_cut_off or self.is_behind):
            self._seen = state
            self._changed(state)

    def catch_up(self) -> None:
        """Hear of everything again."""
        self.is_cut_off = self.is_behind = False
        self.tell(self._cluster.now())

    def leave(self) -> None:
        with self._cluster.lock:
            self._cluster.controls.pop(self._id, None)
            self._cluster.change(lambda state: departed(state, self._id))

    def state(self) -> ClusterState:
        assert self._seen is not None
        return self._seen

    def contacts(self) -> list[str]:
        return []

    def propose(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        self._check()
        self._cluster.before_proposal()
        return self._cluster.change(change)

    def put_slot(self, name: str, token: bytes, version: int) -> bool:
        self._check()
        self._cluster.before_slot()
        with self._cluster.lock:
            if version != self._cluster.now().version:
                raise StaleStateError(f"{version} is not {self._cluster.now().version}")
            is_ours = self._cluster.slots.setdefault(name, token) == token
        if self.loses_answers:
            self.loses_answers -= 1
            raise StorageError("the answer was lost")
        return is_ours

    def slot(self, name: str) -> bytes | None:
        self._check()
        return self._cluster.slots.get(name)

    def slots(self, directory: str) -> list[str]:
        self._check()
        with self._cluster.lock:
            return sorted(name for name in self._cluster.slots if is_below(name, directory))

    def last_slot(self, directory: str) -> tuple[str, bytes] | None:
        self._check()
        with self._cluster.lock:
            slots = self._cluster.slots
            return max(((name, slots[name]) for name in slots if name.rpartition("/")[0] == directory), default=None)

    def remove_slots(self, names: Sequence[str]) -> None:
        self._check()
        with self._cluster.lock:
            for name in names:
                self._cluster.slots.pop(name, None)

    def confirm(self) -> None:
        self._check()

    def voters(self) -> list[str]:
        return [member.id for member in self._cluster.now().members]

    def reform(self, survivors: Collection[str]) -> ClusterState:
        return self._cluster.change(lambda state: reformed(state, survivors, "anew"))

    def _check(self) -> None:
        if self.is_cut_off:
            raise QuorumLostError("cut off")
        if self.is_silent:
            raise StorageError("no answer")
