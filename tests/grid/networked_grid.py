"""A grid whose members are machines of their own, in networks that a test cuts and heals."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import Self

from sparkjet_grid.access import Access, create_token
from tests.faults.waiting import until
from tests.grid.certificates import Authority
from tests.grid.client_process import ClientProcess
from tests.grid.networks import Networks
from tests.grid.processes import MemberProcess

PORT = 5710
_CONTROL_PORTS = "5711,5712,5713,5714"
_QUORUM = 5712
_LISTENS = "0A"
_CLIENTS = {"north": 90.0, "south": 1.0}
"""Seconds after which they give up: the one is where the grid goes on, the other where it does not."""


@dataclass
class NetworkedGrid:
    """Members that talk over TLS, each on a machine of its own, and a machine with a client on either side of a split.

    Attributes:
        folder: For files, and what members say.
        names: Of the members' machines.
        backup_count: Backups of each partition.
    """

    folder: Path
    names: Sequence[str] = ("a", "b", "c")
    backup_count: int = 1
    members: dict[str, MemberProcess] = field(default_factory=dict)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.networks = stack.enter_context(Networks([*self.names, *_CLIENTS]))
            stack.callback(self._kill)
            self._authority = Authority(self.folder / "authority")
            create_token(self.folder / "token")
            for name in self.names:
                self.start(name)
            self.north, self.south = (stack.enter_context(self._client(*each)) for each in _CLIENTS.items())
            self.settle()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, name: str) -> MemberProcess:
        """Start a member on a machine that has none."""
        address = self.networks.address(name)
        access = self._access(name)
        arguments = [
            *("--bind", address, "--port", str(PORT), "--control-ports", _CONTROL_PORTS, "--host", name),
            *("--tls-certificate", str(access.certificate), "--tls-key", str(access.key)),
            *("--tls-authorities", str(access.authorities), "--max-memory", "256m"),
        ]
        if self.members:
            others = [f"{self.networks.address(other)}:{PORT}" for other in self.members]
            arguments += ["--join", ",".join(others)]
        else:
            arguments += ["--backup-count", str(self.backup_count), "--partitions", "31"]
        command = self.networks.command(name)
        member = MemberProcess(self.folder, self.folder / "token", (*arguments,), command).begin()
        self.members[name] = member
        return member.ready()

    def settle(self) -> None:
        """Wait until another member may be lost."""
        ids = [member.id for member in self.members.values()]
        until(lambda: self.north.call("settled", ids, self.backup_count), "all replicas and voters", 120)

    def restore(self) -> None:
        """Let it be whole again, with other members in place of those that have ended."""
        self.networks.heal()

        def is_known() -> bool:
            # Who was removed may not know it yet; then it ends before long.
            for name, member in [*self.members.items()]:
                if member.process.poll() is not None:
                    del self.members[name]
            return set(self.north.members) == {member.id for member in self.members.values()}

        until(is_known, "members to know who is one", 60)
        for name in self.names:
            if name not in self.members:
                self.start(name)
        self.settle()

    def removed(self, name: str) -> None:
        """Wait for the end of a member that finds that the others have gone on without it; its machine is free then."""
        member = self.members[name]
        assert member.ended() == 1, member.output
        assert "has ended: " in member.output
        del self.members[name]

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Stop a machine's member and its server without ending them, as a machine that sleeps."""
        member = self.members[name].process.pid
        children = Path(f"/proc/{member}/task").glob("*/children")
        stopped = [member, *(int(child) for found in children for child in found.read_text(encoding="ascii").split())]
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in stopped:
                os.kill(process, signal.SIGCONT)

    def uri(self, name: str) -> str:
        """Where the member of a machine listens."""
        return f"grpc+tls://{self.networks.address(name)}:{PORT}"

    def ids(self, *names: str) -> list[str]:
        """Ids of members by their machines, in the order in which they joined."""
        return [member.id for name, member in self.members.items() if name in names]

    def leader(self) -> str:
        """The machine whose server leads: it alone listens for the others of the quorum."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [name for name, member in self.members.items() if _listens(member.process.pid, _QUORUM)]
            return len(found) == 1

        until(look, "one leader")
        return found[0]

    def _client(self, name: str, patience: float) -> ClientProcess:
        members = [f"{self.networks.address(each)}:{PORT}" for each in self.names]
        return ClientProcess(members, self._access(name), patience, self.networks.command(name))

    def _access(self, name: str) -> Access:
        files = self.folder / "authority" / f"{name}.pem", self.folder / "authority" / f"{name}.key"
        certificate, key = files if files[0].exists() else self._authority.signed(name, self.networks.address(name))
        return Access(str(self.folder / "token"), str(certificate), str(key), str(self._authority.certificate))

    def _kill(self) -> None:
        for member in self.members.values():
            member.kill()


def _listens(process: int, port: int) -> bool:
    """Whether anybody listens at a port on the machine of a process."""
    tables = (Path(f"/proc/{process}/net/{name}").read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    sockets = [line.split() for table in tables for line in table.splitlines()[1:]]
    return any(local.endswith(f":{port:04X}") and state == _LISTENS for _, local, _, state, *_ in sockets)
