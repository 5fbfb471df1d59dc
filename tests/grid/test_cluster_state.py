"""Changes of the cluster's state: the worked cases V06-V11 and K01-K08, and laws over joins, leaves and copies."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkjet_grid.cluster_state import (
    ClusterState,
    Member,
    Row,
    departed,
    drained,
    first,
    is_drained,
    joined,
    left,
    may_start,
    ready,
    reformed,
    silenced,
    would_lose,
)
from sparkjet_grid.errors import AnalysisError, StorageError
from sparkjet_grid.partition_table import PARTITIONS, placed


def member(number: int, host: str | None = None) -> Member:
    return Member(f"n{number}", f"grpc://127.0.0.1:{number}", host or f"h{number}")


def cluster(members: int, *, partitions: int = 12, backup_count: int = 1) -> ClusterState:
    """A cluster that was dealt to all its members at once, as in figure 1."""
    all_of_them = tuple(member(number) for number in range(1, members + 1))
    empty = [()] * partitions
    table = placed(empty, empty, {one.id: one.host for one in all_of_them}, backup_count)
    rows = tuple(Row(row, row, 1) for row in table)
    return ClusterState("c", 1, all_of_them, members, backup_count, rows)


def settled(state: ClusterState) -> ClusterState:
    """Everybody has copied what they are to hold."""
    for one in state.members:
        state = ready(state, one.id, copying(state, one.id))
    assert all(row.replicas == row.target for row in state.rows)
    return state


def copying(state: ClusterState, one: str) -> dict[int, int]:
    return {p: row.version for p, row in enumerate(state.rows) if one in row.target and one not in row.replicas}


def numbers(state: ClusterState, holds: Callable[[Row], bool]) -> list[int]:
    return [number for number, row in enumerate(state.rows, 1) if holds(row)]


def grown(members: int, **settings: int) -> ClusterState:
    state = first("c", member(1), **settings)
    for number in range(2, members + 1):
        state = settled(joined(state, member(number)))
    return state


def test_the_first_member_holds_everything() -> None:
    state = first("c", member(1))
    assert (state.version, state.largest, len(state.rows)) == (1, 1, PARTITIONS)
    assert set(state.rows) == {Row(("n1",), ("n1",), 1)}
    assert not state.lost


@pytest.mark.parametrize("wrong", [7, -1])
def test_v11_backup_count_is_0_to_6(wrong: int) -> None:
    with pytest.raises(AnalysisError, match=f"backup_count is {wrong}: a partition has 0 to 6"):
        first("c", member(1), backup_count=wrong)


def test_v11_three_members_have_two_effective_backups_of_six() -> None:
    assert {len(row.replicas) for row in grown(3, backup_count=6).rows} == {3}


@pytest.mark.parametrize("wrong", [0, 1001])
def test_there_are_1_to_1000_partitions(wrong: int) -> None:
    with pytest.raises(AnalysisError, match=f"partitions is {wrong}: there are 1 to 1000"):
        first("c", member(1), partitions=wrong)


def test_the_largest_state_fits_into_a_node_of_zookeeper() -> None:
    ids = [f"{number:032x}" for number in range(12)]
    state = first(
        "c", Member(ids[0], "grpc+tls://a.long.name.of.a.machine:65535", "h"), partitions=1000, backup_count=6
    )
    for number in ids[1:]:
        state = settled(joined(state, Member(number, "grpc+tls://a.long.name.of.a.machine:65535", number)))
    assert len(msgspec.msgpack.encode(state)) < 700_000


def test_v06_backups_are_promoted_at_once_and_replaced_by_and_by() -> None:
    state = left(cluster(3), {"n1"})
    assert [state.rows[number - 1].replicas for number in (1, 4, 7, 10)] == [("n2",), ("n2",), ("n3",), ("n3",)]
    assert not state.lost
    assert [len(copying(state, n)) for n in ("n2", "n3")] == [4, 4]
    state = settled(state)
    assert numbers(state, lambda row: row.replicas == ("n2", "n3")) == [1, 2, 4, 5, 8, 11]
    assert numbers(state, lambda row: row.replicas == ("n3", "n2")) == [3, 6, 7, 9, 10, 12]


def test_v07_two_lost_together_lose_what_only_they_held() -> None:
    state = left(cluster(3), {"n1", "n2"})
    assert {number + 1: holders for number, holders in state.lost.items()} == {
        1: ("n1", "n2"),
        4: ("n1", "n2"),
        2: ("n2", "n1"),
        5: ("n2", "n1"),
    }
    assert {row.replicas for row in state.rows} == {("n3",)}


def test_v07_the_same_if_the_second_is_lost_before_its_backups_are_replaced() -> None:
    # Who was promoted is then the last that held a partition.
    assert {number + 1 for number in left(left(cluster(3), {"n1"}), {"n2"}).lost} == {1, 2, 4, 5}


def test_v08_nothing_is_lost_once_backups_are_replaced() -> None:
    assert not left(settled(left(cluster(3), {"n1"})), {"n2"}).lost


def test_v09_old_replicas_serve_until_the_new_member_has_copied() -> None:
    before = cluster(3)
    state = joined(before, member(4))
    assert [row.replicas for row in state.rows] == [row.replicas for row in before.rows]
    assert state.rows[0] == Row(("n1", "n2"), ("n4", "n2"), 2)
    changed = [old != new for old, new in zip(before.rows, state.rows, strict=True)]
    assert sum(changed) == 6
    state = ready(state, "n4", {0: 2})
    assert state.rows[0] == Row(("n4", "n2"), ("n4", "n2"), 3)


def test_v10_a_fourth_member_of_271_partitions() -> None:
    before = cluster(3, partitions=PARTITIONS)
    state = joined(before, member(4))
    assert len(copying(state, "n4")) == 135
    state = settled(state)
    old_primaries = [row.replicas[0] for row in before.rows]
    assert sum(row.replicas[0] != old for row, old in zip(state.rows, old_primaries, strict=True)) == 67


def test_a_member_that_dies_while_it_copies_leaves_everything_as_it_was() -> None:
    before = cluster(3, partitions=PARTITIONS)
    state = left(joined(before, member(4)), {"n4"})
    assert [row.replicas for row in state.rows] == [row.replicas for row in before.rows]
    assert all(row.replicas == row.target for row in state.rows)


def test_a_member_that_copies_from_a_dying_primary_goes_on_with_its_backup() -> None:
    state = left(joined(cluster(3), member(4)), {"n1"})
    assert state.rows[0].replicas == ("n2",)
    assert "n4" in state.rows[0].target
    assert not state.lost


def test_ready_counts_at_the_version_of_the_row_alone() -> None:
    state = joined(cluster(3), member(4))
    assert ready(state, "n4", {0: state.rows[0].version - 1}) is state
    assert ready(state, "n3", {0: state.rows[0].version}) is state
    assert ready(state, "n2", {0: state.rows[0].version}) is state
    once = ready(state, "n4", {0: state.rows[0].version})
    assert ready(once, "n4", {0: state.rows[0].version}) is once


def test_versions_count_changes() -> None:
    state = cluster(3)
    more = joined(state, member(4))
    assert (state.version, more.version) == (1, 2)
    assert {row.version for row in more.rows} == {1, 2}
    assert joined(more, member(4)) is more
    assert left(more, {"unknown"}) is more


def test_a_drained_member_serves_until_others_have_its_data() -> None:
    state = drained(cluster(3), "n1")
    assert not is_drained(state, "n1")
    assert state.rows[0] == Row(("n1", "n2"), ("n2", "n3"), 2)
    assert drained(state, "n1") is state
    state = settled(state)
    assert is_drained(state, "n1")
    alone = left(state, {"n1"})
    assert (alone.lost, alone.draining) == ({}, ())


def test_a_member_that_is_being_drained_gets_nothing_of_those_that_leave() -> None:
    state = left(drained(cluster(4), "n1"), {"n2"})
    assert all("n1" not in row.target for row in state.rows)
    assert not state.lost


def test_the_last_member_cannot_be_drained() -> None:
    state = drained(cluster(2), "n1")
    with pytest.raises(StorageError, match="n2 cannot be drained: it is the last one"):
        drained(state, "n2")


def test_a_member_that_was_to_leave_holds_everything_if_all_others_are_gone() -> None:
    state = left(drained(cluster(2, backup_count=0), "n1"), {"n2"})
    assert {row.replicas for row in state.rows} == {("n1",)}
    assert len(state.lost) == 6


def test_survivors_are_re_formed_under_another_id() -> None:
    state = reformed(cluster(5), {"n4", "n5"}, "d")
    assert (state.cluster, state.version, state.largest) == ("d", 2, 2)
    assert [one.id for one in state.members] == ["n4", "n5"]
    assert state.lost
    assert not may_start(left(cluster(5), {"n1", "n2", "n3"}))
    assert may_start(state)


@pytest.mark.parametrize(("members", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_k01_a_query_starts_on_more_than_half(members: int, quorum: int) -> None:
    full = cluster(members)
    for number in range(1, members + 1):
        state = left(full, {f"n{gone}" for gone in range(number + 1, members + 1)})
        assert may_start(state) == (number >= quorum)


def test_k02_five_split_three_and_two() -> None:
    # Jet's minority finds itself a cluster of two. Ours cannot change the state at all: see docs/design/025.
    assert may_start(left(cluster(5), {"n4", "n5"}))
    assert not may_start(left(cluster(5), {"n1", "n2", "n3"}))


def test_k03_four_split_evenly_run_nowhere_and_again_after_the_merge() -> None:
    half = left(cluster(4), {"n3", "n4"})
    assert not may_start(half)
    assert may_start(joined(half, member(5)))


def test_an_even_split_would_lose_what_two_hold_together_unless_there_are_two_backups() -> None:
    halves = {"n3", "n4"}, {"n1", "n2"}
    assert any(would_lose(cluster(4), gone) for gone in halves)
    assert not any(would_lose(cluster(4, backup_count=2), gone) for gone in halves)
    assert not would_lose(cluster(4), {"n4"})
    # What is lost already is not lost again.
    lost = left(cluster(2), {"n1", "n2"})
    assert not would_lose(lost, {"n1", "n2"})


def test_a_silent_member_counts_for_no_start_until_it_is_heard_of_again() -> None:
    silent = silenced(cluster(4), {"n3", "n4", "unknown"})
    assert silent.silent == ("n3", "n4")
    assert silent.version == cluster(4).version + 1
    assert silent.rows == cluster(4).rows
    assert not may_start(silent)
    assert silenced(silent, {"n4", "n3"}) is silent
    assert may_start(silenced(silent, {"n4"}))
    assert left(silent, {"n4"}).silent == ("n3",)
    assert reformed(silent, {"n1", "n2"}, "anew").silent == ()


def test_k05_the_size_grows_with_the_cluster() -> None:
    four = joined(cluster(3), member(4))
    assert four.largest == 4
    assert not may_start(left(four, {"n1", "n2"}))
    assert may_start(left(cluster(3), {"n1"}))


def test_k06_a_new_member_does_not_make_up_for_four() -> None:
    assert not may_start(joined(left(cluster(5), {"n2", "n3", "n4", "n5"}), member(6)))


def test_k07_a_member_that_joins_two_of_five_makes_three() -> None:
    # With Jet both halves run then. Ours has no second half: two of five cannot admit anybody.
    state = joined(left(cluster(5), {"n1", "n2", "n3"}), member(6))
    assert (state.largest, may_start(state)) == (5, True)


def test_k08_six_after_growth_from_five() -> None:
    six = joined(cluster(5), member(6))
    assert not may_start(left(six, {"n1", "n2", "n3"}))


def test_a_member_that_has_said_goodbye_no_longer_counts() -> None:
    state = cluster(3)
    for name in ("n3", "n2"):
        state = departed(settled(drained(state, name)), name)
        assert may_start(state)
        assert departed(state, name) is state
    assert (state.largest, state.lost) == (1, {})
    # Two bigger ones join two, and replace them.
    state = settled(joined(joined(cluster(2), member(3)), member(4)))
    for name in ("n1", "n2"):
        state = departed(settled(drained(state, name)), name)
    assert may_start(state)
    assert (state.largest, state.lost) == (2, {})


def test_a_missing_member_still_counts_when_others_say_goodbye() -> None:
    # Two of five may go on elsewhere: two that are left of the other three are not enough, even though one left.
    assert not may_start(departed(left(cluster(5), {"n4", "n5"}), "n3"))
    assert may_start(departed(left(cluster(5), {"n5"}), "n4"))


@st.composite
def _changes(draw: st.DrawFn) -> list[tuple[str, object]]:
    return draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("join"), st.integers(0, 2)),
                st.tuples(st.just("depart"), st.integers(0, 9)),
                st.tuples(st.just("leave"), st.sets(st.integers(0, 9), min_size=1, max_size=2)),
                st.tuples(st.just("ready"), st.integers(0, 9)),
                st.tuples(st.just("drain"), st.integers(0, 9)),
            ),
            max_size=25,
        )
    )


@settings(max_examples=150, deadline=None)
@given(_changes(), st.integers(0, 6))
def test_no_partition_is_lost_while_a_replica_lives(changes: list[tuple[str, object]], backup_count: int) -> None:
    """And rows name members only, versions ascend, and everything settles to equal shares when members copy."""
    state = first("c", member(0), partitions=31, backup_count=backup_count)
    for number, (what, which) in enumerate(changes, 1):
        before, state = state, _applied(state, what, which, number)
        names = {one.id for one in state.members}
        assert state.version == before.version + (state is not before)
        assert state.largest >= before.largest - (what == "depart")
        assert state.largest >= len(state.members)
        # Who is missing without a word is never forgotten, unless another one has joined instead.
        if what == "depart":
            assert state.largest - len(state.members) == before.largest - len(before.members)
        for partition, (old, new) in enumerate(zip(before.rows, state.rows, strict=True)):
            assert new.replicas
            assert names >= {*new.replicas, *new.target}
            assert new.version == old.version + (old != new)
            survivors = [one for one in old.replicas if one in names]
            if survivors:
                # Somebody who had everything still serves, first of all if nobody took over on purpose.
                assert set(new.replicas) & set(survivors) or set(old.target) <= set(new.replicas)
                assert state.lost.get(partition) == before.lost.get(partition)
            else:
                assert state.lost[partition] == old.replicas
    if not state.draining:
        state = settled(state)
        held = [sum(one.id in row.replicas for row in state.rows) for one in state.members]
        assert max(held) - min(held) <= 1


def _applied(state: ClusterState, what: str, which: object, number: int) -> ClusterState:
    ids = [one.id for one in state.members]
    if what == "join":
        return joined(state, member(number, f"h{which}"))
    if what == "leave":
        assert isinstance(which, Collection)
        gone = {ids[one % len(ids)] for one in which}
        return state if len(gone) == len(ids) else left(state, gone)
    assert isinstance(which, int)
    one = ids[which % len(ids)]
    if what == "depart":
        return departed(state, one) if len(ids) > 1 else state
    if what == "drain":
        return drained(state, one) if len(set(ids) - {*state.draining, one}) else state
    return ready(state, one, copying(state, one))


def test_a_state_survives_the_wire() -> None:
    state = left(drained(cluster(3), "n2"), {"n1"})
    wired = msgspec.msgpack.encode(state)
    assert msgspec.msgpack.decode(wired, type=ClusterState) == state
