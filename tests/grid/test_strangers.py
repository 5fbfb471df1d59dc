"""Connections without the token take nothing for long that members need; those with it stay."""

from __future__ import annotations

import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from sparkjet_grid.access import Access, create_token
from sparkjet_grid.connections import Connections
from sparkjet_grid.errors import UnreachableError
from sparkjet_grid.messages import Ping
from sparkjet_grid.strangers import Strangers
from tests.faults.waiting import holds_within, until
from tests.grid.batches import ROWS, rows_of
from tests.grid.grids import Grid, grid_of
from tests.grid.processes import GridProcesses, MemberProcess

IDLE = 1100


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    with grid_of(tmp_path, 1) as grid:
        yield grid


def is_open(connection: socket.socket) -> bool:
    """Whether the other side has not ended it; it may have said hello as HTTP/2 does."""
    connection.setblocking(False)
    try:
        while connection.recv(1000):
            pass
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    return False


def connected(grid: Grid) -> socket.socket:
    return socket.create_connection(("127.0.0.1", grid.members[0]._server.port))


def test_of_many_connections_without_a_call_few_stay_and_those_with_one_all(grid: Grid) -> None:
    member = grid.members[0]
    # Its own loop must not be quicker.
    member._strangers.stop()
    strangers = member._strangers
    known = [Connections(grid.access) for _ in range(3)]
    for each in known:
        assert each.ask(member.address.uri, Ping(), str) == member.id
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(grid)) for _ in range(100)]
        strangers.look()
        # Each may be about to say what it wants.
        assert all(map(is_open, idle))

        def are_few() -> bool:
            strangers.look()
            return sum(map(is_open, idle)) <= 64

        until(are_few, "the oldest to be ended")
        assert sum(map(is_open, idle)) == 64
        for each in known:
            assert each.ask(member.address.uri, Ping(), str) == member.id
            each.close()


def test_a_connection_without_a_call_does_not_stay(grid: Grid) -> None:
    member = grid.members[0]
    member._strangers.stop()
    strangers = Strangers(stays=0.0)
    strangers._port = member._server.port
    with connected(grid) as idle:

        def is_ended() -> bool:
            strangers.look()
            return not is_open(idle)

        until(is_ended, "its end")


def test_a_member_raises_its_limit_of_open_files_as_far_as_it_may(tmp_path: Path) -> None:
    create_token(tmp_path / "token")
    with MemberProcess(tmp_path, tmp_path / "token", command=("prlimit", "--nofile=512:3000")) as member:
        assert resource.prlimit(member.process.pid, resource.RLIMIT_NOFILE) == (3000, 3000)


def test_a_member_goes_on_though_strangers_take_all_that_it_may_open(tmp_path: Path) -> None:
    """The limit is so low that nothing else works meanwhile: each failure is logged, and none ends it."""
    create_token(tmp_path / "token")
    with MemberProcess(tmp_path, tmp_path / "token", command=("prlimit", "--nofile=120:120")) as member:
        host, _, port = member.address.rpartition(":")
        with ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(socket.create_connection((host, int(port))))
            connections = Connections(Access(str(tmp_path / "token")))

            def answers() -> bool:
                try:
                    return connections.ask(f"grpc://{member.address}", Ping(), str, 2.0) == member.id
                except UnreachableError:
                    return False

            assert holds_within(answers, 60)
            assert member.process.poll() is None
            connections.close()


def listening(process: int) -> list[int]:
    """Ports of a process, and of the server that is its child."""
    shown = subprocess.run(["ss", "-Hltnp"], check=True, capture_output=True, text=True).stdout
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    children = [child for task in tasks for child in task.read_text(encoding="ascii").split()]
    ids = {f"pid={each}," for each in [str(process), *children]}
    return [int(line.split()[3].rpartition(":")[2]) for line in shown.splitlines() if any(map(line.__contains__, ids))]


@pytest.mark.long
@pytest.mark.crash
def test_idle_connections_to_every_port_end_nobody(tmp_path: Path) -> None:
    """1,100 to each were enough, with the usual limit of 1,024 that a process may raise."""
    command = ("prlimit", "--nofile=1024:8192")
    with GridProcesses(tmp_path, command=command) as grid, ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        client = grid.client()
        manifest = client.put([client.entry(f"a/{number}", ROWS, [rows_of(9, number)]) for number in range(60)])
        for member in grid.members:
            for port in listening(member.process.pid):
                # Some take no more before they have looked at those that they have.
                with suppress(TimeoutError, ConnectionError):
                    for _ in range(IDLE):
                        stack.enter_context(socket.create_connection(("127.0.0.1", port), 0.5))
        again = client.put([client.entry(f"b/{number}", ROWS, [rows_of(9, number)]) for number in range(60)])
        client.check([*manifest, *again])
        assert [member.process.poll() for member in grid.members] == [None, None, None]
        client.close()
