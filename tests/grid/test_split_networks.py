"""Networks that are cut: who goes on, who is frozen, and what is there after the heal.

Members are machines of their own, and cut from each other by their links: no process notices anything but silence.
A link that loses one direction alone cannot be made with links: addresses of neighbours lead nowhere (`Networks.mute`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest

from tests.faults.waiting import let_pass, until
from tests.grid.calls import RefusedError
from tests.grid.client_process import ClientProcess
from tests.grid.networked_grid import NetworkedGrid
from tests.grid.networks import NoNetworksError
from tests.servers.fixtures import available

pytestmark = pytest.mark.crash


@contextmanager
def networked(tmp_path_factory: pytest.TempPathFactory, names: str, backup_count: int = 1) -> Iterator[NetworkedGrid]:
    """A grid; if there can be no networks, the test is skipped or, in CI, fails."""
    with ExitStack() as stack:
        made = NetworkedGrid(tmp_path_factory.mktemp("grid"), [*names], backup_count)
        yield available(lambda: stack.enter_context(made), NoNetworksError)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetworkedGrid]:
    with networked(tmp_path_factory, "abc") as grid:
        yield grid


@pytest.fixture
def grid(three: NetworkedGrid) -> NetworkedGrid:
    """Three members, of which all vote; each test has a home of its own."""
    three.restore()
    return three


def others(grid: NetworkedGrid, *names: str) -> list[str]:
    return [name for name in grid.names if name not in names]


def whole(grid: NetworkedGrid, home: str, written: dict[int, int]) -> None:
    """Everything that was acknowledged is there, and nothing else; with all its copies when the grid is whole again."""
    assert grid.north.read(home) == written
    grid.restore()
    assert grid.north.read(home) == grid.south.read(home) == written
    assert grid.north.copies(home) == grid.backup_count + 1


def cut_off(grid: NetworkedGrid, home: str, away: Sequence[str]) -> None:
    """Cut a minority off: the majority goes on, the minority is frozen, and ends when it hears of the others."""
    north, south = grid.north, grid.south
    ids = grid.ids(*grid.names)
    assert all(north.write(home, slot) for slot in range(3))
    assert south.read(home) == dict.fromkeys(range(3), north.id)

    stay = others(grid, *away)
    grid.networks.split([*stay, "north"], [*away, "south"])
    assert north.write(home, 3)
    for name in away:
        # Until then others may have taken over, or not; it does not know.
        until(lambda name=name: not south.asked(grid.uri(name), home), "the end of its lease")  # type: ignore[misc]
    until(lambda: north.members == grid.ids(*stay), "the end of their sessions")
    assert north.write(home, 4)
    # K02: queries may start where more than half of the members are.
    assert north.call("may_start")

    grid.networks.heal()
    for name in away:
        while grid.members[name].process.poll() is None:
            assert not south.asked(grid.uri(name), home)
        grid.removed(name)
    assert set(north.members) < set(ids)
    whole(grid, home, dict.fromkeys(range(5), north.id))


# In CI one that was paused ends and decides nothing (`test_zookeeper_members.py`).
@pytest.mark.long
def test_a_member_that_is_cut_off_serves_nobody_and_ends_after_the_heal(grid: NetworkedGrid) -> None:
    cut_off(grid, "follower", others(grid, grid.leader())[:1])


@pytest.mark.long
def test_a_leader_that_is_cut_off_serves_nobody_and_ends_after_the_heal(grid: NetworkedGrid) -> None:
    cut_off(grid, "leader", [grid.leader()])


@pytest.mark.long
def test_two_of_five_that_are_cut_off_serve_nobody_and_end_after_the_heal(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """K02, but those of the minority end, and their machines start others; K07 cannot be: they admit nobody."""
    with networked(tmp_path_factory, "abcde", backup_count=2) as grid:
        led = grid.leader()
        cut_off(grid, "five", [led, others(grid, led)[0]])


@pytest.mark.long
@pytest.mark.parametrize("backup_count", [2, 1])
def test_of_an_even_split_the_side_with_more_voters_goes_on_and_no_query_starts(
    tmp_path_factory: pytest.TempPathFactory, backup_count: int
) -> None:
    """K03 and K08: no query starts on either side. K04, on both sides, cannot be: three vote, so one side has two.

    That side takes the two others for lost: with one backup they are more than it covers. They are waited for; if that
    is not enough, a restart is refused.
    """
    with networked(tmp_path_factory, "abcd", backup_count) as grid:
        north, south, home = grid.north, grid.south, "even"
        voters = north.call("voters")
        assert len(voters) == 3
        going = [name for name in grid.names if grid.members[name].id in voters][:2]
        away = others(grid, *going)
        assert all(north.write(home, slot) for slot in range(3))
        assert south.read(home) == dict.fromkeys(range(3), north.id)

        grid.networks.split([*going, "north"], [*away, "south"])
        for name in away:
            until(lambda name=name: not south.asked(grid.uri(name), home), "the end of its lease")  # type: ignore[misc]
        until(lambda: north.members == grid.ids(*going), "the end of their sessions")
        assert not north.call("may_start")
        assert north.write(home, 3)
        grid.networks.heal()
        for name in away:
            grid.removed(name)
        if backup_count == 2:
            whole(grid, home, dict.fromkeys(range(4), north.id))
        else:
            grid.restore()
            assert north.call("slots", home) == [0, 1, 2, 3]
            assert north.call("lost")
            with pytest.raises(RefusedError, match=r"MissingEntriesError: .* of .* partitions .* held them last"):
                north.read(home)
        assert north.call("may_start")


@pytest.mark.long
def test_an_even_split_that_is_healed_soon_loses_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With one backup: who holds what the others do not have is waited for, and so are those who write or read it."""
    with networked(tmp_path_factory, "abcd") as grid:
        north, south, home = grid.north, grid.south, "soon"
        voters = north.call("voters")
        going = [name for name in grid.names if grid.members[name].id in voters][:2]
        away = others(grid, *going)
        assert all(north.write(home, slot) for slot in range(3))
        assert south.read(home) == dict.fromkeys(range(3), north.id)

        grid.networks.split([*going, "north"], [*away, "south"])
        for name in away:
            until(lambda name=name: not south.asked(grid.uri(name), home), "the end of its lease")  # type: ignore[misc]
        # One whose session has ended first may be removed: of what it held, the other has the last replica then.
        until(lambda: not north.call("may_start"), "the end of their sessions")
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(north.write, home, 3)
            grid.networks.heal()
            assert written.result(180)
        until(lambda: bool(north.call("may_start")), "those that are heard of again")
        assert not north.call("lost")
        whole(grid, home, dict.fromkeys(range(4), north.id))


@pytest.mark.long
@pytest.mark.parametrize("way", ["both directions", "one direction"])
def test_two_that_cannot_talk_while_a_third_hears_both_lose_nothing(grid: NetworkedGrid, way: str) -> None:
    """Nobody is taken for dead, and what both have to hold is not acknowledged before both do."""
    north, home, led = grid.north, way, grid.leader()
    follower = others(grid, led)[0]
    assert north.write(home, 0)
    if way == "one direction":
        grid.networks.mute(led, to=follower)
    else:
        grid.networks.part(led, follower)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(lambda: [north.write(home, slot) for slot in range(1, 4)])
        let_pass(8.0)
        grid.networks.heal()
        assert all(written.result(300))
    whole(grid, home, dict.fromkeys(range(4), north.id))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_links_that_come_and_go_while_snapshots_are_written_lose_nothing(grid: NetworkedGrid, seed: int) -> None:
    chance, north, home, slot = random.Random(seed), grid.north, f"links-{seed}", 0
    for _ in range(10):
        alone = chance.choice(grid.names)
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(north.write, home, slot)
            let_pass(chance.random() * 0.2)
            grid.networks.split([*others(grid, alone), "north", "south"], [alone])
            # Shorter than a session, longer, and as long as it takes to be taken for dead.
            let_pass(chance.choice([0.3, 1.5, 3.0, 6.0]))
            grid.networks.heal()
            assert written.result(300)
        slot += 1
        assert north.read(home) == dict.fromkeys(range(slot), north.id)
        grid.restore()
    whole(grid, home, dict.fromkeys(range(slot), north.id))


@dataclass
class Winners:
    """Who has won which slot, of writers that all want the next one.

    Attributes:
        home: Where.
        won: Of each slot the ids of those that were told that they had won it.
    """

    home: str
    won: dict[int, set[int]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def compete(self, client: ClientProcess) -> None:
        """Write the next slot, again and again."""
        taken = -1
        while not self.over.is_set():
            slot = max(taken, *self.won, -1) + 1
            try:
                won = client.write(self.home, slot)
            except RefusedError:
                continue
            if won:
                self.won.setdefault(slot, set()).add(client.id)
            else:
                # Perhaps by one that was cut off before it was told: it is in no list of winners, ever.
                taken = slot

    def reaches(self, more: int) -> None:
        """Wait for some more slots."""
        wanted = len(self.won) + more
        until(lambda: len(self.won) >= wanted, f"{wanted} slots")


def test_of_writers_on_both_sides_of_a_split_one_wins_each_slot(grid: NetworkedGrid) -> None:
    winners = Winners("both")
    away = grid.leader()
    with ThreadPoolExecutor(2) as pool:
        written = [pool.submit(winners.compete, client) for client in (grid.north, grid.south)]
        try:
            winners.reaches(5)
            grid.networks.split([*others(grid, away), "north"], [away, "south"])
            winners.reaches(5)
            until(lambda: grid.members[away].id not in grid.north.members, "the end of its session")
            winners.reaches(2)
            grid.networks.heal()
            grid.removed(away)
            winners.reaches(5)
        finally:
            winners.over.set()
        for each in written:
            each.result(180)
    found = grid.north.read("both")
    assert all(len(ids) == 1 for ids in winners.won.values())
    # Who gave up before it was told may have won as well.
    assert all(found[slot] in ids for slot, ids in winners.won.items())
    assert set(found.values()) <= {grid.north.id, grid.south.id}
    whole(grid, "both", found)


@pytest.mark.long
def test_all_that_are_cut_from_each_other_are_frozen_and_go_on_after_the_heal(grid: NetworkedGrid) -> None:
    north, south, home = grid.north, grid.south, "apart"
    ids = grid.ids(*grid.names)
    assert north.write(home, 0)
    assert south.read(home) == {0: north.id}
    grid.networks.split(["a", "north"], ["b", "south"], ["c"])
    until(lambda: not north.asked(grid.uri("a"), home), "the end of the lease")
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(north.write, home, 1)
        until(lambda: not south.asked(grid.uri("b"), home), "the end of the lease")
        with pytest.raises(RefusedError, match="UnreachableError: no member of the grid answers"):
            south.write(home, 1)
        # Longer than any session: each has every reason to take the others for dead, and nobody to agree with.
        assert not south.asked(grid.uri("b"), home)
        grid.networks.heal()
        assert written.result(180)
    assert north.members == ids
    whole(grid, home, {0: north.id, 1: north.id})
    assert grid.ids(*grid.names) == ids


@pytest.mark.long
def test_a_leader_that_sleeps_serves_nobody_when_it_wakes(grid: NetworkedGrid) -> None:
    """In CI, `test_zookeeper_members.py` pauses one that leads, and `test_killed_members.py` one that holds rows."""
    north, south, home, led = grid.north, grid.south, "asleep", grid.leader()
    assert north.write(home, 0)
    assert south.read(home) == {0: north.id}
    slot, member = 0, grid.members[led].id
    with grid.paused(led):
        until(lambda: member not in north.members, "the end of its session")
        for slot in range(1, 4):
            assert north.write(home, slot)
    while grid.members[led].process.poll() is None:
        assert not south.asked(grid.uri(led), home)
    grid.removed(led)
    whole(grid, home, dict.fromkeys(range(slot + 1), north.id))


@pytest.mark.parametrize("which", ["leader", pytest.param("follower", marks=pytest.mark.long)])
def test_a_member_that_is_slow_does_not_make_copies_fewer(grid: NetworkedGrid, which: str) -> None:
    """An acknowledged entry is on all replicas at once: `write` asks each of them."""
    north, home, chance, led = grid.north, f"slow-{which}", random.Random(which), grid.leader()
    slow = led if which == "leader" else others(grid, led)[0]
    ids = grid.ids(*grid.names)
    over = threading.Event()

    def stumble() -> None:
        while not over.is_set():
            with grid.paused(slow):
                let_pass(chance.uniform(0.1, 0.7))
            let_pass(chance.uniform(0.05, 0.3))

    written: dict[int, int] = {}
    with ThreadPoolExecutor(1) as pool:
        stumbled = pool.submit(stumble)
        try:
            for slot in range(12):
                assert north.write(home, slot)
                written[slot] = north.id
                # As long as nobody was taken for dead, nobody had to be copied.
                assert north.copies(home) == 2 or north.members != ids
        finally:
            over.set()
        stumbled.result(60)
    whole(grid, home, written)
