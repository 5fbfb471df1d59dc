"""A member that is stopped goes when nothing goes with it that nobody else has; otherwise it says how much."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkjet_grid.access import Access, create_token
from sparkjet_grid.member import Member
from sparkjet_grid.messages import Held
from tests.faults.waiting import until
from tests.grid.batches import ROWS, rows_of
from tests.grid.grids import Grid, grid_of
from tests.grid.processes import GridProcesses, MemberProcess
from tests.grid.shared_control import SharedCluster


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    """One member that holds all; those that are started copy nothing, as they have no memory."""
    with grid_of(tmp_path, 1, backup_count=0) as grid:
        yield grid


def fill(grid: Grid) -> list[Held]:
    client = grid.client()
    return client.put([client.entry(f"a/{number}", ROWS, [rows_of(9, number)]) for number in range(60)])


def leaving(member: Member) -> threading.Thread:
    """A member that was told to stop."""
    member.begin_to_leave()
    return member._leaving


def gone(grid: Grid, member: Member) -> None:
    grid.members.remove(member)
    member.close()


def test_a_member_waits_while_nobody_else_has_what_it_holds(grid: Grid) -> None:
    """It went after 60 s, as if nothing had happened, with all that others had not copied by then."""
    manifest = fill(grid)
    [going] = grid.members
    staying = grid.start("host-2", memory=100, again=0.01)
    thread = leaving(going)
    until(lambda: going.id in grid.cluster.now().draining, "the member to ask the others")
    assert thread.is_alive()
    assert not going.view._ended
    staying.entries.limit = 1 << 30
    thread.join(60)
    assert going.has_left(0.0)
    assert {*staying.entries} == {held.key for held in manifest}
    assert grid.cluster.now().lost == {}
    gone(grid, going)


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Grid]:
    """The same, and the first one of two, which holds all, does not wait for long."""
    create_token(tmp_path / "token")
    grid = Grid(Access(str(tmp_path / "token")), SharedCluster(12, 0), leave_timeout=0.5)
    grid.start("host-1")
    fill(grid)
    grid.start("host-2", memory=100)
    yield grid
    for client in grid.clients:
        client.close()
    for member in [*grid.members]:
        grid.kill(member)


@pytest.mark.logs_errors
def test_when_the_time_is_up_it_says_how_much_goes_with_it(impatient: Grid, caplog: pytest.LogCaptureFixture) -> None:
    going = impatient.members[0]
    leaving(going).join(60)
    assert not going.has_left(0.0)
    assert going.wait() == "it was stopped, and took 60 entries with it that nobody else has."
    assert "leaves with 60 entries of 12 partitions that nobody else has: others have not copied" in caplog.text
    assert "within 0.5 s (--leave-timeout)" in caplog.text
    gone(impatient, going)


@pytest.mark.logs_errors
def test_a_control_plane_that_does_not_answer_keeps_it_until_the_time_is_up(
    impatient: Grid, caplog: pytest.LogCaptureFixture
) -> None:
    going = impatient.members[0]
    impatient.controls[going.id].is_silent = True
    leaving(going).join(60)
    assert not going.has_left(0.0)
    assert "that nobody else has: [SPARKJET_STORAGE] no answer" in caplog.text
    gone(impatient, going)


@pytest.mark.logs_errors
def test_a_member_that_is_cut_off_does_not_rely_on_the_backups_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The survivor of three was stopped: it went after 60 s, with exit status 0, and with all that there was."""
    create_token(tmp_path / "token")
    grid = Grid(Access(str(tmp_path / "token")), SharedCluster(12, 1), leave_timeout=0.5)
    for number in range(3):
        grid.start(f"host-{number}")
    fill(grid)
    grid.settle()
    going = grid.members[0]
    grid.controls[going.id].is_silent = True
    leaving(going).join(60)
    assert not going.has_left(0.0)
    assert "of 8 partitions that nobody else has: [SPARKJET_STORAGE] no answer" in caplog.text
    gone(grid, going)
    for member in [*grid.members]:
        grid.kill(member)


@pytest.mark.logs_errors
def test_of_two_that_leave_at_once_neither_counts_on_the_other(tmp_path: Path) -> None:
    """Both would go at once, each as the other has what it holds."""
    with grid_of(tmp_path, 2) as grid:
        manifest = fill(grid)
        pair = [*grid.members]
        staying = grid.start("host-3", memory=100, again=0.01)
        threads = [leaving(member) for member in pair]
        until(lambda: len(grid.cluster.now().draining) == 2, "both to ask")
        assert all(thread.is_alive() for thread in threads)
        staying.entries.limit = 1 << 30
        for thread, member in zip(threads, pair, strict=True):
            thread.join(60)
            assert member.has_left(0.0)
            gone(grid, member)
        assert {*staying.entries} == {held.key for held in manifest}


@pytest.mark.logs_errors
def test_if_all_leave_nobody_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with grid_of(tmp_path, 2) as grid:
        fill(grid)
        pair = [*grid.members]
        for thread in [leaving(member) for member in pair]:
            thread.join(60)
            assert not thread.is_alive()
        # By whoever is the last one, which depends on who of them is quicker.
        assert (
            "60 entries are gone with it" in caplog.text or "entries of 12 partitions that nobody else" in caplog.text
        )
        for member in pair:
            gone(grid, member)


def test_the_last_one_says_what_is_gone_and_has_nobody_to_wait_for(
    grid: Grid, caplog: pytest.LogCaptureFixture
) -> None:
    fill(grid)
    [going] = grid.members
    with caplog.at_level(logging.INFO, "sparkjet"):
        leaving(going).join(60)
    assert going.has_left(0.0)
    assert f"Member {going.id} was the last one: 60 entries are gone with it." in caplog.text
    gone(grid, going)


@pytest.mark.crash
def test_two_members_stopped_at_once_lose_nothing_or_say_so(tmp_path: Path) -> None:
    """The one that stayed went on asking the server of one that had left, and was frozen for good."""
    with GridProcesses(tmp_path) as grid:
        client = grid.client()
        manifest = client.put([client.entry(f"a/{number}", ROWS, [rows_of(9, number)]) for number in range(60)])
        first, second, third = grid.members
        for member in (first, second):
            member.signal(signal.SIGTERM)
        for member in (first, second):
            assert member.ended() == 0, member.output
            assert member.output.splitlines()[-1].endswith(f"Member {member.id} has ended: it was stopped.")
            grid.members.remove(member)
        assert {entry.key for entry in client.get(manifest)} == {held.key for held in manifest}
        client.close()
        third.signal(signal.SIGTERM)
        assert third.ended() == 0
        assert "was the last one: 60 entries are gone with it" in third.output


@pytest.mark.parametrize("alone", [True, pytest.param(False, marks=pytest.mark.crash)])
def test_a_member_that_is_stopped_before_it_has_joined_ends(alone: bool, tmp_path: Path) -> None:
    """A signal in the first seconds of a start was lost."""
    create_token(tmp_path / "token")
    arguments = ("--alone",) if alone else ("--host", "h")
    member = MemberProcess(tmp_path, tmp_path / "token", arguments).begin()
    handled = 1 << (signal.SIGTERM - 1)

    def handles() -> bool:
        status = Path(f"/proc/{member.process.pid}/status").read_text(encoding="ascii")
        return bool(int(status.partition("SigCgt:")[2].split()[0], 16) & handled)

    until(handles, "the member to handle SIGTERM")
    member.signal(signal.SIGTERM)
    assert member.ended() == 0, member.output
    assert "stopped before it had joined" in member.output or "it was stopped" in member.output


@pytest.mark.crash
def test_a_member_that_is_stopped_as_soon_as_others_know_it_no_longer_counts(tmp_path: Path) -> None:
    """It ended without a word: the grid of one was half of two from then on, and no query started in it."""
    with GridProcesses(tmp_path, 1) as grid:
        client = grid.client()
        joining = MemberProcess(tmp_path, grid.token, ("--host", "h", "--join", grid.members[0].address)).begin()
        try:
            until(lambda: client.state().largest == 2, "the others to know it")
            joining.signal(signal.SIGTERM)
            assert joining.ended() == 0, joining.output
        finally:
            joining.kill()
        until(lambda: len(client.state().members) == 1, "its end")
        assert client.state().largest == 1
        client.close()
