"""Methods of the readers in every order: before the first epoch, twice, at once, after the end, without a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from sparkjet_grid.journal_reader import Journal
from sparkjet_grid.map_reader import Map
from tests.grid.grids import Grid, grid_of
from tests.grid.journals import JournalWriter
from tests.grid.maps import MapWriter
from tests.orders import at_once, outcome

READER = "board"
Methods = Mapping[str, Callable[..., object]]


def held(map_: Map) -> object:
    with map_.held():
        return map_.get("a")


def taken(map_: Map) -> None:
    map_.taken().lease.release()


def taken_again(map_: Map) -> None:
    manifest, version = map_.planned()
    again = map_.taken_again(manifest, version.number)
    assert again is not None
    again.lease.release()


def part(map_: Map) -> int:
    manifest, version = map_.planned()
    return sum(batch.num_rows for batch in map_.part(manifest, [*version.layers]))


MAPS: Mapping[str, Callable[[Map], object]] = {
    "at": lambda map_: map_.at(map_.planned()[0]),
    "cluster": lambda map_: map_.cluster,
    "epoch": lambda map_: map_.epoch,
    "get": lambda map_: map_.get("a"),
    "get_all": lambda map_: map_.get_all(["a", "b"]),
    "held": held,
    "keys": lambda map_: map_.keys,
    "kinds": lambda map_: map_.kinds,
    "part": part,
    "planned": lambda map_: map_.planned(),
    "scan": lambda map_: map_.scan().read_all(),
    "schema": lambda map_: map_.schema,
    "taken": taken,
    "taken_again": taken_again,
    "told": lambda map_: map_.told(),
    "version": lambda map_: map_.version(),
    "watermark": lambda map_: map_.watermark,
}
"""Every public method and attribute of a map, but for those that end it."""

JOURNALS: Mapping[str, Callable[[Journal], object]] = {
    "check": lambda journal: journal.check(journal.earliest()),
    "earliest": lambda journal: journal.earliest(),
    "latest": lambda journal: journal.latest(),
    "partitions": lambda journal: journal.partitions,
    "progress": lambda journal: journal.progress(),
    "read": lambda journal: list(journal.read(0, 0, 1)),
    "register": lambda journal: journal.register(READER, {0: 0}),
    "renew": lambda journal: journal.renew(READER, {0: 0}),
    "release": lambda journal: journal.release(READER),
    "schema": lambda journal: journal.schema,
    "spark_schema": lambda journal: journal.spark_schema,
    "told": lambda journal: journal.told(),
    "writer": lambda journal: journal.writer,
}
"""The same of a journal, in an order in which each has what it needs."""
ENDS = ("remove", "close")
LOCAL = {"release"}
"""Calls that ask no member if nothing is registered."""


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    with grid_of(tmp_path, 2) as grid:
        yield grid


def reader_of(kind: str, grid: Grid, patience: float = 30.0) -> tuple[Map | Journal, Methods]:
    client = grid.client(patience=patience)
    return (Map("", "m", client=client), MAPS) if kind == "map" else (Journal("", "j", client=client), JOURNALS)


def write(kind: str, grid: Grid) -> None:
    """The first epoch."""
    if kind == "map":
        MapWriter(grid.client(), "m").write(1, {"a": 1})
    else:
        JournalWriter(grid.client(), "j").write(1, {0: [1], 1: [2]})


@pytest.mark.parametrize("kind", ["map", "journal"])
def test_readers_in_every_order(grid: Grid, kind: str) -> None:
    reader, methods = reader_of(kind, grid)
    assert {*methods, *ENDS} == {name for name in dir(reader) if not name.startswith("_")}
    before = {name: outcome(partial(method, reader)) for name, method in methods.items()}
    told = ("done", "AnalysisError: [SPARKJET_ANALYSIS] name: ", "AnalysisError: [SPARKJET_ANALYSIS] reader: ")
    assert {name: end for name, end in before.items() if not end.startswith(told)} == {}
    write(kind, grid)
    for name, method in methods.items():
        calls = [partial(method, reader)] * 2
        if name == "renew":
            # What another thread has released.
            methods["register"](reader)
        assert [*map(outcome, calls), *at_once(*calls)] == ["done"] * 4, name
    # Nothing is held.
    assert isinstance(reader, Map) or reader._leases == {}
    assert at_once(reader.remove, reader.remove)[0].startswith(("done", *told))
    gone = {name: outcome(partial(method, reader)) for name, method in methods.items()}
    assert {name: end for name, end in gone.items() if not end.startswith((*told, "ReleasedError: "))} == {}
    assert [*at_once(reader.close, reader.close), outcome(reader.close)] == ["done"] * 3


@pytest.mark.parametrize("kind", ["map", "journal"])
def test_readers_without_a_grid_say_so(grid: Grid, kind: str) -> None:
    write(kind, grid)
    reader, methods = reader_of(kind, grid, patience=0.1)
    for member in [*grid.members]:
        grid.kill(member)
    for name, method in methods.items():
        found = at_once(*[partial(method, reader)] * 2)
        told = all("no member of the grid" in each or "reader: " in each for each in found)
        assert told or name in LOCAL, (name, found)
    assert outcome(reader.close) == "done"
