"""Members as processes of their own, to be killed and paused."""

from __future__ import annotations

import itertools
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import Self

from sparkjet_grid.access import Access, create_token
from sparkjet_grid.client import GridClient
from sparkjet_grid.cluster_state import wanted_voters
from sparkjet_grid.messages import Status
from tests.faults.waiting import until
from tests.servers.programs import PATIENCE

_LISTENS = re.compile(r"^member (\w+) listens at (\S+)$", re.MULTILINE)


@dataclass
class MemberProcess:
    """``python -m sparkjet grid start``, on any free port.

    Attributes:
        folder: Where its output goes.
        token: File with the token.
        arguments: Further ones.
        command: What begins its command line.
    """

    folder: Path
    token: Path
    arguments: tuple[str, ...] = ("--alone",)
    command: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] = field(init=False)
    id: str = field(init=False)
    address: str = field(init=False)

    def __enter__(self) -> Self:
        self.begin()
        return self.ready()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def output(self) -> str:
        """Its output."""
        return self._log.read_text()

    def begin(self) -> Self:
        """Start it, without waiting."""
        number = len(list(self.folder.glob("member-*.log")))
        self._log = self.folder / f"member-{number}.log"
        start = [sys.executable, "-m", "sparkjet", "grid", "start", "--port", "0", "--token-file", str(self.token)]
        command = [*self.command, *start, *self.arguments]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        return self

    def ready(self) -> Self:
        """Wait until it is a member."""
        until(lambda: bool(_LISTENS.search(self.output)) or self.process.poll() is not None, "the member to listen", 60)
        found = _LISTENS.search(self.output)
        assert found is not None, self.output
        self.id, self.address = found[1], found[2].partition("//")[2]
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it without a word; does nothing if it has ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def ended(self) -> int:
        """Wait for its end; returns its exit status. On a busy machine servers that take over need half a minute."""
        return self.process.wait(PATIENCE)


@dataclass
class GridProcesses:
    """A grid of processes that agree through ZooKeeper.

    Attributes:
        folder: Where their output goes.
        count: How many there are at first.
        backup_count: Backups of each partition.
        tls: Certificate, key and authorities of all members and clients.
        command: What begins their command lines.
    """

    folder: Path
    count: int = 3
    backup_count: int = 1
    tls: tuple[str, str, str] | None = None
    command: tuple[str, ...] = ()
    members: list[MemberProcess] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.token = self.folder / "token"
        create_token(self.token)
        for _ in range(self.count):
            self.add()
        self.settle()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()

    def restart(self, member: MemberProcess) -> MemberProcess:
        """Stop a member, as for an upgrade of its machine, and start another one at its address."""
        self.leave(member)
        return self.add(int(member.address.rpartition(":")[2]))

    def shake(self, chosen: random.Random, meanwhile: Callable[[], None]) -> None:
        """Kill or pause a member while something is done, and put another one in its place."""
        victim = chosen.choice(self.members)
        if chosen.random() < 0.5:
            victim.kill()
            meanwhile()
            self.replace(victim)
        else:
            victim.signal(signal.SIGSTOP)
            meanwhile()
            victim.signal(signal.SIGCONT)
            # It may have been taken for dead, and ends then.
            self.end(victim)
            self.add()
        self.settle()

    def leave(self, member: MemberProcess) -> None:
        """Stop a member, which leaves when others hold what it does."""
        self.members.remove(member)
        member.signal(signal.SIGTERM)
        assert member.ended() == 0, member.output

    def add(self, port: int = 0) -> MemberProcess:
        """Start another member; on any free port by default."""
        host = f"host-{len(list(self.folder.glob('member-*.log')))}"
        common: tuple[str, ...] = ("--host", host, "--max-memory", "256m")
        if self.tls is not None:
            names = "--tls-certificate", "--tls-key", "--tls-authorities"
            common += tuple(itertools.chain.from_iterable(zip(names, self.tls, strict=True)))
        alive = [member for member in self.members if member.process.poll() is None]
        if alive:
            own: tuple[str, ...] = ("--join", ",".join(member.address for member in alive))
        else:
            own = "--backup-count", str(self.backup_count), "--partitions", "31"
        member = MemberProcess(self.folder, self.token, (*common, *own, "--port", str(port)), self.command).begin()
        self.members.append(member)
        return member.ready()

    def replace(self, member: MemberProcess) -> MemberProcess:
        """Start a member at the address of one that was killed."""
        self.members.remove(member)
        return self.add(int(member.address.rpartition(":")[2]))

    def end(self, member: MemberProcess) -> None:
        """Kill a member."""
        self.members.remove(member)
        member.kill()

    def client(self, **settings: Any) -> GridClient:
        """A client that knows all members that there are now."""
        access = Access(str(self.token), *(self.tls or ()))
        return GridClient([member.address for member in self.members], access, **settings)

    def settle(self) -> None:
        """Wait until another member may be lost: every partition has all its replicas, and those vote who should."""
        client = self.client()
        ids = {member.id for member in self.members}

        until(lambda: is_settled(client, ids, self.backup_count), "all replicas and voters", 120)
        client.close()


def is_settled(client: GridClient, ids: Collection[str], backup_count: int) -> bool:
    """Whether another of these members may be lost: they hold all replicas, and those vote who should."""
    state = client.state()
    wanted = min(backup_count + 1, len(ids))
    if {member.id for member in state.members} != set(ids):
        return False
    if any(len(row.replicas) != wanted or set(row.replicas) != set(row.target) for row in state.rows):
        return False
    voters = [set(each.voters) for each in client.status().values() if isinstance(each, Status)]
    # Two would be lost with either of them.
    votes = len(wanted_voters(state, ()))
    return len(voters) == len(ids) and all(each <= set(ids) and len(each) == votes for each in voters)
