"""All commands of ``grid``, each with the addresses that an operator gets wrong, and grids that are not well."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from sparkjet.cli import grid as commands
from sparkjet.cli import main
from sparkjet.cli.grid import NOT_ALL_ANSWER
from tests.faults.waiting import until
from tests.grid.grids import Grid, grid_of
from tests.servers.programs import free_port

LEASE = 1.0


@dataclass
class Places:
    """Addresses that commands are tried with.

    Attributes:
        folder: Of grids.
        exit: Ends what was begun.
        token: File with the token of all grids.
    """

    folder: Path
    exit: ExitStack
    token: Path

    def grid(self, count: int = 1, lease: float = 20.0) -> Grid:
        """A separate grid, with the token of all."""
        number = len(list(self.folder.iterdir()))
        folder = self.folder / str(number)
        folder.mkdir()
        (folder / "token").write_text(self.token.read_text())
        return self.exit.enter_context(grid_of(folder, count, backup_count=0, lease=lease, grace=600.0))

    def well(self) -> str:
        return addresses(self.grid())

    def two_grids(self) -> str:
        return f"{self.well()},{self.well()}"

    def frozen(self) -> str:
        grid = self.grid(lease=LEASE)
        [control] = grid.controls.values()
        control.is_cut_off = True
        until(lambda: not grid.members[0].view.is_confirmed(), "the end of its lease")
        return addresses(grid)

    def one_is_away(self) -> str:
        """A grid of two, of which one does not answer; the address of the other one."""
        grid = self.grid(2)
        grid.members[1]._server.shutdown()
        return addresses(grid).partition(",")[0]

    def silent(self) -> str:
        """Where somebody listens who never says anything, as a member that is paused."""
        server = self.exit.enter_context(socket.create_server(("127.0.0.1", 0)))
        return f"127.0.0.1:{server.getsockname()[1]}"

    def of_a_query(self) -> str:
        return f"grid://{self.well()}"

    def nobody(self, host: str = "127.0.0.1") -> str:
        return f"{host}:{free_port()}"

    def other_loopback(self) -> str:
        return self.nobody("127.0.0.2")

    def six(self) -> str:
        return self.nobody("[::1]")


def addresses(grid: Grid) -> str:
    return ",".join(grid.addresses)


@pytest.fixture
def places(tmp_path: Path, token: Path) -> Iterator[Places]:
    (tmp_path / "grids").mkdir()
    with ExitStack() as stack:
        yield Places(tmp_path / "grids", stack, token)


def fixed(text: str) -> Callable[[Places], str]:
    return lambda _: text


Case = tuple[Callable[[Places], str], int, str]
"""The address, the exit status, and what is said."""
WRONG: dict[str, Case] = {
    "no name": (fixed("no-such-host.invalid:5710"), 1, "does not answer"),
    "no port": (fixed("127.0.0.1"), 1, '"127.0.0.1" is not host:port of a member'),
    "a port that is none": (fixed("127.0.0.1:70000"), 1, "is not host:port of a member"),
    "an address of IPv6 without brackets": (fixed("::1:5710"), 1, '"::1:5710" is not host:port of a member'),
    "what a query names": (Places.of_a_query, 1, r'"grid://127\.0\.0\.1:\d+" is not host:port of a member'),
    "two grids": (Places.two_grids, 1, "are (members )?of different grids"),
    "nobody listens": (Places.nobody, 1, "does not answer"),
    "nobody listens at 127.0.0.2": (Places.other_loopback, 1, "does not answer"),
    "nobody listens at ::1": (Places.six, 1, "does not answer"),
    "somebody else listens": (Places.silent, 1, "does not answer"),
}
"""Addresses that are refused wherever a member is named."""
LONG = {"no name", "nobody listens", "nobody listens at 127.0.0.2", "nobody listens at ::1", "somebody else listens"}
"""Who joins waits for half a minute for a member that does not answer: it may be starting as well."""
COMMANDS: dict[str, tuple[str, Callable[[str], list[str]], dict[str, Case]]] = {
    "status": (
        "HOST:PORT",
        lambda address: [address],
        {
            **WRONG,
            "all is well": (Places.well, 0, "1 members, 1 at most"),
            "frozen": (Places.frozen, NOT_ALL_ANSWER, "FROZEN: the majority is gone"),
            "one is away": (Places.one_is_away, NOT_ALL_ANSWER, "does not answer"),
        },
    ),
    "reform": (
        "HOST:PORT",
        lambda address: [*address.split(","), "--others-are-dead"],
        {
            **WRONG,
            "all is well": (Places.well, 1, "has its majority"),
            "frozen": (Places.frozen, 0, "goes on with 1 members"),
            "one is away": (Places.one_is_away, 1, "has its majority"),
            # Of two that are well the first one says so before the other one is asked.
            "two grids": (lambda places: f"{places.frozen()},{places.frozen()}", 1, "are of different grids"),
        },
    ),
    "start": (
        "--join",
        lambda address: ["--join", address],
        {
            **WRONG,
            "all is well": (Places.well, 1, "is a grid of one member forever"),
            "frozen": (Places.frozen, 1, "has not heard of its control plane"),
            "one is away": (Places.one_is_away, 1, "is a grid of one member forever"),
        },
    ),
    "map": (
        "GRID",
        lambda address: ["ls", address if "://" in address else f"grid://{address}"],
        {**WRONG, "all is well": (Places.well, 0, "^$"), "what a query names": (Places.of_a_query, 0, "^$")},
    ),
    # What is wrong is told by what opens a grid for `map`.
    "journal": (
        "GRID",
        lambda address: ["ls", address if "://" in address else f"grid://{address}"],
        {"all is well": (Places.well, 0, "^$"), "nobody listens": WRONG["nobody listens"]},
    ),
}
"""Of each command the option that names members, how, and how it ends."""


def cases() -> Iterator[object]:
    for command, (_, _, of_command) in COMMANDS.items():
        for name in of_command:
            slow = command == "start" and name in {*LONG, "frozen"}
            # Asked as `status` asks, and waited for twice.
            # As `status` asks too.
            slow = slow or (command, name) in {(each, "somebody else listens") for each in ("map", "reform")}
            yield pytest.param(command, name, marks=pytest.mark.long if slow else (), id=f"{command}, {name}")


def test_every_command_is_tried() -> None:
    group = typer.main.get_command(commands.app)
    assert isinstance(group, TyperGroup)
    assert set(group.commands) == set(COMMANDS)


@pytest.mark.parametrize(("command", "name"), [*cases()])
def test_how_it_ends(
    command: str, name: str, places: Places, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the process of this test would be restarted.
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    option, arguments, of_command = COMMANDS[command]
    place, status, told = of_command[name]
    assert main(["grid", command, *arguments(place(places)), "--token-file", str(places.token)]) == status
    found = capsys.readouterr()
    if status != 1:
        assert re.search(told, found.out)
        assert found.err == ""
        return
    [line] = found.err.splitlines()
    assert re.match(rf"sparkjet: \[SPARKJET_[A-Z_.]+\] {re.escape(option)}: ", line)
    assert re.search(told, line)


TLS = ["--tls-certificate", "member.pem", "--tls-key", "member.key", "--tls-authorities", "authority.pem"]
REFUSED: dict[str, tuple[list[str], str]] = {
    "no address": (["--bind", "nonsense.invalid"], '--bind: "nonsense.invalid" is not an address of a machine'),
    "not of this machine": (["--bind", "192.0.2.1"], "--bind: 192.0.2.1 can be reached from other machines"),
    "advertised to others": (["--advertise", "192.0.2.1"], "--advertise: 192.0.2.1 is not where the member listens"),
    "advertised elsewhere": (["--advertise", "127.0.0.2"], "--advertise: 127.0.0.2 is not where the member listens"),
    "advertised nowhere": (["--advertise", "nonsense.invalid"], '--advertise: "nonsense.invalid" is not an address'),
    "advertised of another machine": (["--advertise", "192.0.2.1", *TLS], "--advertise: this member cannot listen at"),
    "everywhere": (["--bind", "0.0.0.0", *TLS], "--advertise is missing: nobody reaches a member at 0.0.0.0"),  # noqa: S104 - is refused
    "a port twice": (["--control-ports", "5711,5711,0,0"], '--control-ports: "5711,5711,0,0" names a port twice'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_a_member_cannot_listen_is_refused_at_once(
    name: str, token: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, told = REFUSED[name]
    assert main(["grid", "start", "--port", "0", "--token-file", str(token), *arguments]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"sparkjet: [SPARKJET_ANALYSIS] {told}")


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_token_the_option_for_it_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = COMMANDS[command][1]("127.0.0.1:5710")
    assert main(["grid", command, *arguments, "--token-file", "/nowhere"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith('sparkjet: [SPARKJET_ANALYSIS] --token-file: "/nowhere" cannot be read')


def test_a_port_in_use_is_named(token: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["grid", "start", "--port", port, "--token-file", str(token)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"sparkjet: [SPARKJET_ANALYSIS] --port: this member cannot listen at 127.0.0.1, port {port}: Addr"
    )
