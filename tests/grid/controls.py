"""Control planes of several members in one process, with ZooKeeper servers of their own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from kazoo.client import KazooClient
from typing_extensions import Self

from sparkjet_grid.cluster_state import Member, left
from sparkjet_grid.zookeeper_config import ServerAddress
from sparkjet_grid.zookeeper_control import ZooKeeperControl
from sparkjet_grid.zookeeper_session import ZooKeeperSession
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings
from sparkjet_grid.zookeeper_slots import ZooKeeperSlots
from tests.faults.waiting import until
from tests.grid.control_contract import Joined
from tests.servers.programs import listens

SETTINGS = ZooKeeperSettings("a token for tests", session=4.0)
"""Twice as patient as usual: tests share the machine."""


class Controls:
    """A cluster; a context manager that leaves no process behind.

    Args:
        settings: Of all members.
        backup_count: Of the cluster.
    """

    def __init__(self, settings: ZooKeeperSettings = SETTINGS, *, backup_count: int = 1) -> None:
        self.settings, self._backup_count = settings, backup_count
        self._numbers = itertools.count(1)
        self._joined: list[Joined] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for joined in reversed(self._joined):
            joined.control.leave()

    @property
    def members(self) -> list[Joined]:
        """Those that are still members, as far as they know."""
        return [joined for joined in self._joined if _control(joined)._membership._over is None]

    @property
    def any(self) -> ZooKeeperControl:
        """The control plane of the first one."""
        return _control(self.members[0])

    def join(self) -> Joined:
        """One member more."""
        number = next(self._numbers)
        contacts = self.any.contacts() if self.members else []
        control = ZooKeeperControl(self.settings, contacts, backup_count=self._backup_count)
        joined = Joined.joined(control, Member(f"n{number}", f"grpc://127.0.0.1:{number}", f"h{number}"))
        self._joined.append(joined)
        return joined

    def fill(self, size: int) -> None:
        """As many members as that, all settled."""
        while len(self.members) > size:
            self.members[-1].control.leave()
        while len(self.members) < size:
            self.join()
        voters = 1 if size < 3 else 3
        self.settle(voters)

    def settle(self, voters: int) -> None:
        """Wait until members know of each other, and that many of them vote."""
        ids = [joined.member.id for joined in self.members]
        until(
            lambda: all([m.id for m in joined.control.state().members] == ids for joined in self.members),
            f"members {ids}",
        )
        until(lambda: all(len(joined.control.voters()) == voters for joined in self.members), f"{voters} voters")
        until(lambda: set(self.any.voters()) <= set(ids), "dead voters to be replaced")

    def end(self, joined: Joined) -> None:
        """End a member from outside, as others do with one that is silent for too long."""
        other = next(each for each in self.members if each is not joined)
        other.control.propose(lambda state: left(state, {joined.member.id}))
        self.expire(joined)
        until(lambda: bool(joined.reasons), "the end of the member")

    def expire(self, joined: Joined) -> None:
        """End a member's session from outside; it may begin another one if it is quick."""
        client = joined.control._membership._shared.session._client  # type: ignore[attr-defined]
        # The member's own server last: it may be ending.
        other = KazooClient(
            ",".join(reversed(joined.control.contacts())), randomize_hosts=False, client_id=client.client_id, timeout=4
        )
        other.start(30)
        other.stop()
        other.close()

    def outsider(self, contacts: Sequence[str]) -> ZooKeeperSlots:
        """A session with the cluster of somebody who is not one of its members."""
        shared = ZooKeeperSlots(ZooKeeperSession(contacts, self.settings, lambda: None), "outsider")
        shared.session.start(10)
        shared.enter()
        return shared

    def leader(self) -> Joined:
        """The member whose server leads: it is the only one that listens for followers."""
        found: list[Joined] = []

        def look() -> bool:
            found[:] = [joined for joined in self.members if (server := address(joined)) and listens(server.quorum)]
            return len(found) == 1

        until(look, "one leader")
        return found[0]


def address(joined: Joined) -> ServerAddress | None:
    """Where a member's server listens, if it has one."""
    server = joined.control._membership.ensemble.server  # type: ignore[attr-defined]
    return server.address if server is not None else None


def pid(joined: Joined) -> int:
    """Process id of a member's server."""
    process: int = joined.control._membership.ensemble.server.pid  # type: ignore[attr-defined]
    return process


@contextlib.contextmanager
def cluster(size: int, *, backup_count: int = 1, voters: int | None = None) -> Iterator[Controls]:
    """A separate cluster for one test."""
    with Controls(backup_count=backup_count) as controls:
        for _ in range(size):
            controls.join()
        controls.settle(voters if voters is not None else 1 if size < 3 else 3)
        yield controls


def _control(joined: Joined) -> ZooKeeperControl:
    assert isinstance(joined.control, ZooKeeperControl)
    return joined.control
