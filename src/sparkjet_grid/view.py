"""A member's view of its cluster: the newest state that it has seen, and whether it may still act on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sparkjet_grid.background import Loop
from sparkjet_grid.cluster_state import ClusterState, Row
from sparkjet_grid.control import Control
from sparkjet_grid.errors import MovedError, QuorumLostError, StorageError

LEASE = 2.0
"""As long as the control plane keeps a silent member."""


class View:
    """What one member knows of its cluster. Thread-safe.

    A member that was paused goes on in the middle of anything, before it learns that others have taken over. So it
    does nothing for others unless the control plane has answered within the time in which nobody takes over.

    Args:
        me: Id of the member.
        lease: Seconds after which it does nothing unless the control plane has answered again.
        now: Seconds that count while the process is paused too.
    """

    def __init__(self, me: str, lease: float = LEASE, now: Callable[[], float] = time.monotonic) -> None:
        self.me = me
        self.lease = lease
        self.changes = threading.Condition(threading.RLock())
        """Held by whoever must see one state while it acts; notified when anything changes."""
        self._now = now
        self._state: ClusterState | None = None
        self._until = 0.0
        self._ended: str | None = None

    @property
    def state(self) -> ClusterState:
        """The newest state."""
        if self._state is None:
            raise MovedError("this member has not yet joined.")
        return self._state

    def has_state(self) -> bool:
        """Whether there is a state."""
        return self._state is not None

    def changed(self, state: ClusterState) -> bool:
        """Take a state, unless a newer one is known; whether it was taken."""
        with self.changes:
            if self._state is not None and self._state.version >= state.version:
                return False
            self._state = state
            self.changes.notify_all()
            return True

    def confirmed(self, asked: float) -> None:
        """The control plane has answered what it was asked at some time."""
        with self.changes:
            self._until = max(self._until, asked + self.lease)
            self.changes.notify_all()

    def revoke(self) -> None:
        """The control plane has said that this member is cut off: do nothing for others until it says otherwise."""
        with self.changes:
            self._until = 0.0

    def end(self, reason: str) -> None:
        """Do nothing for others any more."""
        with self.changes:
            self._ended = self._ended or reason
            self.changes.notify_all()

    def is_confirmed(self) -> bool:
        """Whether the control plane has answered recently enough."""
        return self._now() <= self._until

    def check(self) -> None:
        """Whether this member may act."""
        if self._ended is not None:
            raise QuorumLostError(f"this member has ended: {self._ended}")
        if not self.is_confirmed():
            raise MovedError(f"this member has not heard of its control plane for {self.lease:.0f} s.")

    def row(self, partition: int) -> Row:
        """The row of a partition."""
        rows = self.state.rows
        if partition >= len(rows):
            raise MovedError(f"there are {len(rows)} partitions, and no number {partition}.")
        return rows[partition]

    def primary_row(self, partition: int) -> Row:
        """The row of a partition of which this member is the primary."""
        row = self.row(partition)
        if row.replicas[:1] != (self.me,):
            raise MovedError(f"this member is not the primary of partition {partition}.")
        return row

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait, with ``changes`` held, until a condition holds; returns whether it does."""
        with self.changes:
            self.changes.wait_for(lambda: self._ended is not None or condition(), seconds)
            if self._ended is not None:
                self.check()
            return condition()

    def holders(self, partition: int) -> set[str]:
        """Ids of all members that get what is written to a partition, but this one."""
        row = self.row(partition)
        return {*row.replicas, *row.target} - {self.me}

    def uri(self, member: str) -> str:
        """The address of a member."""
        for each in self.state.members:
            if each.id == member:
                return each.uri
        raise MovedError(f"member {member} has left.")


class Lease:
    """Renews what a view may act on, from a thread of its own.

    Args:
        control: The control plane.
        view: Of this member.
    """

    def __init__(self, control: Control, view: View) -> None:
        self._control, self._view = control, view
        self._loop = Loop("grid-lease", self._step)

    def start(self) -> None:
        """Begin, with a first answer before this returns."""
        self._renew()
        self._loop.start()

    def stop(self) -> None:
        """Renew it no more."""
        self._loop.stop()

    def _step(self) -> None:
        self._loop.pause(self._view.lease / 4)
        try:
            self._renew()
        except QuorumLostError:
            # It may find the majority again; whether it must end is for the control plane to say.
            self._view.revoke()
        except StorageError:
            # It may answer the next time; until then the lease runs out, which says so to whoever asks.
            return

    def _renew(self) -> None:
        asked = time.monotonic()
        self._control.confirm()
        self._view.confirmed(asked)
