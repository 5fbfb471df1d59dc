"""Which members vote, and how many losses that survives."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from sparkjet_grid.cluster_state import (
    ClusterState,
    Member,
    drained,
    first,
    joined,
    left,
    tolerated_losses,
    wanted_voters,
)


def cluster(members: int, *, backup_count: int = 1, hosts: Sequence[str] = ()) -> ClusterState:
    all_of_them = [Member(f"n{n}", f"grpc://127.0.0.1:{n}", hosts[n] if hosts else f"h{n}") for n in range(members)]
    state = first("c", all_of_them[0], partitions=7, backup_count=backup_count)
    for member in all_of_them[1:]:
        state = joined(state, member)
    return state


@pytest.mark.parametrize(
    ("members", "backup_count", "voters"),
    [(1, 1, 1), (2, 1, 1), (3, 1, 3), (4, 1, 3), (5, 1, 3), (9, 1, 3), (3, 2, 3), (4, 2, 3), (5, 2, 5), (9, 6, 5)],
)
def test_one_three_or_five_vote(members: int, backup_count: int, voters: int) -> None:
    state = cluster(members, backup_count=backup_count)
    assert wanted_voters(state, ["n0"]) == [f"n{number}" for number in range(voters)]


def test_without_members_nobody_votes() -> None:
    assert wanted_voters(left(cluster(1), {"n0"}), ["n0"]) == []


@pytest.mark.parametrize("voting", [["n1", "n3", "n4"], ["n2", "n3", "n4"]])
def test_voters_stay(voting: list[str]) -> None:
    state = cluster(5)
    assert wanted_voters(state, voting) == voting
    gone = left(state, {"n4"})
    assert wanted_voters(gone, voting)[:2] == voting[:2]
    assert len(wanted_voters(gone, voting)) == 3


def test_what_is_wanted_is_stable() -> None:
    state = cluster(7, backup_count=2, hosts="aabbbcd")
    wanted = wanted_voters(state, [])
    assert set(wanted_voters(state, wanted)) == set(wanted)


def test_other_hosts_come_first() -> None:
    assert wanted_voters(cluster(4, hosts="aaab"), ["n0"]) == ["n0", "n3", "n1"]
    assert wanted_voters(cluster(5, hosts="aabbc"), ["n1"]) == ["n1", "n2", "n4"]


def test_a_member_that_is_to_leave_does_not_vote() -> None:
    state = drained(cluster(4), "n1")
    assert wanted_voters(state, ["n0", "n1", "n2"]) == ["n0", "n2", "n3"]
    assert wanted_voters(drained(cluster(3), "n0"), ["n0", "n1", "n2"]) == ["n1"]


@pytest.mark.parametrize(
    ("members", "backup_count", "voting", "losses"),
    [
        (1, 1, ["n0"], 0),
        (2, 1, ["n0"], 0),
        (3, 1, ["n0", "n1", "n2"], 1),
        (4, 1, ["n0", "n1", "n2"], 1),
        (5, 2, ["n0", "n1", "n2", "n3", "n4"], 2),
        (9, 1, ["n0", "n1", "n2"], 1),
    ],
)
def test_tolerated_losses_are_counted(members: int, backup_count: int, voting: Collection[str], losses: int) -> None:
    state = cluster(members, backup_count=backup_count)
    assert tolerated_losses(state, voting, {member.id for member in state.members}) == losses


def test_a_loss_that_is_not_made_up_for_yet_counts() -> None:
    voting = ["n0", "n1", "n2"]
    assert tolerated_losses(left(cluster(3), {"n2"}), voting, {"n0", "n1"}) == 0
    assert tolerated_losses(cluster(5), voting, {"n0", "n1", "n2", "n3"}) == 1
    assert tolerated_losses(cluster(5), voting, {"n0", "n1", "n3", "n4"}) == 0


def test_a_cluster_that_has_shrunk_survives_fewer_losses_as_queries_would_not_start() -> None:
    voting = ["n0", "n1", "n2"]
    for gone, losses in (({"n5", "n6"}, 1), ({"n4", "n5", "n6"}, 0), ({"n3", "n4", "n5", "n6"}, 0)):
        state = left(cluster(7), gone)
        assert tolerated_losses(state, voting, {member.id for member in state.members}) == losses
