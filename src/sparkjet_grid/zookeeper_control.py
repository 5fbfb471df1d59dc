"""The control plane of several members, which agree through ZooKeeper servers that some of them run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from uuid import uuid4

from sparkjet_grid.announcements import Announcements
from sparkjet_grid.cluster_state import ClusterState, Member, first
from sparkjet_grid.errors import QuorumLostError, StorageError
from sparkjet_grid.membership import Membership
from sparkjet_grid.partition_table import PARTITIONS
from sparkjet_grid.zookeeper_server import check_server
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings


class ZooKeeperControl:
    """A :class:`~sparkjet_grid.control.Control` of any number of members.

    Args:
        settings: Of the control plane.
        contacts: Those of a member, see :meth:`contacts`; empty for the first member of a new cluster.
        partitions: Of a new cluster.
        backup_count: Of a new cluster.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        contacts: Sequence[str] = (),
        *,
        partitions: int = PARTITIONS,
        backup_count: int = 1,
    ) -> None:
        self._settings, self._seeds = settings, list(contacts)
        self._partitions, self._backup_count = partitions, backup_count
        self._joined: Membership | None = None

    def join(
        self,
        member: Member,
        changed: Callable[[ClusterState], None],
        ended: Callable[[str], None],
        reached: Callable[[], bool] = lambda: False,
    ) -> None:
        """See :meth:`sparkjet_grid.control.Control.join`."""
        if self._joined is not None:
            message = f"Member {member.id} cannot join: this control plane is that of another one. Make a new one."
            raise StorageError(message)
        # Even if it need not vote now: a member that is asked for a server later, and has none, holds up the others.
        check_server(self._settings)
        new = None
        if not self._seeds:
            new = first(uuid4().hex, member, partitions=self._partitions, backup_count=self._backup_count)
        announcements = Announcements(changed, ended)
        membership = Membership(member, self._settings, announcements, reached)
        try:
            membership.begin(self._seeds, new)
        except BaseException:
            announcements.close()
            raise
        self._joined = membership

    def leave(self) -> None:
        """See :meth:`sparkjet_grid.control.Control.leave`."""
        if self._joined is not None:
            self._joined.leave()

    def state(self) -> ClusterState:
        """See :meth:`sparkjet_grid.control.Control.state`."""
        return self._membership.state()

    def contacts(self) -> list[str]:
        """See :meth:`sparkjet_grid.control.Control.contacts`."""
        return self._membership.ensemble.contacts()

    def propose(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """See :meth:`sparkjet_grid.control.Control.propose`."""
        return self._membership.seen(self._membership.call(lambda shared: shared.propose(change)))

    def put_slot(self, name: str, token: bytes, version: int) -> bool:
        """See :meth:`sparkjet_grid.control.Control.put_slot`."""
        return self._membership.call(lambda shared: shared.put(name, token, version))

    def slot(self, name: str) -> bytes | None:
        """See :meth:`sparkjet_grid.control.Control.slot`."""
        return self._membership.call(lambda shared: shared.token(name))

    def slots(self, directory: str) -> list[str]:
        """See :meth:`sparkjet_grid.control.Control.slots`."""
        return self._membership.call(lambda shared: shared.names(directory))

    def last_slot(self, directory: str) -> tuple[str, bytes] | None:
        """See :meth:`sparkjet_grid.control.Control.last_slot`."""
        return self._membership.call(lambda shared: shared.last(directory))

    def remove_slots(self, names: Sequence[str]) -> None:
        """See :meth:`sparkjet_grid.control.Control.remove_slots`."""
        self._membership.call(lambda shared: shared.remove(names))

    def confirm(self) -> None:
        """See :meth:`sparkjet_grid.control.Control.confirm`."""
        self._membership.call(lambda shared: shared.fence())

    def voters(self) -> list[str]:
        """See :meth:`sparkjet_grid.control.Control.voters`."""
        return self._membership.ensemble.voters()

    def reform(self, survivors: Collection[str]) -> ClusterState:
        """See :meth:`sparkjet_grid.control.Control.reform`."""
        return self._membership.reform(survivors)

    @property
    def _membership(self) -> Membership:
        if self._joined is None:
            raise QuorumLostError("this member has not joined a cluster.")
        return self._joined
