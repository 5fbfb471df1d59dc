"""Grids of several members in this process, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sparkjet_grid.access import Access, create_token
from sparkjet_grid.client import GridClient
from sparkjet_grid.member import Member, MemberSettings
from tests.faults.waiting import until
from tests.grid.shared_control import SharedCluster, SharedControl

MEMORY = 1 << 30
PATIENT = 20.0
"""Seconds of a lease that does not end because the machine is busy."""


@dataclass
class Grid:
    """Members that share a control plane.

    Attributes:
        access: Their token.
        cluster: What they have in common.
        lease: How long they believe in what they know.
        leave_timeout: How long they wait, when they are to leave, while last replicas would go.
        grace: How long they wait for one that holds last replicas and refuses connections.
        members: Those that run, in the order of their start.
    """

    access: Access
    cluster: SharedCluster
    lease: float = PATIENT
    grace: float = 0.0
    leave_timeout: float = 600.0
    members: list[Member] = field(default_factory=list)
    controls: dict[str, SharedControl] = field(default_factory=dict)
    clients: list[GridClient] = field(default_factory=list)

    def start(self, host: str = "a", memory: int = MEMORY, again: float = 1.0) -> Member:
        """Start another member, which tries again after so many seconds to copy what it could not."""
        control = SharedControl(self.cluster)
        settings = MemberSettings(
            memory, host=host, lease=self.lease, leave_timeout=self.leave_timeout, grace=self.grace
        )
        member = Member(settings, self.access, control)
        member._copying._again = again
        member.start()
        self.controls[member.id] = control
        self.members.append(member)
        return member

    def kill(self, member: Member) -> None:
        """End a member without a word; the others find out."""
        self.members.remove(member)
        self.controls[member.id].is_cut_off = True
        self.cluster.controls.pop(member.id)
        member.end("killed by the test")
        member.close()

    def client(self, host: str = "elsewhere", patience: float = 30.0) -> GridClient:
        """A client that knows one member."""
        client = GridClient([self.addresses[0]], self.access, host=host, patience=patience)
        self.clients.append(client)
        return client

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the members listen."""
        return tuple(member.address.uri.partition("//")[2] for member in self.members)

    def settle(self) -> None:
        """Wait until every partition is where it should be."""
        until(lambda: all(set(row.replicas) == set(row.target) for row in self.cluster.now().rows), "copies", 60)

    def member(self, id_: str) -> Member:
        """A member by its id."""
        return next(member for member in self.members if member.id == id_)


@contextmanager
def grid_of(
    folder: Path,
    count: int = 3,
    *,
    backup_count: int = 1,
    partitions: int = 12,
    memory: int = MEMORY,
    access: Access | None = None,
    lease: float = PATIENT,
    grace: float = 0.0,
) -> Iterator[Grid]:
    """A grid with its own token."""
    token = folder / "token"
    create_token(token)
    grid = Grid(access or Access(token_file=str(token)), SharedCluster(partitions, backup_count), lease, grace)
    try:
        for number in range(count):
            grid.start(f"host-{number}", memory)
        grid.settle()
        yield grid
    finally:
        for client in grid.clients:
            client.close()
        for member in [*grid.members]:
            grid.kill(member)
