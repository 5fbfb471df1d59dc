"""The output of ``grid status``."""

from __future__ import annotations

from sparkjet.cli.grid_report import report
from sparkjet_grid.cluster_state import ClusterState, Member, drained, first, joined, left, ready
from sparkjet_grid.errors import GridError, UnreachableError
from sparkjet_grid.messages import Status


def cluster_of_three() -> ClusterState:
    a, b, c = (Member(id_, f"grpc://10.0.0.{id_}:5710", f"host-{id_}") for id_ in "123")
    state = joined(joined(first("cluster", a, partitions=4, backup_count=1), b), c)
    return copied(state)


def copied(state: ClusterState) -> ClusterState:
    for member in state.members:
        state = ready(state, member.id, {number: row.version for number, row in enumerate(state.rows)})
    return state


def status_of(id_: str, state: ClusterState, *voters: str, frozen: bool = False) -> Status:
    return Status(id_, 3 << 20, 1 << 30, 7, 0, list(voters), 0, frozen, state)


def test_the_report_says_what_is_where() -> None:
    state = cluster_of_three()
    found: dict[str, Status | GridError] = {
        "1": status_of("1", state, "1", "2", "3"),
        "2": UnreachableError("no"),
        "3": status_of("3", state, "1", "2", "3", frozen=True),
    }
    text = "\n".join(report(found))
    assert "cluster cluster: 3 members, 3 at most; 4 partitions with 1 backups wanted" in text
    assert "0 replicas are being copied; every partition has 1 or more on members that answer" in text
    assert "3.0 MB of 1024.0 MB" in text
    assert "10.0.0.2:5710" in text
    assert "does not answer" in text
    assert "is cut off" in text
    assert "FROZEN" not in text
    emptied = left(left(state, ["1"]), ["2"])
    assert "partitions that have lost everything once: " in "\n".join(report({"3": status_of("3", emptied, "3")}))
    leaving = drained(state, "2")
    assert "to leave: 2" in "\n".join(report({id_: status_of(id_, leaving, "1") for id_ in "123"}))
    assert "FROZEN: the majority is gone" in "\n".join(
        report({id_: status_of(id_, state, "1", "2", "3", frozen=True) for id_ in "123"})
    )


def test_the_report_says_how_many_members_may_be_lost_and_what_limits_it() -> None:
    state = cluster_of_three()
    everybody = {id_: status_of(id_, state, "1", "2", "3") for id_ in "123"}
    told = "3 voters, of which 3 answer; 1 more members may be lost at once: of every partition one replica must stay"
    assert told in report(everybody)
    one_votes = {id_: status_of(id_, state, "1") for id_ in "123"}
    told = "1 voters, of which 1 answer; 0 more members may be lost at once: more than half of the voters must stay"
    assert told in "\n".join(report(one_votes))
    two = copied(left(state, ["3"]))
    smaller = {id_: status_of(id_, two, "1", "2") for id_ in "12"}
    told = (
        "0 more members may be lost at once: more than half of the voters must stay, if voters are lost, and more than"
    )
    assert told in "\n".join(report(smaller))
    one = left(two, ["2"])
    told = "no query starts here, on half of 3 members or fewer: the others may go on elsewhere"
    assert told in "\n".join(report({"1": status_of("1", one, "1")}))


def told_of(found: dict[str, Status | GridError]) -> str:
    """The line about further losses."""
    [told] = [line for line in report(found) if "may be lost" in line]
    return told


def test_voters_that_are_gone_and_not_yet_replaced_do_not_count() -> None:
    two = copied(left(cluster_of_three(), ["3"]))
    # Its server still votes as far as the others know: with the next one that is lost the majority is gone for good.
    found: dict[str, Status | GridError] = {id_: status_of(id_, two, "1", "2", "server 3") for id_ in "12"}
    assert told_of(found).startswith("3 voters, of which 2 answer; 0 more members may be lost at once")


def test_a_silent_member_is_not_counted_on() -> None:
    state = cluster_of_three()
    found: dict[str, Status | GridError] = {id_: status_of(id_, state, "1", "2", "3") for id_ in "13"}
    found["2"] = UnreachableError("no")
    text = "\n".join(report(found))
    assert "3 voters, of which 2 answer; 0 more members may be lost at once" in text
    assert "every partition has 1 or more on members that answer" in text


def test_a_grid_that_is_frozen_has_nothing_to_spare() -> None:
    state = cluster_of_three()
    found: dict[str, Status | GridError] = {id_: status_of(id_, state, "1", "2", "3", frozen=True) for id_ in "123"}
    told = "3 voters, of which 0 answer; 0 more members may be lost at once: the majority is gone"
    assert told_of(found) == told
    assert "FROZEN" in "\n".join(report(found))


def test_a_member_that_is_cut_off_does_not_tell_how_the_others_are() -> None:
    state = cluster_of_three()
    found: dict[str, Status | GridError] = {
        "1": status_of("1", state, "1", frozen=True),
        "2": status_of("2", state, "1", "2", "3"),
        "3": status_of("3", state, "1", "2", "3"),
    }
    assert told_of(found).startswith("3 voters, of which 2 answer; 0 more members may be lost at once")
