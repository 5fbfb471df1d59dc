"""Journals on members that are processes, killed, paused and replaced while one process writes and others follow."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparkjet_grid.journal_reader import Journal
from sparkjet_grid.journal_version import Retention
from sparkjet_grid.map_reader import Map
from tests.grid import test_killed_maps
from tests.grid.certificates import Authority
from tests.grid.journals import PARTITIONS, JournalWriter, read
from tests.grid.maps import MapWriter
from tests.grid.processes import GridProcesses


@dataclass
class Following:
    """Reads every row once in a thread, until it is told to end; registered, so that nothing goes before it is read."""

    journal: Journal
    name: str
    over: threading.Event = field(default_factory=threading.Event)
    rows: list[list[tuple[int, int]]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    wrong: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal.register(self.name, dict.fromkeys(range(PARTITIONS), 0))
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def end(self) -> None:
        self.over.set()
        self._thread.join()

    def _follow(self) -> None:
        try:
            is_last = False
            while not is_last:
                # Once more after the end: the newest epoch may have come since.
                is_last = self.over.is_set()
                self._read_on()
        except Exception as error:  # noqa: BLE001 - the test fails by it
            self.wrong.append(error)

    def _read_on(self) -> None:
        latest = self.journal.latest()
        for partition, end in latest.ends.items():
            rows = self.rows[partition]
            found = read(self.journal, partition, len(rows), end)
            if [offset for _, offset, _ in found] != [*range(len(rows), end)]:
                self.wrong.append(found)
            rows += [(n, epoch) for n, _, epoch in found]
        told = {each.epoch: each for each in self.journal.progress(latest.epoch - 1)}
        if told.get(latest.epoch, latest) != latest:
            self.wrong.append(told)
        self.journal.renew(self.name, latest.ends)


def written(writer: JournalWriter, epochs: int) -> None:
    version = writer.store.newest()
    first = version.epoch + 1 if version is not None else 1
    for epoch in range(first, first + epochs):
        rows = {partition: [10 * epoch + partition] * (1 + epoch % 3) for partition in range(PARTITIONS)}
        writer.write(epoch, rows, clock=epoch)


@pytest.mark.crash
@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.long)])
def test_readers_get_each_row_once_while_members_are_killed_paused_and_replaced(tmp_path: Path, rounds: int) -> None:
    """In CI one is paused; `api/test_grid_restarts.py` restarts all."""
    chosen = random.Random(391 + rounds)
    with GridProcesses(tmp_path) as grid:
        # It lets go whatever is read, so that merged, trimmed and new chunks are all there.
        writer = JournalWriter(grid.client(), "flights", retention=Retention(1, None, 1 << 30))
        written(writer, 1)
        followings = [Following(Journal("", "flights", client=grid.client()), f"reader-{n}") for n in range(2)]
        try:
            for _ in range(rounds):
                grid.shake(chosen, lambda: written(writer, 5))
            # A rolling restart.
            for member in [*grid.members] if rounds > 1 else []:
                grid.restart(member)
                grid.settle()
                written(writer, 1)
            written(writer, 3)
        finally:
            for following in followings:
                following.end()
        assert [following.wrong for following in followings] == [[], []]
        assert [following.rows for following in followings] == [writer.expected, writer.expected]
        assert writer.store.newest().base(0) > 0  # type: ignore[union-attr]
        for following in followings:
            following.journal.close()


@pytest.mark.crash
def test_a_writer_that_dies_at_any_step_is_followed_by_another(tmp_path: Path) -> None:
    with GridProcesses(tmp_path, 1, 0) as grid:
        first = JournalWriter(grid.client(), "flights")
        journal = Journal("", "flights", client=grid.client())
        decided = first.prepare(1, {0: [1, 2]})
        # Here it dies: what it has decided is published by its successor, and what it has not is undone.
        second = JournalWriter(grid.client(), "flights")
        second.publish(decided)
        first.prepare(2, {0: [3], 1: [4]})
        second.store.undo(lambda name: name.startswith("000001-000000002"))
        second.publish(second.prepare(3, {0: [5]}))
        assert read(journal, 0, 0, 3) == [(1, 0, 1), (2, 1, 1), (5, 2, 3)]
        assert journal.latest().ends == {0: 3, 1: 0, 2: 0, 3: 0}
        held = {entry.name for version in map(second.store.at, (1, 2)) if version for entry in version.held()}
        assert {each.name for each in second.client.entries(second.store.place.layers())} == held


@dataclass
class Writing:
    """Writes epochs in a thread, until it is told to end."""

    write: Callable[[], None]
    over: threading.Event = field(default_factory=threading.Event)
    wrong: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def end(self) -> None:
        self.over.set()
        self._thread.join()

    def _write(self) -> None:
        try:
            while not self.over.wait(test_killed_maps.BREAK):
                self.write()
        except Exception as error:  # noqa: BLE001 - the test fails by it
            self.wrong.append(error)


@pytest.mark.crash
@pytest.mark.long
def test_all_members_are_restarted_over_tls_while_a_map_and_a_journal_are_written_and_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.signed("member")
    with GridProcesses(tmp_path, tls=(str(certificate), str(key), str(authority.certificate))) as grid:
        journal = JournalWriter(grid.client(), "flights", retention=Retention(1, None, 1 << 30))
        board = MapWriter(grid.client(), "board")
        written(journal, 1)
        board.write(1, dict.fromkeys(test_killed_maps.KEYS, 1))
        reading = test_killed_maps.Reading(Map("", "board", client=grid.client()))
        following = Following(Journal("", "flights", client=grid.client()), "reader")
        threads: list[Writing | test_killed_maps.Reading | Following] = [
            Writing(lambda: written(journal, 1)),
            Writing(lambda: test_killed_maps.written(board, 1)),
            reading,
            following,
        ]
        try:
            for member in [*grid.members]:
                reads = len(reading.seen)
                grid.restart(member)
                grid.settle()
                assert len(reading.seen) > reads
        finally:
            for each in threads:
                each.end()
        assert [each.wrong for each in threads] == [[], [], [], []]
        assert following.rows == journal.expected
        assert max(board.expected) > len(grid.members)
        assert {row["n"] for row in reading.map_.scan().read_all().to_pylist()} == {max(board.expected)}
        following.journal.close()
