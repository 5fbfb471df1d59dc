"""Members that are killed, paused, cut off and replaced: what the others go on with, and what they may not do then."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.faults.waiting import holds_within, let_pass, until
from tests.grid.calls import RefusedError
from tests.grid.member_process import MemberProcess, leader

pytestmark = pytest.mark.crash


class Cluster:
    """Members in their own processes."""

    def __init__(self, **settings: Any) -> None:
        self.members: list[MemberProcess] = []
        # They hold nothing that could be lost.
        self._settings = {"session": 3.0, "grace": 0.0, **settings}
        self._number = 0

    def join(self) -> MemberProcess:
        self._number += 1
        contacts = self.members[-1].call("contacts") if self.members else []
        self.members.append(MemberProcess(f"n{self._number}", contacts, **self._settings))
        return self.members[-1]

    def settle(self, voters: int) -> None:
        """All members know of each other, and that many of them vote."""
        ids = [member.id for member in self.members]
        for member in self.members:
            until(lambda member=member: member.members == ids, f"{ids} at {member.id}")  # type: ignore[misc]
            until(lambda member=member: _voters(member, ids) == voters, f"{voters} voters at {member.id}")  # type: ignore[misc]

    def kill(self, member: MemberProcess) -> None:
        self.members.remove(member)
        member.kill()


def _voters(member: MemberProcess, ids: Sequence[str]) -> int:
    """How many vote; 0 as long as one of them is not there."""
    voters = member.call("voters")
    return len(voters) if set(voters) <= set(ids) else 0


@contextlib.contextmanager
def cluster(size: int, voters: int, **settings: Any) -> Iterator[Cluster]:
    made = Cluster(**settings)
    started: list[MemberProcess] = []
    try:
        started.extend(made.join() for _ in range(size))
        made.settle(voters)
        yield made
    finally:
        for member in {*started, *made.members}:
            member.kill()


@pytest.mark.long
@pytest.mark.parametrize("whom", ["leader", "follower"])
def test_a_member_that_is_killed_is_noticed_and_nothing_is_lost(whom: str) -> None:
    with cluster(3, voters=3) as grid:
        led = leader(grid.members)
        victim = led if whom == "leader" else next(member for member in grid.members if member is not led)
        for slot in range(20):
            assert victim.call("put", "log", slot, f"{slot}")
        grid.kill(victim)
        for slot in range(20, 40):
            assert grid.members[slot % 2].call("put", "log", slot, f"{slot}")
        grid.settle(voters=1)
        for member in grid.members:
            assert member.call("slots", "log") == list(range(40))
        grid.join()
        grid.settle(voters=3)
        assert grid.members[-1].call("slot", "log", 0) == "0"


@pytest.mark.parametrize("whom", ["leader", pytest.param("follower", marks=pytest.mark.long)])
def test_a_member_that_was_paused_ends_and_decides_nothing(whom: str) -> None:
    with cluster(3, voters=3) as grid:
        led = leader(grid.members)
        other, victim = sorted(grid.members[1:], key=lambda member: (member is led) == (whom == "leader"))
        if whom == "leader" and victim is not led:
            other, victim = victim, led
        version = victim.call("version")
        victim.pause()
        until(lambda: victim.id not in other.members, "the others to notice")
        assert other.call("put", "log", 1, "other's")
        victim.resume()
        for name, *args in (("put_at", "log", 2, "late", version), ("slots", "log"), ("slot", "log", 1), ("touch",)):
            with pytest.raises(RefusedError, match="RemovedError"):
                victim.call(name, *args)
        until(lambda: len(victim.call("reasons")) == 1, "its end")
        assert other.call("slots", "log") == [1]
        until(lambda: victim.call("server") is None, "its server to end")


@pytest.mark.parametrize(
    "grace", [pytest.param(600.0, id="waited for"), pytest.param(0.0, id="not waited for", marks=pytest.mark.long)]
)
def test_a_member_that_holds_the_last_replicas_is_waited_for(grace: float) -> None:
    """Without backups, everybody does; who is silent for longer is removed as anybody else."""
    with cluster(3, voters=3, backup_count=0, grace=grace) as grid:
        led = leader(grid.members)
        other, victim = (member for member in grid.members if member is not led)
        ids = other.members
        victim.call("copied", victim.id)
        victim.pause()
        if grace:
            until(lambda: other.call("silent") == [victim.id], "the others to notice")
            assert other.members == ids
        else:
            until(lambda: victim.id not in other.members, "the others to notice")
        victim.resume()
        if grace:
            until(lambda: other.call("silent") == [], "the others to hear of it")
            assert victim.call("touch") > 0
            grid.settle(voters=3)
            assert victim.call("reasons") == []
            assert other.members == ids
        else:
            until(lambda: len(victim.call("reasons")) == 1, "its end")


@pytest.mark.long
def test_what_is_read_from_a_leader_that_was_paused_is_not_old() -> None:
    """Only its server is paused: the others vote for another one, and it does not know when it goes on."""
    with cluster(3, voters=3) as grid:
        old = leader(grid.members)
        reader = _reader(old)
        try:
            assert old.call("put", "log", 1, "before")
            assert reader.names("log") == ["log/000001"]
            old.pause(server_alone=True)
            others = [member for member in grid.members if member is not old]
            leader(others)
            assert others[0].call("put", "log", 2, "after")
            old.resume()
            # A sync and a read are answered without what was written meanwhile: the old leader asks nobody.
            assert reader.names("log") == ["log/000001", "log/000002"]
        finally:
            reader.session.close("the test is over")


def _reader(member: MemberProcess) -> Any:
    """A session with the server of one member alone, longer than the pause."""
    from sparkjet_grid.zookeeper_session import ZooKeeperSession
    from sparkjet_grid.zookeeper_settings import ZooKeeperSettings
    from sparkjet_grid.zookeeper_slots import ZooKeeperSlots

    settings = ZooKeeperSettings("a token for tests", session=20.0, patience=30.0)
    slots = ZooKeeperSlots(ZooKeeperSession(member.call("contacts")[:1], settings, lambda: None), "reader")
    slots.session.start(30)
    slots.enter()
    return slots


@pytest.mark.long
def test_a_minority_is_frozen_and_goes_on_after_the_heal() -> None:
    """And so does the majority, though its leader has taken all members for dead when it wakes."""
    with cluster(5, voters=3, patience=2.0) as grid:
        voters = set(grid.members[0].call("voters"))
        paused = [member for member in grid.members if member.id in voters][:2]
        rest = [member for member in grid.members if member not in paused]
        assert rest[0].call("put", "log", 1, "before")
        version = rest[0].call("version")
        for member in paused:
            member.pause()
        for member in rest:
            with pytest.raises(RefusedError, match="cut off from the majority"):
                member.call("put_at", "log", 2, "frozen", version)
            assert not member.call("reasons")
        for member in paused:
            member.resume()
        until(lambda: _done(rest[0], "put", "log", 3, "after"), "the majority")
        for member in grid.members:
            until(lambda member=member: _done(member, "voters"), "another session")  # type: ignore[misc]
            assert member.call("slots", "log") == [1, 3]
            assert len(member.members) == 5
            assert not member.call("reasons")


def _done(member: MemberProcess, name: str, *args: Any) -> bool:
    try:
        member.call(name, *args)
    except RefusedError:
        return False
    return True


@pytest.mark.long
def test_of_two_members_one_goes_on_if_the_other_did_not_vote() -> None:
    """Jet goes on with either; here the other one cannot know that it is alone: see docs/design/025."""
    with cluster(2, voters=1, patience=2.0) as grid:
        voter, other = grid.members
        assert voter.call("put", "log", 1, "token")
        grid.kill(other)
        until(lambda: voter.members == [voter.id], "the voter to notice")
        assert voter.call("put", "log", 2, "token")
    with cluster(2, voters=1, patience=2.0) as grid:
        voter, other = grid.members
        grid.kill(voter)
        with pytest.raises(RefusedError, match="cut off from the majority"):
            other.call("slots", "log")
        with pytest.raises(RefusedError, match="cannot re-form the survivors, as it does not know what was decided"):
            other.call("reform", [other.id])


@pytest.mark.long
def test_a_server_that_dies_alone_is_started_again_or_replaced() -> None:
    with cluster(1, voters=1) as grid:
        only = grid.members[0]
        for slot in range(10):
            assert only.call("put", "log", slot, "token")
        os.kill(only.call("server"), signal.SIGKILL)
        assert only.call("slots", "log") == list(range(10))
        grid.join()
        grid.join()
        grid.settle(voters=3)
        follower = next(member for member in grid.members if not member.leads())
        server = follower.call("server")
        os.kill(server, signal.SIGKILL)
        until(lambda: follower.call("server") not in {None, server}, "another server")
        grid.settle(voters=3)
        assert follower.call("slots", "log") == list(range(10))
        assert not follower.call("reasons")


@pytest.mark.long
def test_servers_that_have_died_begin_again_where_they_were_though_nobody_can_answer() -> None:
    with cluster(3, voters=3) as grid:
        for slot in range(10):
            assert grid.members[0].call("put", "log", slot, "token")
        # Those that die at once are replaced, which needs a majority.
        let_pass(10)
        servers = [member.call("server") for member in grid.members]
        for server in servers:
            os.kill(server, signal.SIGKILL)
        until(lambda: all(_done(member, "slots", "log") for member in grid.members), "a majority")
        assert all(member.call("slots", "log") == list(range(10)) for member in grid.members)
        assert not any(member.call("reasons") for member in grid.members)


@pytest.mark.long
def test_survivors_without_a_majority_are_re_formed_by_the_operator() -> None:
    """In CI, `cli/test_grid_operations.py` forms members anew that hold rows."""
    with cluster(5, voters=3, patience=2.0) as grid:
        voters = set(grid.members[0].call("voters"))
        dead = [member for member in grid.members if member.id in voters][:2]
        for slot in range(10):
            assert grid.members[0].call("put", "log", slot, f"{slot}")
        old = grid.members[0].call("cluster")
        for member in dead:
            grid.kill(member)
        survivor = next(member for member in grid.members if member.id in voters)
        with pytest.raises(RefusedError, match="cut off"):
            survivor.call("touch")
        ids = [member.id for member in grid.members]
        assert survivor.call("reform", ids) == ids
        assert survivor.call("cluster") != old
        assert survivor.call("largest") == 3
        grid.settle(voters=3)
        for member in grid.members:
            assert member.call("cluster") == survivor.call("cluster")
            assert member.call("slots", "log") == list(range(10))
            assert not member.call("reasons")
        # The new cluster survives what any of three does.
        grid.kill(survivor)
        assert grid.members[0].call("put", "log", 10, "10")


@pytest.mark.long
def test_all_members_are_replaced_one_by_one() -> None:
    with cluster(3, voters=3) as grid:
        for slot, leaver in enumerate(list(grid.members)):
            grid.join()
            grid.settle(voters=3)
            leaver.call("leave")
            assert not leaver.call("reasons")
            grid.members.remove(leaver)
            leaver.kill()
            assert grid.members[0].call("put", "log", slot, leaver.id)
            grid.settle(voters=3)
        assert grid.members[-1].call("slots", "log") == [0, 1, 2]


@pytest.mark.long
def test_of_five_members_three_vote_and_a_killed_voter_is_replaced() -> None:
    with cluster(5, voters=3) as grid:
        assert grid.members[0].call("put", "log", 1, "token")
        victim = leader(grid.members)
        grid.kill(victim)
        grid.settle(voters=3)
        assert all(member.call("slots", "log") == [1] for member in grid.members)


@pytest.mark.long
def test_five_vote_where_two_backups_are_wanted_and_two_losses_are_survived() -> None:
    with cluster(5, voters=5, backup_count=2) as grid:
        assert grid.members[0].call("put", "log", 1, "token")
        grid.kill(leader(grid.members))
        grid.kill(grid.members[0])
        assert grid.members[0].call("put", "log", 2, "token")
        grid.settle(voters=3)
        assert grid.members[-1].call("slots", "log") == [1, 2]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_no_slot_is_lost_or_won_twice_while_members_come_and_go(seed: int) -> None:
    chance, slot = random.Random(seed), 0
    with cluster(3, voters=3) as grid:
        for _ in range(20):
            event = chance.choice(["kill", "leave", "pause", "server"])
            victim = chance.choice(grid.members)
            server = victim.call("server")
            if event == "server":
                os.kill(server, signal.SIGKILL)
            else:
                if event == "pause":
                    victim.pause()
                elif event == "leave":
                    victim.call("leave")
                grid.members.remove(victim)
                if event != "pause":
                    victim.kill()
            for _ in range(10):
                # Whoever is asked first wins, and both say so afterwards.
                one, two = chance.sample(grid.members, 2)
                assert one.call("put", "log", slot, one.id)
                assert not two.call("put", "log", slot, two.id)
                assert two.call("slot", "log", slot) == one.id
                slot += 1
            if event == "server":
                until(lambda: victim.call("server") not in {None, server}, "another server")  # noqa: B023 - it is over then
            if event == "pause":
                # Before that nobody has missed it, and it would go on.
                until(lambda victim=victim: victim.id not in grid.members[0].members, "the others to notice")  # type: ignore[misc]
                victim.resume()
                until(lambda victim=victim: bool(victim.call("reasons")), "its end")  # type: ignore[misc]
                victim.kill()
            while len(grid.members) < 3:
                grid.join()
            grid.settle(voters=3)
        assert all(member.call("slots", "log") == list(range(slot)) for member in grid.members)


@pytest.mark.long
def test_heap_and_disk_of_a_server_are_bounded(tmp_path: Any) -> None:
    """2,000 slots of 50 kB are written, of which a few stay, as record logs do; ZooKeeper would keep all its logs."""
    with cluster(1, voters=1, directory=str(tmp_path)) as grid:
        only = grid.members[0]
        for slot in range(2000):
            assert only.call("put", "log", slot, "x" * 50_000)
            if slot % 4 == 0:
                only.call("remove", "log", slot - 8)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        until(lambda: sum(path.stat().st_size for path in files if path.exists()) < 80 << 20, "files to be removed", 60)
        assert only.call("slots", "log")[-1] == 1999


@pytest.mark.long
def test_a_server_that_is_out_of_memory_ends() -> None:
    """It would stay, and answer to nobody, without the JVM's option."""
    with cluster(1, voters=1, heap=24, patience=5.0) as grid:
        only = grid.members[0]
        server = only.call("server")

        assert any(not _done(only, "put", "log", slot, "x" * 60_000) for slot in range(3000))
        assert holds_within(lambda: only.call("server") != server, 60)
