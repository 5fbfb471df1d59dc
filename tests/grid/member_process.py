"""A member's control plane in its own process, which can be killed and paused with its server."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from sparkjet_grid.cluster_state import Member, ready
from sparkjet_grid.zookeeper_control import ZooKeeperControl
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings
from tests.faults.waiting import until
from tests.grid.calls import CalledProcess, answer
from tests.grid.control_contract import Joined, newer, put


class MemberProcess(CalledProcess):
    """A member; a context manager that leaves no process behind.

    Args:
        id_: Of the member.
        contacts: Of the cluster; empty for the first one.
        settings: Beside the token. ``is_reached``: whether others are taken to answer it; ``log``: where it logs.
    """

    def __init__(self, id_: str, contacts: Sequence[str], **settings: Any) -> None:
        self.id = id_
        self._stopped: list[int] = []
        super().__init__("tests.grid.member_process", [id_, list(contacts), settings])

    def kill(self) -> None:
        """End it as a power cut would, with its server."""
        self.resume()
        super().kill()

    def pause(self, *, server_alone: bool = False) -> None:
        """Stop it without ending it, as a machine that sleeps."""
        server = self.call("server")
        self._stopped = ([server] if server else []) + ([] if server_alone else [self._process.pid])
        for process in self._stopped:
            os.kill(process, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        while self._stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._stopped.pop(), signal.SIGCONT)

    @property
    def members(self) -> list[str]:
        """Ids of the members that it knows."""
        found: list[str] = self.call("members")
        return found

    def leads(self) -> bool:
        """Whether its server leads the others."""
        found: bool = self.call("leads")
        return found


def leader(members: Sequence[MemberProcess]) -> MemberProcess:
    """The member whose server leads."""
    found: list[MemberProcess] = []

    def look() -> bool:
        found[:] = [member for member in members if member.leads()]
        return len(found) == 1

    until(look, "one leader")
    return found[0]


class _Calls:
    """The other process's answer."""

    def __init__(self, joined: Joined, control: ZooKeeperControl) -> None:
        self._joined, self._control = joined, control

    def members(self) -> list[str]:
        return [member.id for member in self._control.state().members]

    def silent(self) -> list[str]:
        return list(self._control.state().silent)

    def copied(self, me: str) -> int:
        rows = {partition: row.version for partition, row in enumerate(self._control.state().rows) if me in row.target}
        return self._control.propose(lambda state: ready(state, me, rows)).version

    def cluster(self) -> str:
        return self._control.state().cluster

    def version(self) -> int:
        return self._control.state().version

    def largest(self) -> int:
        return self._control.state().largest

    def touch(self) -> int:
        return self._control.propose(newer).version

    def put(self, log: str, slot: int, token: str) -> bool:
        return put(self._control, _name(log, slot), token.encode())

    def put_at(self, log: str, slot: int, token: str, version: int) -> bool:
        return self._control.put_slot(_name(log, slot), token.encode(), version)

    def slot(self, log: str, slot: int) -> str | None:
        found = self._control.slot(_name(log, slot))
        return None if found is None else found.decode()

    def slots(self, log: str) -> list[int]:
        return [int(name.rpartition("/")[2]) for name in self._control.slots(log)]

    def remove(self, log: str, below: int) -> None:
        self._control.remove_slots([_name(log, slot) for slot in self.slots(log) if slot < below])

    def voters(self) -> list[str]:
        return self._control.voters()

    def contacts(self) -> list[str]:
        return self._control.contacts()

    def reasons(self) -> list[str]:
        return self._joined.reasons

    def server(self) -> int | None:
        server = self._control._membership.ensemble.server
        return server.pid if server is not None and server.runs else None

    def homes(self) -> list[str]:
        return [str(server._home)] if (server := self._control._membership.ensemble.server) is not None else []

    def leads(self) -> bool:
        from tests.servers.programs import listens

        server = self._control._membership.ensemble.server
        return server is not None and listens(server.address.quorum)

    def reform(self, survivors: list[str]) -> list[str]:
        return [member.id for member in self._control.reform(survivors).members]

    def leave(self) -> None:
        self._control.leave()


def _name(log: str, slot: int) -> str:
    return f"{log}/{slot:06}"


def main() -> None:
    """Join, and answer until the standard input ends."""
    id_, contacts, settings = json.loads(sys.argv[1])
    backup_count, is_reached = settings.pop("backup_count", 1), settings.pop("is_reached", False)
    logging.basicConfig(filename=settings.pop("log", None), level=logging.WARNING)
    control = ZooKeeperControl(
        ZooKeeperSettings("a token for tests", **settings), contacts, backup_count=backup_count, partitions=31
    )
    joined = Joined.joined(control, Member(id_, f"grpc://127.0.0.1/{id_}", id_), lambda: is_reached)
    answer(_Calls(joined, control))


if __name__ == "__main__":
    main()
