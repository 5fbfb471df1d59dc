"""Members killed and paused while snapshots are written: what a slot names is there, whole, whatever happens."""

from __future__ import annotations

import logging
import random
import resource
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from sparkjet_grid.client import GridClient
from sparkjet_grid.messages import Held, Status
from tests.faults.waiting import let_pass, until
from tests.grid.batches import ROWS, rows_of
from tests.grid.processes import GridProcesses

pytestmark = pytest.mark.crash
logger = logging.getLogger(__name__)
ENTRIES = 60
KEPT = 3
"""Snapshots that are not removed yet."""


@dataclass
class Writer:
    """Writes snapshots as a query does: entries, then a slot that names them; and reads them as a restart does."""

    client: GridClient
    random: random.Random
    slots: list[int] = field(default_factory=list)

    def write(self, slot: int) -> None:
        """Write a snapshot; it must succeed, however long it takes."""
        client = self.client
        size = self.random.randrange(10, 4000)
        entries = [
            client.entry(f"home/{slot}/{number}", ROWS, [rows_of(size, slot * 1000 + number, 100), rows_of(number)])
            for number in range(ENTRIES)
        ]
        manifest = client.put(entries)
        assert client.put_slot(f"home/{slot:03}", msgspec.msgpack.encode(manifest), manifest)
        self.slots.append(slot)
        for old in self.slots[:-KEPT]:
            client.remove(prefix=f"home/{old}/")
        client.remove_slots([f"home/{slot:03}" for slot in self.slots[:-KEPT]])

    def read(self) -> None:
        """Read all snapshots that there should be, and count."""
        found = [int(name.rpartition("/")[2]) for name in self.client.slots("home")]
        assert found == self.slots[-KEPT:]
        for slot in found:
            manifest = msgspec.msgpack.decode(self.client.slot(f"home/{slot:03}") or b"", type=list[Held])
            self.client.check(manifest)
            entries = {entry.key: entry for entry in self.client.get(manifest)}
            assert len(entries) == ENTRIES
            for held in manifest:
                number = int(held.name.rpartition("/")[2])
                first, second = entries[held.key].batches
                assert first.num_rows + second.num_rows == held.rows
                assert first.column("key")[0].as_py() == slot * 1000 + number
                assert second.num_rows == number


def killed(folder: Path, rounds: int, seed: int) -> None:
    """Kill a member during each of some snapshots, and let another one take its place."""
    # Shown by a test that fails.
    logger.warning("seed %d", seed)
    chance = random.Random(seed)
    with GridProcesses(folder) as grid, ThreadPoolExecutor(1) as pool:
        writer = Writer(grid.client(), chance)
        writer.write(0)
        for slot in range(1, rounds + 1):
            written = pool.submit(writer.write, slot)
            let_pass(chance.random() * 0.3)
            grid.end(chance.choice(grid.members))
            written.result(180)
            writer.read()
            grid.add()
            grid.settle()
            writer.read()
        writer.client.close()


def test_members_that_are_killed_during_writes_lose_nothing(tmp_path: Path) -> None:
    killed(tmp_path, 1, random.randrange(1_000_000))


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_members_that_are_killed_fifty_times_during_writes_lose_nothing(tmp_path: Path) -> None:
    killed(tmp_path, 50, random.randrange(1_000_000))


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[GridProcesses]:
    with GridProcesses(tmp_path) as grid:
        yield grid


def paused(grid: GridProcesses, which: int) -> None:
    """Pause a member while snapshots are written, and let it go on when it no longer is one."""
    writer = Writer(grid.client(), random.Random(which))
    writer.write(0)
    member = grid.members.pop(which)
    member.signal(signal.SIGSTOP)
    try:
        for slot in range(1, 4):
            writer.write(slot)
        until(lambda: member.id not in {each.id for each in writer.client.state().members}, "the end of its session")
    finally:
        member.signal(signal.SIGCONT)
    # It has slept through its end, and finds out.
    assert member.ended() == 1
    last = member.output.splitlines()[-1]
    assert f"Member {member.id} has ended: " in last
    assert "without it" in last or "has removed it" in last or "have removed it" in last or "taken this member" in last
    writer.read()
    grid.settle()
    writer.read()
    writer.client.close()


@pytest.mark.long
def test_a_member_that_was_paused_ends_and_nothing_is_wrong(grid: GridProcesses) -> None:
    """In CI, `test_zookeeper_members.py` pauses the leader, and `test_split_networks.py` cuts a member off."""
    paused(grid, 1)


@pytest.mark.long
def test_the_first_member_that_was_paused_ends_and_nothing_is_wrong(grid: GridProcesses) -> None:
    paused(grid, 0)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_all_members_are_replaced_one_by_one_while_snapshots_are_written(grid: GridProcesses) -> None:
    writer = Writer(grid.client(), random.Random(0))
    writer.write(0)
    with ThreadPoolExecutor(1) as pool:
        for slot, member in enumerate([*grid.members], 1):
            written = pool.submit(writer.write, slot)
            grid.add()
            grid.members.remove(member)
            member.signal(signal.SIGTERM)
            assert member.ended() == 0
            written.result(180)
            writer.read()
            grid.settle()
    writer.client.close()


@pytest.mark.long
def test_members_that_can_open_nothing_for_a_while_go_on(grid: GridProcesses) -> None:
    """Every thread of every member fails, in whatever it does next."""
    writer = Writer(grid.client(), random.Random(1))
    writer.write(0)
    limits = {}
    for member in grid.members:
        process = member.process.pid
        opened = len(list(Path(f"/proc/{process}/fd").iterdir()))
        limits[process] = resource.prlimit(process, resource.RLIMIT_NOFILE)
        resource.prlimit(process, resource.RLIMIT_NOFILE, (opened, limits[process][1]))
    let_pass(15)
    for process, limit in limits.items():
        resource.prlimit(process, resource.RLIMIT_NOFILE, limit)
    assert [member.process.poll() for member in grid.members] == [None, None, None]
    assert any("Too many open files" in member.output for member in grid.members)
    until(lambda: all(isinstance(each, Status) for each in writer.client.status().values()), "all to answer")
    writer.write(1)
    writer.read()
    grid.settle()
    writer.client.close()
