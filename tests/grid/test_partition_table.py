"""The partition table: the manual's figures, and laws over members that come and go."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkjet_grid.partition_table import MOST_BACKUPS, PARTITIONS, placed
from tests.grid.fewest_copies import fewest_copies

Table = Sequence[Sequence[str]]
THREE = {"n1": "h1", "n2": "h2", "n3": "h3"}
FOUR = {**THREE, "n4": "h4"}


def new(partitions: int, hosts: dict[str, str], backups: int = 1) -> Table:
    return placed([()] * partitions, [()] * partitions, hosts, backups)


def after(table: Table, hosts: dict[str, str], backups: int = 1) -> Table:
    """The table for other members, everything of the old one having been copied."""
    kept = [[member for member in row if member in hosts] for row in table]
    return placed(kept, kept, hosts, backups)


def primaries(table: Table, member: str) -> list[int]:
    """Numbered from 1, as in the figures."""
    return [number for number, row in enumerate(table, 1) if row[0] == member]


def backups(table: Table, member: str) -> list[int]:
    return [number for number, row in enumerate(table, 1) if member in row[1:]]


def copied(before: Table, now: Table) -> list[tuple[int, str]]:
    return [(p, member) for p, row in enumerate(now) for member in row if member not in before[p]]


def spread(counts: Sequence[int]) -> int:
    return max(counts) - min(counts)


def test_figure_1_three_nodes() -> None:
    table = new(12, THREE)
    assert [primaries(table, n) for n in THREE] == [[1, 4, 7, 10], [2, 5, 8, 11], [3, 6, 9, 12]]
    assert [backups(table, n) for n in THREE] == [[2, 3, 5, 6], [1, 4, 9, 12], [7, 8, 10, 11]]


def test_figure_3_a_fourth_node_gets_a_primary_and_a_backup_of_each() -> None:
    """V09: nothing else moves."""
    before = new(12, THREE)
    table = after(before, FOUR)
    assert (primaries(table, "n4"), backups(table, "n4")) == ([1, 3, 5], [2, 4, 7])
    assert [primaries(table, n) for n in THREE] == [[4, 7, 10], [2, 8, 11], [6, 9, 12]]
    assert [backups(table, n) for n in THREE] == [[3, 5, 6], [1, 9, 12], [8, 10, 11]]
    assert {member for _, member in copied(before, table)} == {"n4"}


def test_figure_4_backups_are_promoted_and_replaced() -> None:
    """V06."""
    before = new(12, THREE)
    table = after(before, {"n2": "h2", "n3": "h3"})
    assert primaries(table, "n2") == [1, 2, 4, 5, 8, 11] == backups(table, "n3")
    assert primaries(table, "n3") == [3, 6, 7, 9, 10, 12] == backups(table, "n2")
    assert len(copied(before, table)) == 8


def test_271_partitions_on_a_fourth_member_move_135_replicas_and_67_primaries() -> None:
    """V10."""
    before = new(PARTITIONS, THREE)
    table = after(before, FOUR)
    assert [len(primaries(before, n)) for n in THREE] == [91, 90, 90]
    assert [len(primaries(table, n)) for n in FOUR] == [68, 68, 68, 67]
    moved = copied(before, table)
    assert len(moved) == 135
    assert {member for _, member in moved} == {"n4"}
    assert sum(old[0] != now[0] for old, now in zip(before, table, strict=True)) == 67


@pytest.mark.parametrize("dead", FOUR)
def test_271_partitions_without_a_fourth_member_copy_exactly_what_it_held(dead: str) -> None:
    before = after(new(PARTITIONS, THREE), FOUR)
    table = after(before, {member: host for member, host in FOUR.items() if member != dead})
    assert [p for p, _ in copied(before, table)] == [p for p, row in enumerate(before) if dead in row]
    promoted = [now[0] for old, now in zip(before, table, strict=True) if old[0] == dead]
    assert len(promoted) in {67, 68}


def test_one_member_after_the_other_ends_with_as_equal_a_table() -> None:
    table, hosts = new(PARTITIONS, {"n1": "h1"}), {"n1": "h1"}
    for number in range(2, 6):
        hosts[f"n{number}"] = f"h{number}"
        before, table = table, after(table, hosts)
        assert {member for _, member in copied(before, table)} <= {f"n{number}", "n2"}
        assert spread([len(primaries(table, n)) for n in hosts]) <= 1


@pytest.mark.parametrize(("members", "wanted", "effective"), [(1, 1, 0), (3, 6, 2), (7, 6, 6), (3, 0, 0), (4, 1, 1)])
def test_there_are_no_more_backups_than_other_members(members: int, wanted: int, effective: int) -> None:
    """V11."""
    hosts = {f"n{number}": f"h{number}" for number in range(members)}
    assert {len(row) for row in new(12, hosts, wanted)} == {effective + 1}


def test_a_member_that_has_the_data_already_gets_it_back() -> None:
    before = new(PARTITIONS, THREE)
    promised = after(before, FOUR)
    kept = [[member for member in row if member in THREE] for row in promised]
    assert copied(before, placed(kept, before, THREE, 1)) == []


def test_a_new_row_begins_with_the_owner_of_the_data() -> None:
    assert placed([("gone",)], [("n3",)], THREE, 1)[0][0] == "n3"


def test_without_members_nobody_holds_anything() -> None:
    assert placed([("n1",)] * 2, [("n1",)] * 2, {}, 1) == [(), ()]


@st.composite
def _histories(draw: st.DrawFn) -> tuple[int, list[dict[str, str]]]:
    """Backup count, and the members after each change: one joins, or some are gone at once."""
    hosts: dict[str, str] = {}
    steps = []
    for number in range(draw(st.integers(2, 12))):
        if len(hosts) < 2 or (len(hosts) < 12 and draw(st.booleans())):
            hosts[f"n{number}"] = f"h{number}"
        else:
            gone = draw(st.sets(st.sampled_from(sorted(hosts)), min_size=1, max_size=min(3, len(hosts) - 1)))
            hosts = {member: host for member, host in hosts.items() if member not in gone}
        steps.append(dict(hosts))
    return draw(st.integers(0, MOST_BACKUPS)), steps


@settings(max_examples=60, deadline=None)
@given(_histories())
def test_every_member_holds_as_much_as_the_others(history: tuple[int, list[dict[str, str]]]) -> None:
    backup_count, steps = history
    table: Table = [()] * PARTITIONS
    for hosts in steps:
        table = after(table, hosts, backup_count)
        held = [sum(member in row for row in table) for member in hosts]
        assert spread(held) <= 1
        assert spread([len(primaries(table, member)) for member in hosts]) <= 1
        assert {len(set(row)) for row in table} == {min(backup_count, len(hosts) - 1) + 1}


@st.composite
def _any_rows(draw: st.DrawFn) -> tuple[list[list[str]], list[str], int]:
    """The remains of any table, the members, and the number of replicas that are wanted."""
    members = [f"n{number}" for number in range(draw(st.integers(2, 5)))]
    copies = draw(st.integers(1, min(3, len(members))))
    row = st.lists(st.sampled_from(members), max_size=copies, unique=True)
    return draw(st.lists(row, min_size=3, max_size=10)), members, copies


@settings(max_examples=200, deadline=None)
@given(_any_rows())
# One copy less by way of a third member.
@example(([["n1"], ["n0", "n3"], ["n2", "n1", "n3"], ["n0", "n2", "n1"]], ["n0", "n1", "n2", "n3"], 3))
def test_nothing_is_copied_that_could_stay(rows: tuple[list[list[str]], list[str], int]) -> None:
    kept, members, copies = rows
    table = placed(kept, kept, {member: member for member in members}, copies - 1)
    assert len(copied(kept, table)) == fewest_copies(kept, members, copies)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_other_hosts_come_first(hosts: int, each: int, backup_count: int, chance: random.Random) -> None:
    """Where the hosts have equally many members, each partition is on as many hosts as it can be."""
    names = [(f"n{host}-{number}", f"h{host}") for host in range(hosts) for number in range(each)]
    chance.shuffle(names)
    table: Table = [()] * PARTITIONS
    for number in range(len(names)):
        table = after(table, dict(names[: number + 1]), backup_count)
    where = dict(names)
    for row in table:
        assert len({where[member] for member in row}) == min(hosts, len(row))
    assert spread([sum(member in row for row in table) for member in where]) <= 1
