"""``python -m sparkjet grid journal``, on members on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from sparkjet.cli import main
from sparkjet.cli.grid_places import listed, moment
from sparkjet.time import MAX, MIN
from sparkjet_grid.journal_reader import Journal
from sparkjet_grid.journal_version import Retention
from sparkjet_grid.messages import Held
from sparkjet_grid.places import JournalPlace
from tests.grid.grids import Grid, grid_of
from tests.grid.journals import JournalWriter


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    with grid_of(tmp_path_factory.mktemp("grid"), 2) as grid:
        writer = JournalWriter(grid.client(), "orders", retention=Retention(1, None, 1 << 20))
        writer.write(1, {0: [5]})
        writer.write(2, {0: [1, 2], 1: [3]})
        writer.retention = Retention()
        writer.write(3, {0: [4]})
        yield grid


def run(grid: Grid, command: str, name: str, *more: str) -> int:
    address = grid.members[0].address.uri.partition("//")[2]
    return main(
        ["grid", "journal", command, f"grid://{address}{name}", *more, "--token-file", str(grid.access.token_file)]
    )


def test_rows_are_shown_by_partition_and_offset(grid: Grid, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(grid, "read", "/orders", "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["n"], row["_partition"], row["_offset"], row["_epoch"]) for row in rows] == [
        (1, 0, 1, 2),
        (2, 0, 2, 2),
        (4, 0, 3, 3),
        (3, 1, 0, 2),
    ]
    assert run(grid, "read", "/orders", "--partition", "0", "--offset", "2", "--limit", "1") == 0
    assert capsys.readouterr().out == "n=2  _partition=0  _offset=2  _epoch=2\n"


def entries_of(grid: Grid) -> list[Held]:
    return grid.client().entries(JournalPlace("orders").layers())


def test_journals_are_listed_and_shown_by_status(grid: Grid, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal("", "orders", client=grid.client())
    journal.register("board", {0: 3, 1: 0})
    assert run(grid, "ls", "", "--json") == 0
    [found] = map(json.loads, capsys.readouterr().out.splitlines())
    told = {name: found[name] for name in ("journal", "epoch", "oldest", "partitions", "rows", "readers")}
    assert told == {"journal": "orders", "epoch": 3, "oldest": 2, "partitions": 4, "rows": 4, "readers": {"board": 2}}
    address = grid.members[0].address.uri.partition("//")[2]
    assert main(["grid", "status", address, "--token-file", str(grid.access.token_file)]) in {0, 3}
    out = capsys.readouterr().out
    assert "journal orders: epochs 2 to 3, 4 rows in 4 partitions, " in out
    assert "bytes, readers: board (2 rows behind)\n" in out
    assert main(["grid", "status", address, "--json", "--token-file", str(grid.access.token_file)]) in {0, 3}
    assert json.loads(capsys.readouterr().out)["journals"] == [found]
    assert (found["entries"], found["bytes"]) == (len(held := entries_of(grid)), sum(entry.size for entry in held))
    journal.release("board")


@pytest.mark.parametrize(
    ("command", "name", "more", "said"),
    [
        ("read", "/order", [], 'no journal "order"; did you mean "orders"'),
        ("ls", "/orders", [], "names a journal. Name only the grid"),
        ("read", "", [], '"" is not a name of a journal'),
        ("read", "/orders", ["--limit", "-1"], "--limit: -1 is not a number of rows"),
        ("read", "/orders", ["--offset", "1"], "--offset: 1 is of one partition, from 0. Name it with --partition"),
        ("read", "/orders", ["--partition", "7"], "--partition: there are 4, from 0, and no 7"),
        (
            "read",
            "/orders",
            ["--partition", "0", "--offset", "0"],
            "1 row is gone, of epochs up to 2: partition 0, off",
        ),
    ],
)
def test_what_is_wrong_is_named(
    grid: Grid, capsys: pytest.CaptureFixture[str], command: str, name: str, more: list[str], said: str
) -> None:
    assert run(grid, command, name, *more) == 1
    assert said in capsys.readouterr().err


def test_a_journal_that_is_removed_is_gone_with_its_memory(grid: Grid) -> None:
    writer = JournalWriter(grid.client(), "old")
    writer.write(1, {0: [1]})
    assert run(grid, "remove", "/old") == 0
    assert writer.client.entries(writer.store.place.root) == []
    assert writer.store.numbers() == []
    assert run(grid, "remove", "/old") == 1


def test_a_watermark_may_be_of_any_year() -> None:
    assert [moment(micros) for micros in (None, MIN, 0, 1_700_000_000_123_456)] == [
        None,
        None,
        "1970-01-01T00:00:00+00:00",
        "2023-11-14T22:13:20.123456+00:00",
    ]
    for micros in (253_402_300_800_000_000, -62_198_755_200_000_000, MIN + 1, MAX):
        assert moment(micros) == f"{micros} µs"


def test_rows_of_any_year_are_shown() -> None:
    late = pa.array([253_402_300_800_000_000, None], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"n": [1, 2], "ts": late, "window": pa.StructArray.from_arrays([late], ["start"])})
    text = "10000-01-01 00:00:00.000000Z"
    assert listed(batch) == [
        {"n": 1, "ts": text, "window": {"start": text}},
        {"n": 2, "ts": None, "window": {"start": None}},
    ]
    assert listed(batch.slice(1)) == [{"n": 2, "ts": None, "window": {"start": None}}]
    lists = pa.array([[0, 253_402_300_800_000_000]], pa.list_(late.type))
    assert listed(pa.record_batch({"s": ["é"], "all": lists})) == [
        {"s": "é", "all": ["1970-01-01 00:00:00.000000Z", text]}
    ]


def test_text_that_is_not_utf8_is_shown_as_bytes() -> None:
    texts = pa.array([b"a", b"\xff"]).cast(pa.string(), safe=False)
    late = pa.array([253_402_300_800_000_000] * 2, pa.timestamp("us", "UTC"))
    assert [row["s"] for row in listed(pa.record_batch({"s": texts, "ts": late}))] == [b"a", b"\xff"]
