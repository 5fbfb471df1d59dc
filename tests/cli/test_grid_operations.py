"""Members that an operator takes out of a grid, and survivors that go on without the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkjet.cli import main
from tests.faults.waiting import until
from tests.grid.batches import ROWS, rows_of
from tests.grid.processes import GridProcesses, MemberProcess


@pytest.mark.crash
def test_a_drained_member_ends_and_nothing_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with GridProcesses(tmp_path) as grid:
        client = grid.client()
        manifest = client.put([client.entry(f"a/{number}", ROWS, [rows_of(9, number)]) for number in range(60)])
        leaver, *others = grid.members
        assert main(["grid", "drain", leaver.address, "--token-file", str(grid.token)]) == 0
        shown = capsys.readouterr().out
        assert "replicas are yet to be copied by others" in shown
        assert f"member {leaver.id} has left" in shown
        assert leaver.ended() == 0
        state = client.state()
        assert {member.id for member in state.members} == {member.id for member in others}
        assert all(len(row.replicas) == 2 for row in state.rows)
        assert not state.lost
        assert {entry.key for entry in client.get(manifest)} == {held.key for held in manifest}
        client.close()


def test_the_last_member_is_ended_only_with_all_that_it_holds(
    tmp_path: Path, token: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with MemberProcess(tmp_path, token) as member:
        drain = ["grid", "drain", member.address, "--token-file", str(token)]
        assert main(drain) == 1
        assert "is the last member: what the grid holds would be gone" in capsys.readouterr().err
        assert main(["grid", "reform", member.address, "--token-file", str(token), "--others-are-dead"]) == 1
        assert "has its majority" in capsys.readouterr().err
        assert main([*drain, "--discard"]) == 0
        assert member.ended() == 0


def test_who_forms_a_grid_anew_has_to_say_that_the_others_are_dead(token: Path) -> None:
    with pytest.raises(SystemExit):
        main(["grid", "reform", "127.0.0.1:5710", "--token-file", str(token)])


@pytest.mark.crash
def test_survivors_go_on_after_the_operator_has_formed_them_anew(
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
            assert main(["grid", "status", survivor.address, *token]) == 0
            return capsys.readouterr().out

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
        grid.add()
        grid.settle()
        assert client.put_slot("log/2", b"token", manifest)
        client.close()
