"""``python -m sparkjet grid map``, on members on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from sparkjet.cli import grid_maps, main
from sparkjet.cli.grid_maps import _key
from sparkjet.cli.grid_places import show_rows
from sparkjet.errors import AnalysisError
from sparkjet_grid.map_reader import Map
from tests.grid.grids import Grid, grid_of
from tests.grid.maps import MapWriter


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    with grid_of(tmp_path_factory.mktemp("grid"), 2) as grid:
        MapWriter(grid.client(), "orders").write(1, {"a": 1, "b": 2, "c": 3})
        writer = MapWriter(grid.client(), "orders")
        writer.write(2, {"b": None})
        yield grid


def run(grid: Grid, command: str, name: str, *more: str) -> int:
    address = grid.members[0].address.uri.partition("//")[2]
    token = grid.access.token_file
    assert token is not None
    return main(["grid", "map", command, f"grid://{address}{name}", *more, "--token-file", token])


def test_rows_are_shown_by_key_and_all(grid: Grid, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(grid, "get", "/orders", "a", "c", "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == [{"k": "a", "n": 1}, {"k": "c", "n": 3}]
    assert run(grid, "get", "/orders", "b") == 1
    assert run(grid, "scan", "/orders", "--json", "--columns", "n") == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ['{"n":1}', '{"n":3}']
    assert run(grid, "scan", "/orders", "--limit", "1") == 0
    assert capsys.readouterr().out.splitlines() in (["k=a  n=1"], ["k=c  n=3"])


def test_values_do_not_move_the_cursor_nor_begin_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"k": "é\x1b[2J\x9b2J\nk=z", "n": 1}
    show_rows([row], as_json=False)
    assert capsys.readouterr().out == "k=é\\x1b[2J\\x9b2J\\nk=z  n=1\n"
    show_rows([row], as_json=True)
    out = capsys.readouterr().out
    assert out.removesuffix("\n").isprintable()
    assert json.loads(out) == row


def test_maps_are_listed_and_shown_by_status(grid: Grid, capsys: pytest.CaptureFixture[str]) -> None:
    writer = MapWriter(grid.client(), "shown")
    writer.write(1, {"a": 1, "b": 2, "c": 3})
    status = ["grid", "status", grid.members[0].address.uri.partition("//")[2]]
    status += ["--token-file", str(grid.access.token_file)]
    with Map("", "shown", client=grid.client()).held():
        writer.write(2, {"b": None})
        # An epoch that is no longer visible, but held.
        for epoch in (3, 4):
            writer.write(epoch, {})
        assert run(grid, "ls", "", "--json") == 0
        [_, found] = map(json.loads, capsys.readouterr().out.splitlines())
        held, newest = writer.client.entries(writer.store.place.layers()), writer.store.newest()
        assert newest is not None
        assert found == {
            "map": "shown",
            "epoch": 4,
            "oldest": 1,
            "watermark": "1970-01-01T00:00:00.004000+00:00",
            "rows": sum([layer.rows for layer in newest.held()]),
            "entries": len(held),
            "bytes": writer.store.used(),
            "readers": 1,
            "behind": 3,
            "query": "q",
        }
        assert main(status) in {0, 3}
        out = capsys.readouterr().out
        assert f"map shown: epochs 1 to 4, {found['rows']} rows at most, {len(held)} entries, " in out
        assert " bytes, readers that hold an epoch: 1, up to 3 epochs behind\n" in out
        assert main([*status, "--json"]) in {0, 3}
        assert json.loads(capsys.readouterr().out)["maps"][-1] == found
    writer.store.remove()


@pytest.mark.parametrize(
    ("command", "name", "more", "said"),
    [
        ("get", "/order", ["a"], 'no map "order"; did you mean "orders"'),
        ("ls", "/orders", [], "names a map. Name only the grid"),
        ("get", "", ["a"], '"" is not a name of a map'),
        ("scan", "/orders", ["--columns", "n, m"], "the map has no 'm'"),
        ("scan", "/orders", ["--limit", "-1"], "--limit: -1 is not a number of rows"),
    ],
)
def test_what_is_wrong_is_named(
    grid: Grid, capsys: pytest.CaptureFixture[str], command: str, name: str, more: list[str], said: str
) -> None:
    assert run(grid, command, name, *more) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ['"ab"', '{"a": 1, "b": 2}', '["a", null]', '["a"]', "a", "null"])
def test_what_is_not_a_list_of_values_is_not_a_key(text: str) -> None:
    class OfTwoTexts:
        keys, kinds = ("k", "l"), ("text", "text")

    with pytest.raises(AnalysisError, match=r"is not a key of this map, which has k \(text\), l \(text\)"):
        _key(text, OfTwoTexts())  # type: ignore[arg-type]


def test_a_map_that_is_removed_is_gone_with_its_memory(grid: Grid, tmp_path: Path) -> None:
    del tmp_path
    writer = MapWriter(grid.client(), "old")
    writer.write(1, {"a": 1})
    assert run(grid, "remove", "/old") == 0
    assert writer.client.entries(writer.store.place.root) == []
    assert writer.store.numbers() == []
    assert run(grid, "remove", "/old") == 1


def test_a_year_that_python_does_not_have_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = pa.record_batch({"since": pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC"))})
    rows = SimpleNamespace(scan=lambda _: [batch])
    monkeypatch.setattr(grid_maps, "_opened", lambda *_: nullcontext(rows))
    assert main(["grid", "map", "scan", "grid:///orders"]) == 0
    assert capsys.readouterr().out == "since=10000-01-01 00:00:00.000000Z\n"
