"""Upserts into Delta and Iceberg tables: which rows are replaced, and that no other is lost, whoever else writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.delta.displacing import Displacing
from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.connectors.iceberg.library import PathTable
from sparkjet.connectors.iceberg.schema import new_schema
from sparkjet.connectors.iceberg.sink import IcebergSink
from sparkjet.errors import AnalysisError, LostTransactionError, SinkError
from sparkjet.java import java_class
from sparkjet.sinks.staged_files import StagedFiles
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import QUERY, RUN, transaction
from tests.connectors.delta.reading import rows_of
from tests.connectors.delta.test_delta import table_with
from tests.connectors.iceberg.reading import IcebergReader
from tests.feed import Feed, rows
from tests.parameters import mostly_long

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.sinks.protocol import Handle

Row = tuple[Any, ...]
ROWS, RUNS = 40, 2
SCHEMA = "k string, d date, n long, v string"
ONE, TWO = date(2026, 1, 1), date(1969, 12, 31)
EPOCHS: tuple[tuple[Row, ...], ...] = (
    (("a", ONE, 1, "x"), ("b", ONE, 1, "x"), (None, TWO, 1, "x"), ("", TWO, 1, "x")),
    (("a", ONE, 2, "y"), (None, TWO, 2, "y"), (None, None, 3, "z"), ("c d/=%", None, 3, "ü")),
    # Of two with one key the one with the greatest other columns stays; a null is the least.
    ((None, None, 4, "z"), ("a", TWO, 8, "w"), ("a", TWO, 9, None), ("a", TWO, 9, "v"), ("c d/=%", None, 0, None)),
)


@dataclass(frozen=True)
class Tables:
    """Tables of one format."""

    name: str
    session: SparkSession

    def sink(self, path: Path, schema: Any, keys: Sequence[str], by: Sequence[str] = (), **more: Any) -> Any:
        """A sink that has begun, as in its own process."""
        directory = PosixDirectory(path)
        sink: Any = (
            DeltaSink(directory, self.session, tuple(by), keys=tuple(keys), **more)
            if self.name == "delta"
            else IcebergSink(PathTable(self.session, directory), self.session, tuple(by), keys=tuple(keys), **more)
        )
        sink.check(schema)
        sink.create()
        return sink

    def rows(self, path: Path) -> list[dict[str, Any]]:
        """The rows that others read."""
        return rows_of(path) if self.name == "delta" else IcebergReader(self.session, path).rows()

    def versions(self, path: Path) -> list[Path]:
        """The files of its versions."""
        return [*path.glob("_delta_log/*.json" if self.name == "delta" else "metadata/v*.metadata.json")]

    def left(self, path: Path) -> list[str]:
        """The names of the prepared changes that are left."""
        base = path if self.name == "delta" else path / "data"
        return [each.name for each in base.glob(f"_sparkjet/{QUERY}/*/prepared/*")]


@pytest.fixture(params=["delta", "iceberg"])
def tables(request: pytest.FixtureRequest, delta: SparkSession, iceberg: SparkSession) -> Tables:
    return Tables(request.param, delta if request.param == "delta" else iceberg)


def often(*formats: str) -> pytest.MarkDecorator:
    """In CI with some formats only, where what both do is the same code or is shown of the other one elsewhere."""
    both = {name: name for name in ("delta", "iceberg")}
    return pytest.mark.parametrize("tables", mostly_long(both, formats), indirect=True)


def frame(session: SparkSession, given: Iterable[Row], schema: str = SCHEMA) -> DataFrame:
    return session.createDataFrame([*given], schema).coalesce(1)


def prepared(sink: Any, given: DataFrame, epoch: int, output: str = "results") -> Handle:
    handle = sink.prepare(given, replace(transaction(epoch, run=RUN), sink=output))
    assert handle is not None
    # As from the record of another process.
    found: Handle = json.loads(json.dumps(handle))
    return found


def upserted(epochs: Iterable[Iterable[Row]], keys: int) -> list[str]:
    """The remaining rows of epochs by their first columns, as texts."""
    left: dict[Row, Row] = {}
    for epoch in epochs:
        left |= {
            row[:keys]: row
            for row in sorted(
                epoch, key=lambda row: [(x is not None, x or 0 if isinstance(x, int) else x or "") for x in row[keys:]]
            )
        }
    return sorted(map(str, left.values()))


def texts(found: Iterable[dict[str, Any]]) -> list[str]:
    days = {str(day): day for day in (ONE, TWO)}
    return sorted(
        str(tuple(days.get(value, value) if isinstance(value, str) else value for value in row.values()))
        for row in found
    )


PARTITIONS: dict[str, tuple[str, ...]] = {"unpartitioned": (), "by a date": ("d",), "by all keys": ("k", "d")}
# Without partitions: the commit that is cut off, below.
# In CI a query in update mode upserts into Iceberg.
OFTEN = {("delta", "by all keys")}


@pytest.mark.parametrize(
    ("tables", "by"),
    [
        pytest.param(name, by, id=f"{name}-{of}", marks=() if (name, of) in OFTEN else pytest.mark.long)
        for name in ("delta", "iceberg")
        for of, by in PARTITIONS.items()
    ],
    indirect=["tables"],
)
def test_rows_replace_older_ones_with_their_keys_and_others_stay(
    tables: Tables, tmp_path: Path, by: tuple[str, ...]
) -> None:
    path, session = tmp_path / "a table%", tables.session
    # An empty text is a null in the partitions of a Delta table.
    epochs = [[row for row in epoch if row[0] != ""] for epoch in EPOCHS] if "k" in by else EPOCHS
    sink = tables.sink(path, frame(session, EPOCHS[0]).schema, ["k", "d"], by)
    handles = []
    for number, epoch in enumerate(epochs, 1):
        handles.append(prepared(sink, frame(session, epoch), number))
        sink.commit(handles[-1], lambda: None)
        assert texts(tables.rows(path)) == upserted(epochs[:number], 2)
    # A driver that was paused for two epochs.
    sink.commit(handles[0], lambda: None)
    assert texts(tables.rows(path)) == upserted(epochs, 2)
    assert tables.left(path) == []


# Of Delta: what others write after a look, below, and many drivers in `delta/test_delta.py`.
@often("iceberg")
def test_of_many_drivers_at_once_each_epoch_is_written_once_and_in_order(tables: Tables, tmp_path: Path) -> None:
    session = tables.session
    schema = "k long, n long"
    first = tables.sink(tmp_path / "t", frame(session, [(0, 0)], schema).schema, ["k"])
    epochs = [[(key, epoch) for key in range(epoch, epoch + 3)] for epoch in (1, 2, 3)]
    handles = [prepared(first, frame(session, epoch, schema), number) for number, epoch in enumerate(epochs, 1)]

    def commit(_: int) -> None:
        own = tables.sink(tmp_path / "t", frame(session, [(0, 0)], schema).schema, ["k"])
        for handle in handles:
            own.commit(handle, lambda: None)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(commit, range(3)))
    assert texts(tables.rows(tmp_path / "t")) == upserted(epochs, 1)
    assert tables.left(tmp_path / "t") == []


# Of Delta, the page of the guide, whose examples CI runs.
@often("iceberg")
def test_a_query_in_update_mode_is_the_batch_whatever_was_cut_off(tables: Tables, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    for _ in range(RUNS):
        feed.add(*rows(range(ROWS)))
        stream = sj.stream(feed.read(tables.session)).withColumn("k", F.when(F.col("id") % 5 > 0, F.col("id") % 5))
        counts = stream.groupBy("k").agg(F.count("*").alias("n"), F.sum("id").alias("total"))
        writer = counts.writeStream.format(tables.name).outputMode("update").option("path", tmp_path / "out")
        writer = writer.options(mode="upsert", keyColumns="k", checkpointLocation=tmp_path / "home")
        writer.trigger(availableNow=True).start().awaitTermination()
    groups: dict[int | None, list[int]] = {}
    for number in range(RUNS * ROWS):
        groups.setdefault(number % 5 or None, []).append(number)
    expected = [{"k": key, "n": len(own), "total": sum(own)} for key, own in groups.items()]
    assert sorted(map(str, tables.rows(tmp_path / "out"))) == sorted(map(str, expected))
    assert tables.left(tmp_path / "out") == []


def test_a_commit_that_is_cut_off_after_the_tables_own_is_ended_by_the_next(tables: Tables, tmp_path: Path) -> None:
    """A rewritten file is the table's, and not an orphan."""
    session, path = tables.session, tmp_path / "t"
    sink = tables.sink(path, frame(session, EPOCHS[0]).schema, ["k", "d"])
    for number, epoch in enumerate(EPOCHS[:2], 1):
        handle = prepared(sink, frame(session, epoch), number)
        if tables.name == "delta":
            # An earlier driver died after rewriting files, before it wrote a version.
            sink._displacing(handle).of(sink._table(sink.directory).version())
        with pytest.raises(_CutError):
            sink.commit(handle, _cut)
        again = tables.sink(path, frame(session, EPOCHS[0]).schema, ["k", "d"])
        again.commit(handle, lambda: None)
        again.abort_orphans(QUERY, 9, [])
        assert texts(tables.rows(path)) == upserted(EPOCHS[:number], 2)
    assert tables.left(path) == []
    if tables.name == "delta":
        [written] = path.glob("sparkjet-*.*")
        assert any(written.name in file for file in DeltaTable(path).file_uris())


def in_a_store(made: Callable[[], Any], session: SparkSession) -> list[tuple[str, int]]:
    """Epochs into a table of a store, each by a driver that is cut off and by its successor; what must be there."""
    schema = "k string, n long"
    epochs = [[("a", 1), ("b", 1), ("c", 1)], [("a", 2), ("b/%", 2)], [("c", 3), ("a", 3)]]
    for number, epoch in enumerate(epochs, 1):
        sink = made()
        sink.check(frame(session, [], schema).schema)
        sink.create()
        handle = prepared(sink, frame(session, epoch, schema), number)
        with pytest.raises(_CutError):
            sink.commit(handle, _cut)
        again = made()
        again.commit(handle, lambda: None)
        again.abort_orphans(QUERY, 9, [])
    return [("a", 3), ("b", 1), ("b/%", 2), ("c", 3)]


class _CutError(Exception):
    """As a driver that dies there."""


def _cut() -> None:
    raise _CutError


# Where they have not compacted the table there is less to be looked at again.
@pytest.mark.parametrize("compacted", [pytest.param(False, marks=pytest.mark.long), True])
def test_what_others_write_after_a_look_is_looked_at_too(delta: SparkSession, tmp_path: Path, compacted: bool) -> None:
    tables = Tables("delta", delta)
    schema = "k string, n long"
    sink = tables.sink(tmp_path, frame(delta, [("a", 1)], schema).schema, ["k"])
    sink.commit(prepared(sink, frame(delta, [("a", 1), ("b", 1)], schema), 1), lambda: None)
    handle = prepared(sink, frame(delta, [("a", 2)], schema), 2)
    table = sink._table(sink.directory)
    stale = table.version()
    assert stale is not None
    write_deltalake(tmp_path, pa.table({"k": ["a", "theirs"], "n": [9, 9]}), mode="append")
    if compacted:
        DeltaTable(tmp_path).optimize.compact()
    before = {each.name for each in tmp_path.glob("sparkjet-*")}
    displacing = sink._displacing(handle)
    assert sink._append(table, stale, [handle], displacing) is None
    # Rewritten once for that version, and once more for the next.
    assert len({each.name for each in tmp_path.glob("sparkjet-*")} - before) == 1
    added = sink._append(table, table.version(), [handle], displacing)
    assert added is not None
    displacing.end(added)
    found = {row["k"]: row["n"] for row in rows_of(tmp_path)}
    assert found == {"a": 2, "b": 1, "theirs": 9}
    newest = DeltaTable(tmp_path).history(1)[0]
    assert not newest["isBlindAppend"]


def test_files_that_cannot_have_a_key_are_left_alone(delta: SparkSession, tmp_path: Path) -> None:
    tables = Tables("delta", delta)
    for kind, values in {
        "timestamp": ["'1969-12-31 23:59:59.999999'", "'2026-01-01'", "NULL"],
        # Of which the log has no bounds: they are looked at.
        "double": ["'NaN'", "-0.0", "NULL"],
    }.items():
        path = tmp_path / kind
        typed = [f"CAST({value} AS {kind}) AS k" for value in values]
        batches = [delta.sql(f"SELECT {value}, {number}L AS n") for number, value in enumerate(typed)]
        again = delta.sql(f"SELECT {typed[0]}, 8L AS n UNION ALL SELECT {typed[1].replace('-0.0', '0.0')}, 9L")
        sink = tables.sink(path, batches[0].schema, ["k"])
        for epoch, batch in enumerate([*batches, again.coalesce(1)], 1):
            sink.commit(prepared(sink, batch, epoch), lambda: None)
        assert sorted(row["n"] for row in rows_of(path)) == [2, 8, 9], kind
        # Of the two files that had the keys nothing stayed, and the third is as it was.
        files = [unquote(file).rpartition("sparkjet-")[2] for file in DeltaTable(path).file_uris()]
        assert sorted(file.split("-")[3] for file in files) == ["000000003", "000000004"]
        assert [*path.glob("sparkjet-*.*")] == []


def test_files_that_are_gone_are_named_and_the_table_stays_as_it_was(tables: Tables, tmp_path: Path) -> None:
    schema = "k string, n long"
    sink = tables.sink(tmp_path, frame(tables.session, [("a", 1)], schema).schema, ["k"])
    sink.commit(prepared(sink, frame(tables.session, [("a", 1)], schema), 1), lambda: None)
    handle = prepared(sink, frame(tables.session, [("a", 2)], schema), 2)
    name = handle["deletes"][0][0] if tables.name == "iceberg" else handle["files"][0][0]
    (tmp_path / ("data" if tables.name == "iceberg" else "") / name).unlink()
    with pytest.raises(LostTransactionError, match="1 rows are lost, and the table is as it was"):
        sink.commit(handle, lambda: None)
    assert tables.rows(tmp_path) == [{"k": "a", "n": 1}]


# Which epochs are committed together is decided before a format comes into it.
@often("delta")
def test_epochs_that_waited_without_keys_are_one_group_and_those_with_keys_replace_each_other(
    tables: Tables, tmp_path: Path
) -> None:
    """As where a query with ``commitEvery`` is started again with keys, by drivers that know of different epochs."""
    schema, session = "k string, n long", tables.session
    epochs = [(("a", 1),), (("a", 1), ("b", 1)), (("a", 2), ("c", 2)), (("c", 3),), (("b", 4),)]
    empty = frame(session, [], schema).schema
    plain, keyed = tables.sink(tmp_path, empty, []), tables.sink(tmp_path, empty, ["k"])
    handles = [
        prepared(plain if number < 3 else keyed, frame(session, epoch, schema), number)
        for number, epoch in enumerate(epochs, 1)
    ]
    before = len(tables.versions(tmp_path))
    with pytest.raises(_CutError):
        keyed.commit_all(handles[:4], _cut)
    assert sorted(row["k"] for row in tables.rows(tmp_path)) == ["a", "a", "b"]
    tables.sink(tmp_path, empty, ["k"]).commit_all(handles[:4], lambda: None)
    keyed.commit_all(handles, lambda: None)
    plain.commit_all(handles[2:], lambda: None)
    assert {row["k"]: row["n"] for row in tables.rows(tmp_path)} == {"a": 2, "b": 4, "c": 3}
    assert len(tables.rows(tmp_path)) == 3
    assert len(tables.versions(tmp_path)) == before + 4
    assert tables.left(tmp_path) == []


def test_rows_with_new_columns_replace_older_ones_without_them(tables: Tables, tmp_path: Path) -> None:
    session = tables.session
    for epoch, (schema, given, keys) in enumerate(
        [
            ("k string", [("a",), ("b",)], ["k"]),
            ("k string, n long", [("a", 1)], ["k"]),
            # A key that older files lack: it is null there.
            ("k string, n long, j string", [("a", 2, None), ("b", 2, "j")], ["k", "j"]),
        ],
        1,
    ):
        sink = tables.sink(tmp_path, frame(session, [], schema).schema, keys, merge_schema=True)
        sink.commit(prepared(sink, frame(session, given, schema), epoch), lambda: None)
    found = [("a", 2, None), ("b", 2, "j"), ("b", None, None)]
    assert sorted(map(str, (tuple(row.values()) for row in tables.rows(tmp_path)))) == sorted(map(str, found))


def test_upserts_into_a_branch_look_at_the_branch_and_at_buckets(iceberg: SparkSession, tmp_path: Path) -> None:
    tables, schema = Tables("iceberg", iceberg), "k string, n long"
    empty = frame(iceberg, [], schema).schema
    sink = tables.sink(tmp_path, empty, ["k"], ["bucket(2, k)"])
    sink.commit(prepared(sink, frame(iceberg, [(each, 1) for each in "abc"], schema), 1), lambda: None)
    table = sink.table._load()
    table.updateProperties().set("commit.manifest.min-count-to-merge", "2").commit()
    table.manageSnapshots().createBranch("audit", table.currentSnapshot().snapshotId()).commit()
    audit = tables.sink(tmp_path, empty, ["k"], branch="audit")
    for epoch in (2, 3, 4):
        handle = prepared(audit, frame(iceberg, [("a", epoch), ("b", epoch)], schema), epoch)
        audit.commit(handle, lambda: None)
        # Of another driver: the branch has it.
        tables.sink(tmp_path, empty, ["k"]).commit(handle, lambda: None)
    reader = IcebergReader(iceberg, tmp_path)
    assert sorted((row["k"], row["n"]) for row in reader.rows("audit")) == [("a", 4), ("b", 4), ("c", 1)]
    assert sorted((row["k"], row["n"]) for row in reader.rows()) == [("a", 1), ("b", 1), ("c", 1)]
    # Another partition in the branch only, where rows of a key would stay.
    late = prepared(audit, frame(iceberg, [("a", 5)], schema), 5)
    table = sink.table._load()
    table.updateSpec().removeField(sink._version.spec["fields"][0]["name"]).addField("k").commit()
    other = tables.sink(tmp_path, empty, [], branch="audit")
    other.commit(prepared(other, frame(iceberg, [("z", 6)], schema), 6), lambda: None)
    with pytest.raises(SinkError, match="partitioned in another way"):
        audit._append(audit.table, audit.table.version(), [late])


@pytest.mark.parametrize("every", ["10", "1 minute"])
def test_epochs_that_replace_rows_do_not_wait_for_each_other(tables: Tables, tmp_path: Path, every: str) -> None:
    feed = Feed(tmp_path / "in")
    writer = sj.stream(feed.read(tables.session)).writeStream.format(tables.name)
    writer = writer.options(mode="upsert", keyColumns="id", commitEvery=every, checkpointLocation=tmp_path / "home")
    with pytest.raises(AnalysisError, match=f'commitEvery: with mode=upsert .* and not "{every}"'):
        writer.start(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "home").exists()


REFUSED = {
    "no column": ("k string", "j", (), "", r"keyColumns: no column 'j' in the result. Columns: k"),
    "nested": ("k array<int>, n int", "k", (), "", r"keyColumns: 'k' is array<int>, which cannot be a key"),
    "floating": ("k double, n int", "k", (), "iceberg", r"keyColumns: 'k' is double, by which Iceberg identifies no"),
    "without ids": ("k int, x array<int>", "k", (), "iceberg", r"mode=upsert: column 'x' is array<int>, and the files"),
    "elsewhere": ("k int, n int", "k", ("truncate(2, n)",), "iceberg", r"is partitioned by 'n', which is none of them"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_keys_that_identify_no_row_are_refused_before_the_start(tables: Tables, tmp_path: Path, case: str) -> None:
    schema, key, by, only, message = REFUSED[case]
    if only in {"", tables.name}:
        with pytest.raises(AnalysisError, match=message):
            tables.sink(tmp_path / "t", frame(tables.session, [], schema).schema, [key], by)
        assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("delta.appendOnly", "is only added to"),
        ("delta.enableChangeDataFeed", "keeps a feed of changes"),
        ("delta.enableDeletionVectors", "marks rows as deleted"),
        ("delta.enableRowTracking", "tracks its rows"),
    ],
)
def test_what_a_delta_table_demands_is_refused_by_name(
    delta: SparkSession, tmp_path: Path, setting: str, message: str
) -> None:
    path = table_with(tmp_path, {setting: "true"})
    schema = frame(delta, [], "k string, n long").schema
    with pytest.raises(AnalysisError, match=rf"mode=upsert: .* {message}.* \({setting}\)"):
        Tables("delta", delta).sink(path, schema, ["k"])


def test_rows_without_a_column_of_the_table_are_refused(tables: Tables, tmp_path: Path) -> None:
    wide, narrow = (
        frame(tables.session, [], schema).schema for schema in ("k string, n long, v string", "k string, n long")
    )
    tables.sink(tmp_path, wide, ["k"])
    with pytest.raises(AnalysisError, match="mode=upsert replaces whole rows, and the result has no column 'v'"):
        tables.sink(tmp_path, narrow, ["k"])
    # Which may be appended.
    assert tables.sink(tmp_path, narrow, []).keys == ()
    if tables.name == "iceberg":
        table = PathTable(tables.session, PosixDirectory(tmp_path))._load()
        uuid = java_class(tables.session, "org.apache.iceberg.types.Types$UUIDType").get()
        table.updateSchema().addColumn("of no type of Spark's", uuid).commit()
        with pytest.raises(AnalysisError, match='the result has no column "of no type of Spark\'s"'):
            tables.sink(tmp_path, wide, ["k"])


def test_an_empty_text_in_a_path_of_delta_s_is_a_null_and_one_key_with_it(delta: SparkSession, tmp_path: Path) -> None:
    """In rows with a column of the name by which Spark tells of their files."""
    tables, schema = Tables("delta", delta), "p string, n long, _metadata string"
    sink = tables.sink(tmp_path, frame(delta, [], schema).schema, ["p"], ["p"])
    for epoch, given in enumerate([[("", 1, "x"), (None, 2, "y")], [("", 3, "z")]], 1):
        sink.commit(prepared(sink, frame(delta, given, schema), epoch), lambda: None)
        assert rows_of(tmp_path) == [{"p": None, "n": epoch + 1, "_metadata": given[-1][2]}]


WIDER: dict[str, tuple[str, Any]] = {
    "a column": ("v string", "theirs"),
    "a field": ("s struct<x: int, y: string>", (1, "theirs")),
}


# A column of an Iceberg table is added as a field is; files of a Delta table fit no more where a field was.
@pytest.mark.parametrize(
    ("tables", "more"),
    [
        pytest.param("delta", "a column"),
        pytest.param("iceberg", "a column", marks=pytest.mark.long),
        pytest.param("iceberg", "a field"),
    ],
    indirect=["tables"],
)
def test_what_others_add_to_the_table_while_the_query_runs_is_not_lost(
    tables: Tables, tmp_path: Path, more: str
) -> None:
    schema, session = "k string, n long", tables.session
    column, value = WIDER[more]
    if more == "a field":
        schema += ", s struct<x: int>"
    rest: Row = () if more == "a column" else ((1,),)
    sink = tables.sink(tmp_path, frame(session, [], schema).schema, ["k"])
    sink.commit(prepared(sink, frame(session, [("a", 1, *rest), ("b", 1, *rest)], schema), 1), lambda: None)
    early, late = (
        prepared(sink, frame(session, [("a", 2, *rest)], schema), 2, output) for output in ("results", "late")
    )
    if more == "a column":
        theirs = tables.sink(
            tmp_path, frame(session, [], f"k string, n long, {column}").schema, ["k"], merge_schema=True
        )
    else:
        table, string = sink.table._load(), java_class(session, "org.apache.iceberg.types.Types$StringType").get()
        table.updateSchema().addColumn("s", "y", string).commit()
        theirs = tables.sink(tmp_path, frame(session, [], f"k string, n long, {column}").schema, ["k"])
    with pytest.raises(
        SinkError, match=r"was changed while the query was running\. .* the result has no column '(v|s\.y)'"
    ):
        prepared(sink, frame(session, [("a", 3, *rest)], schema), 3)
    # What was decided before loses nothing as long as nobody has written into the column.
    sink.commit(early, lambda: None)
    wide = frame(session, [("a", 4, value)], f"k string, n long, {column}")
    theirs.commit(prepared(theirs, wide, 1, "theirs"), lambda: None)
    before = sorted(map(str, tables.rows(tmp_path)))
    with pytest.raises(SinkError, match=r"'(v|s\.y)'"):
        sink.commit(late, lambda: None)
    assert sorted(map(str, tables.rows(tmp_path))) == before
    assert sum("theirs" in row for row in before) == 1


def test_an_iceberg_table_whose_rows_no_delete_reaches_is_refused(iceberg: SparkSession, tmp_path: Path) -> None:
    tables, schema = Tables("iceberg", iceberg), "k string, n long"
    empty = frame(iceberg, [], schema).schema
    sink = tables.sink(tmp_path / "one", empty, ["k"], ["k"])
    sink.commit(prepared(sink, frame(iceberg, [("a", 1)], schema), 1), lambda: None)
    late = prepared(sink, frame(iceberg, [("a", 2)], schema), 2)
    sink.table._load().updateSpec().removeField("k").addField("n").commit()
    other = tables.sink(tmp_path / "one", empty, [])
    other.commit(prepared(other, frame(iceberg, [("a", 7)], schema), 3), lambda: None)
    with pytest.raises(AnalysisError, match=r"mode=upsert: .* partitioned by 'n'|partitioned in another way"):
        tables.sink(tmp_path / "one", empty, ["k"])
    with pytest.raises(AnalysisError, match="has files that are partitioned in another way, whose rows would stay"):
        tables.sink(tmp_path / "one", empty, ["k", "n"])
    with pytest.raises(SinkError, match=r"epoch 2 had been written .* partitioned in another way"):
        sink._append(sink.table, sink.table.version(), [late])
    first = PathTable(iceberg, PosixDirectory(tmp_path / "two"))
    first.create(new_schema(empty), {"spec-id": 0, "fields": []})
    text = (tmp_path / "two" / "metadata" / "v1.metadata.json").read_text()
    old = json.loads(text) | {"format-version": 1}
    (tmp_path / "two" / "metadata" / "v1.metadata.json").write_text(
        json.dumps(old | {"schema": old["schemas"][0], "partition-spec": []})
    )
    with pytest.raises(AnalysisError, match="has format version 1, in which no rows are replaced"):
        tables.sink(tmp_path / "two", empty, ["k"])


def test_a_delta_file_with_deleted_rows_is_not_rewritten(delta: SparkSession, tmp_path: Path) -> None:
    tables, schema = Tables("delta", delta), "k string, n long"
    sink = tables.sink(tmp_path, frame(delta, [], schema).schema, ["k"])
    sink.commit(prepared(sink, frame(delta, [("a", 1), ("b", 1)], schema), 1), lambda: None)
    handle, table = prepared(sink, frame(delta, [("a", 2)], schema), 2), sink._table(sink.directory)
    version = table.version()
    marked = [replace(each, has_deleted=True) for each in table.files(version)]
    table.files = lambda _: marked
    with pytest.raises(
        SinkError, match=r"others are marked as deleted .a deletion vector., which sparkjet does not read"
    ):
        sink._append(table, version, [handle], Displacing(delta, table, StagedFiles(sink.directory), handle, {}))
