"""A control plane for several members in one process, which can cut members off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from sparkjet.grid.cluster_state import ClusterState, Member, Row, joined, left
from sparkjet.grid.errors import QuorumLostError, StaleStateError


@dataclass
class SharedCluster:
    """What the members of a test have in common."""

    state: ClusterState
    slots: dict[str, dict[int, bytes]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    controls: dict[str, SharedControl] = field(default_factory=dict)

    @classmethod
    def of(cls, partitions: int = 271, backup_count: int = 1) -> SharedCluster:
        """An empty cluster."""
        rows = (Row((), (), 0),) * partitions
        return cls(ClusterState("cluster", 0, (), 0, backup_count, rows))

    def change(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """Change the state, and tell all members that are not cut off."""
        with self.lock:
            state = change(self.state)
            if state is not self.state:
                self.state = state
                for control in [*self.controls.values()]:
                    control.tell(state)
            return state


class SharedControl:
    """The control plane as one member of the test sees it."""

    def __init__(self, cluster: SharedCluster) -> None:
        self._cluster = cluster
        self._seen = cluster.state
        self._id = ""
        self.is_cut_off = False
        self._changed: Callable[[ClusterState], None] = lambda _: None

    def join(self, member: Member, changed: Callable[[ClusterState], None], ended: Callable[[str], None]) -> None:
        self._id, self._changed = member.id, changed
        with self._cluster.lock:
            self._cluster.controls[member.id] = self
            self._cluster.change(lambda state: joined(state, member))

    def tell(self, state: ClusterState) -> None:
        if not self.is_cut_off:
            self._seen = state
            self._changed(state)

    def heal(self) -> None:
        """Hear of everything again."""
        self.is_cut_off = False
        self.tell(self._cluster.state)

    def leave(self) -> None:
        with self._cluster.lock:
            self._cluster.controls.pop(self._id, None)
            self._cluster.change(lambda state: left(state, [self._id]))

    def state(self) -> ClusterState:
        return self._seen

    def propose(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        self._check()
        return self._cluster.change(change)

    def put_slot(self, log: str, slot: int, token: bytes, version: int) -> bool:
        self._check()
        with self._cluster.lock:
            if version != self._cluster.state.version:
                raise StaleStateError(f"{version} is not {self._cluster.state.version}")
            return self._cluster.slots.setdefault(log, {}).setdefault(slot, token) == token

    def slots(self, log: str) -> list[int]:
        self._check()
        return sorted(self._cluster.slots.get(log, {}))

    def slot(self, log: str, slot: int) -> bytes | None:
        self._check()
        return self._cluster.slots.get(log, {}).get(slot)

    def remove_slots(self, log: str, below: int) -> None:
        self._check()
        with self._cluster.lock:
            of_log = self._cluster.slots.get(log, {})
            self._cluster.slots[log] = {slot: token for slot, token in of_log.items() if slot >= below}

    def logs(self) -> list[str]:
        self._check()
        return sorted(self._cluster.slots)

    def voters(self) -> list[str]:
        self._check()
        return [member.id for member in self._cluster.state.members]

    def _check(self) -> None:
        if self.is_cut_off:
            raise QuorumLostError("cut off")
