"""Maps on members that are processes, killed, paused and replaced while one process writes and others read."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparkjet_grid.errors import AnalysisError, LostRowsError, MissingEntriesError
from sparkjet_grid.map_reader import Map
from tests.grid.maps import MapWriter
from tests.grid.processes import GridProcesses

KEYS = [f"k{n}" for n in range(60)]
BREAK = 0.05
"""Seconds between two reads."""


@dataclass
class Reading:
    """Reads by key and as a whole in a thread, until it is told to end; each read must be of one epoch."""

    map_: Map
    over: threading.Event = field(default_factory=threading.Event)
    seen: list[int] = field(default_factory=list)
    wrong: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def end(self) -> None:
        self.over.set()
        self._thread.join()

    def _read(self) -> None:
        try:
            # Without a break two readers would take a core from the members that they read from.
            while not self.over.wait(BREAK):
                by_key = [row["n"] for row in self.map_.get_all(KEYS).values()]
                self._judge(by_key)
                self._judge(self.map_.scan(["n"]).read_all().column("n").to_pylist())
        except Exception as error:  # noqa: BLE001 - the test fails by it
            self.wrong.append(error)

    def _judge(self, values: list[int]) -> None:
        if len(values) != len(KEYS) or len(set(values)) != 1 or (self.seen and values[0] < self.seen[-1]):
            self.wrong.append(values)
        self.seen.append(values[0])


def written(writer: MapWriter, epochs: int) -> None:
    for _ in range(epochs):
        epoch = max(writer.expected) + 1
        writer.write(epoch, dict.fromkeys(KEYS, epoch))


@pytest.mark.crash
@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.long)])
def test_readers_see_whole_epochs_while_members_are_killed_paused_and_replaced(tmp_path: Path, rounds: int) -> None:
    """In CI it is killed; `test_killed_journals.py` pauses one, and `api/test_grid_restarts.py` restarts all."""
    chosen = random.Random(39)
    with GridProcesses(tmp_path) as grid:
        writer = MapWriter(grid.client(), "board")
        writer.write(1, dict.fromkeys(KEYS, 1))
        readings = [Reading(Map("", "board", client=grid.client())) for _ in range(2)]
        try:
            for _ in range(rounds):
                grid.shake(chosen, lambda: written(writer, 4))
            # A rolling restart.
            for member in [*grid.members] if rounds > 1 else []:
                grid.restart(member)
                grid.settle()
                written(writer, 1)
        finally:
            for reading in readings:
                reading.end()
        assert [reading.wrong for reading in readings] == [[], []]
        assert all(len(set(reading.seen)) > rounds for reading in readings)
        newest = max(writer.expected)
        assert {row["n"] for row in readings[0].map_.scan().read_all().to_pylist()} == {newest}


@pytest.mark.crash
def test_a_writer_that_dies_at_any_step_is_followed_by_another(tmp_path: Path) -> None:
    with GridProcesses(tmp_path, 1, 0) as grid:
        first = MapWriter(grid.client(), "board")
        reader = Map("", "board", client=grid.client())
        with pytest.raises(AnalysisError, match="no map"):
            reader.get("k1")
        decided = first.prepare(1, dict.fromkeys(KEYS, 1))
        # Here it dies: what it has decided is published by its successor, and what it has not is undone.
        second = MapWriter(grid.client(), "board")
        second.publish(decided)
        first.prepare(2, dict.fromkeys(KEYS, 2))
        second.store.undo(lambda name: name.startswith("000001-000000002"))
        second.publish(second.prepare(3, dict.fromkeys(KEYS[:1], 3)))
        assert sorted({row["n"] for row in reader.get_all(KEYS).values()}) == [1, 3]
        held = {layer.name for version in map(second.store.at, (1, 2)) if version for layer in version.held()}
        assert {each.name for each in second.client.entries(second.store.place.layers())} == held


@pytest.mark.crash
@pytest.mark.long
def test_more_members_lost_at_once_than_there_are_copies_is_named_with_partitions_and_epochs(tmp_path: Path) -> None:
    with GridProcesses(tmp_path, 5) as grid:
        writer, reader = (
            MapWriter(grid.client(patience=60), "board"),
            Map("", "board", client=grid.client(patience=60)),
        )
        for epoch in (1, 2, 3):
            writer.write(epoch, dict.fromkeys(KEYS, epoch))
        assert len(reader.get_all(KEYS)) == len(KEYS)
        # The first three vote: without two of them nobody would say anything.
        grid.settle()
        for member in grid.members[-2:]:
            member.kill()
        said = r"map \"board\" has lost partitions \d+.* with (rows of epochs up to 3|what says where)"
        with pytest.raises(LostRowsError, match=said):
            reader.scan().read_all()
        with pytest.raises(LostRowsError, match=said):
            reader.get_all(KEYS)
        with pytest.raises((LostRowsError, MissingEntriesError), match=r"lost partitions|on no member"):
            writer.write(4, dict.fromkeys(KEYS[:1], 4))
