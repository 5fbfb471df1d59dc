"""Grids that shrink and are replaced, and survivors that go on without the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkjet.cli import main
from sparkjet.cli.grid import NOT_ALL_ANSWER
from sparkjet_grid.access import Access
from sparkjet_grid.client import GridClient
from sparkjet_grid.cluster_state import may_start
from tests.faults.waiting import until
from tests.grid.batches import ROWS, rows_of
from tests.grid.processes import GridProcesses, MemberProcess


@pytest.mark.crash
@pytest.mark.long
def test_a_grid_shrinks_and_is_replaced_by_stopping_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In CI, `api/test_grid_restarts.py` replaces all members, and `grid/test_leaving.py` stops two at once."""
    with GridProcesses(tmp_path) as grid:
        client = grid.client()
        manifest = client.put([client.entry(f"a/{number}", ROWS, [rows_of(9, number)]) for number in range(60)])
        first, *others = grid.members
        for member in others:
            grid.leave(member)
        # The last of three goes on: the others have said goodbye.
        assert main(["grid", "status", first.address, "--token-file", str(grid.token)]) == 0
        assert "1 members, 1 at most" in capsys.readouterr().out
        grid.add()
        grid.add()
        grid.settle()
        grid.leave(first)
        client.close()
        client = grid.client()
        state = client.state()
        assert may_start(state)
        assert {member.id for member in state.members} == {member.id for member in grid.members}
        assert not state.lost
        assert {entry.key for entry in client.get(manifest)} == {held.key for held in manifest}
        client.close()


@pytest.mark.crash
def test_members_listen_at_the_given_address(tmp_path: Path, token: Path) -> None:
    with MemberProcess(tmp_path, token, ("--bind", "127.0.0.2")) as first:
        assert first.address.startswith("127.0.0.2:")
        with MemberProcess(tmp_path, token, ("--bind", "::1", "--join", first.address)) as second:
            assert second.address.startswith("[::1]:")
            client = GridClient([second.address], Access(str(token)))
            assert len(client.state().members) == 2
            client.close()


def test_a_grid_that_has_its_majority_is_not_re_formed(
    tmp_path: Path, token: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with MemberProcess(tmp_path, token) as member:
        assert main(["grid", "reform", member.address, "--token-file", str(token), "--others-are-dead"]) == 1
        assert "has its majority" in capsys.readouterr().err


def test_to_re_form_a_grid_is_to_say_that_the_others_are_dead(token: Path) -> None:
    assert main(["grid", "reform", "127.0.0.1:5710", "--token-file", str(token)]) == 2


@pytest.mark.crash
def test_survivors_go_on_after_the_operator_has_re_formed_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with GridProcesses(tmp_path, 3, backup_count=2) as grid:
        token = ("--token-file", str(grid.token))
        client = grid.client()
        manifest = client.put([client.entry(f"a/{number}", ROWS, [rows_of(9, number)]) for number in range(60)])
        assert client.put_slot("log/1", b"token", manifest)
        client.close()
        dead = [*grid.members[:2]]
        for member in dead:
            grid.end(member)
        [survivor] = grid.members

        def shown() -> str:
            status, text = main(["grid", "status", survivor.address, *token]), capsys.readouterr().out
            assert status in {0, NOT_ALL_ANSWER}
            assert ("FROZEN" in text) <= (status == NOT_ALL_ANSWER)
            return text

        until(lambda: "FROZEN" in shown(), "it to notice")
        reform = ["grid", "reform", *token, "--others-are-dead"]
        assert main([*reform, survivor.address, dead[0].address]) == 1
        assert "Name only members that are left" in capsys.readouterr().err
        assert main([*reform, survivor.address]) == 0
        assert "goes on with 1 members, without 2 that were there" in capsys.readouterr().out
        client = grid.client()
        until(lambda: "FROZEN" not in shown(), "it to go on")
        assert client.slot("log/1") == b"token"
        assert {entry.key for entry in client.get(manifest)} == {held.key for held in manifest}
        # It is a grid like any other: members join, and take their part.
        grid.add()
        grid.settle()
        assert client.put_slot("log/2", b"token", manifest)
        client.close()
