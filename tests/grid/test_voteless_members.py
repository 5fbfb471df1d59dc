"""Members that cannot run a server: those that start are refused, of those that are there others vote instead."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from sparkjet_grid.access import create_token
from sparkjet_grid.cluster_state import Member, first, joined, wanted_voters, without_votes
from sparkjet_grid.errors import AnalysisError
from sparkjet_grid.zookeeper_control import ZooKeeperControl
from sparkjet_grid.zookeeper_server import check_server
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings
from tests.faults.waiting import until
from tests.grid.control_contract import put
from tests.grid.controls import SETTINGS, Controls
from tests.grid.processes import MemberProcess
from tests.mounts import small_disk

STATE = first("c", Member("n1", "grpc://127.0.0.1:1", "h1"))
for number in (2, 3, 4):
    STATE = joined(STATE, Member(f"n{number}", f"grpc://127.0.0.1:{number}", f"h{number}"))


def test_a_member_that_cannot_vote_does_not() -> None:
    assert wanted_voters(without_votes(STATE, {"n1"}), ["n1"]) == ["n2", "n3", "n4"]
    # Never two.
    assert wanted_voters(without_votes(STATE, {"n1", "n4"}), ["n1", "n4", "n3"]) == ["n3"]
    # Unless nobody could.
    assert len(wanted_voters(without_votes(STATE, {"n1", "n2", "n3", "n4"}), [])) == 3
    assert without_votes(without_votes(STATE, {"n1"}), ()).voteless == ()
    assert without_votes(STATE, {"gone"}) is STATE


def check(settings: ZooKeeperSettings, told: str) -> None:
    """That a machine is refused, at once: all would be frozen as soon as it is asked for a server."""
    with pytest.raises(AnalysisError, match=told):
        check_server(settings)
    # Also one that would not be asked now.
    control = ZooKeeperControl(settings, ["127.0.0.1:9"])
    with pytest.raises(AnalysisError, match=told):
        control.join(Member("n1", "grpc://127.0.0.1:1", "h1"), lambda _: None, lambda _: None)


def test_a_machine_without_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    told = f"needs Java 17 or newer.*JAVA_HOME is {tmp_path}, where there is no bin/java"
    check(ZooKeeperSettings("a token for tests", directory=str(tmp_path)), told)


@pytest.mark.spark
def test_a_machine_without_a_certificate_is_refused(tmp_path: Path) -> None:
    certificate, key, authorities = (tmp_path / f"{name}.pem" for name in ("certificate", "key", "authorities"))
    certificate.touch()
    authorities.touch()
    settings = ZooKeeperSettings(
        "a token for tests", certificate=str(certificate), key=str(key), authorities=str(authorities)
    )
    check(settings, r"key: .*key\.pem. cannot be read as a PEM file")


@pytest.mark.spark
def test_a_machine_without_a_temporary_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = ZooKeeperSettings("a token for tests", directory=str(tmp_path / "file"))
    check(settings, "below TMPDIR: .*file is not a directory that this user can write to")


@pytest.mark.crash
def test_a_machine_whose_disk_is_full_is_refused(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        settings = ZooKeeperSettings("a token for tests", directory=str(disk.directory))
        check(settings, "below TMPDIR: the disk of .* has .* kB left, and a ZooKeeper server needs 16 MB")


def test_a_member_without_java_says_so_and_does_not_start(tmp_path: Path) -> None:
    token, command = tmp_path / "token", ("env", f"JAVA_HOME={tmp_path}")
    create_token(token)
    member = MemberProcess(tmp_path, token, (), command).begin()
    assert member.ended() == 1
    assert f"JAVA_HOME is {tmp_path}, where there is no bin/java" in member.output
    # One that is alone forever has no use for it.
    with MemberProcess(tmp_path, token, ("--alone",), command) as alone:
        assert alone.process.poll() is None


@pytest.mark.crash
@pytest.mark.logs_errors
def test_others_vote_in_place_of_members_that_no_longer_can(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody could, as long as the one that was asked did not: the only voter's end froze all."""
    with Controls() as controls:
        controls.fill(1)
        broken = tmp_path / "gone later"
        broken.mkdir()
        controls.settings = dataclasses.replace(SETTINGS, directory=str(broken))
        second = controls.join()
        broken.rmdir()
        broken.touch()
        controls.settings = SETTINGS
        controls.join()
        until(lambda: second.control.state().voteless == ("n2",), "the member to say that it cannot vote")
        told = r"Member n2 cannot vote, others do in its place: \[SPARKJET_[A-Z_.]+\] its ZooKeeper server cannot be"
        assert re.search(told, caplog.text)
        # Of two that can, one: either of two would stop both.
        assert controls.any.voters() == ["n1"]
        controls.join()
        until(lambda: set(controls.any.voters()) == {"n1", "n3", "n4"}, "three voters")
        assert second.reasons == []
        assert put(second.control, "log/1", b"token")
        # It looks again, and votes when it is needed.
        broken.unlink()
        second.control._membership._votes_from = 0.0  # type: ignore[attr-defined]
        until(lambda: controls.any.state().voteless == (), "the member to find that it can")
        controls.members[2].control.leave()
        until(lambda: set(controls.any.voters()) == {"n1", "n2", "n4"}, "the one in its place")


@pytest.mark.crash
def test_a_voter_that_offers_no_server_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever delays it: a member that hangs cannot say so."""
    with Controls() as controls:
        controls.fill(1)
        ghost = controls.outsider(controls.any.contacts())
        ghost.propose(lambda state: joined(state, Member("outsider", "grpc://127.0.0.1:1", "h0")))
        controls.join()
        ensemble = controls.any._membership.ensemble
        until(lambda: "outsider" in ensemble._awaited, "the ghost to be asked")
        controls.join()
        ensemble._awaited["outsider"] -= 1000.0
        until(lambda: set(controls.any.voters()) == {"n1", "n2", "n3"}, "three voters")
        assert "Members outsider were to vote, and have offered no server." in caplog.text
        ghost.session.close("the test is over")
