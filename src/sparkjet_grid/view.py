"""A member's view of its cluster: the newest state that it has seen, and the lease by which it may act on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sparkjet_grid.background import Loop
from sparkjet_grid.cluster_state import ClusterState, Row
from sparkjet_grid.control import Control
from sparkjet_grid.errors import MovedError, QuorumLostError, StorageError

LEASE = 2.0
"""Seconds; as long as the control plane keeps a silent member."""


class View:
    """One member's knowledge of its cluster. Thread-safe.

    A paused member may resume in the middle of anything, before it learns that others have taken over. So it serves no
    request unless the control plane has answered within the time in which nobody takes over.

    Args:
        me: Id of the member.
        lease: Seconds after which it serves no requests unless the control plane has answered again.
        now: Clock in seconds that goes on while the process is paused.
    """

    def __init__(self, me: str, lease: float = LEASE, now: Callable[[], float] = time.monotonic) -> None:
        self.me = me
        self.lease = lease
        self.changes = threading.Condition(threading.RLock())
        """Held while acting on one state; notified of all changes."""
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
        """Whether a state is known."""
        return self._state is not None

    def changed(self, state: ClusterState) -> bool:
        """Take a state, unless a newer one is known; returns whether it was taken."""
        with self.changes:
            if self._state is not None and self._state.version >= state.version:
                return False
            self._state = state
            self.changes.notify_all()
            return True

    def confirmed(self, asked: float) -> None:
        """Extend the lease: the control plane has answered a question asked at some time."""
        with self.changes:
            self._until = max(self._until, asked + self.lease)
            self.changes.notify_all()

    def revoke(self) -> None:
        """Revoke the lease: the control plane has said that this member is cut off."""
        with self.changes:
            self._until = 0.0

    def end(self, reason: str) -> None:
        """Serve no more requests."""
        with self.changes:
            self._ended = self._ended or reason
            self.changes.notify_all()

    def is_confirmed(self) -> bool:
        """Whether the lease is valid."""
        return self._now() <= self._until

    def check(self) -> None:
        """Raise an error if this member must not act."""
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
        """Wait until a condition holds, evaluated with ``changes`` held; returns whether it does."""
        with self.changes:
            self.changes.wait_for(lambda: self._ended is not None or condition(), seconds)
            if self._ended is not None:
                self.check()
            return condition()

    def holders(self, partition: int) -> set[str]:
        """The ids of the other members that get what is written to a partition."""
        row = self.row(partition)
        return {*row.replicas, *row.target} - {self.me}

    def uri(self, member: str) -> str:
        """The address of a member."""
        for each in self.state.members:
            if each.id == member:
                return each.uri
        raise MovedError(f"member {member} has left.")


class LeaseRenewal:
    """Renews the lease of a view, from a separate thread.

    Args:
        control: The control plane.
        view: Of the member.
    """

    def __init__(self, control: Control, view: View) -> None:
        self._control, self._view = control, view
        self._loop = Loop("grid-lease", self._step)

    def start(self) -> None:
        """Take the lease, and start renewing it."""
        self._renew()
        self._loop.start()

    def stop(self) -> None:
        """Stop renewing the lease."""
        self._loop.stop()

    def _step(self) -> None:
        self._loop.pause(self._view.lease / 4)
        try:
            self._renew()
        except QuorumLostError:
            # It may find the majority again; the control plane decides whether it has to end.
            self._view.revoke()
        except StorageError:
            # It may answer the next time; otherwise the lease runs out, and callers hear of that.
            return

    def _renew(self) -> None:
        asked = time.monotonic()
        self._control.confirm()
        self._view.confirmed(asked)
