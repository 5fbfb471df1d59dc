"""Directories of the file sink without a key: readers find the rows of others once, whenever they read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkjet.catalyst.sought_rows import Sought
from sparkjet.clock import ManualClock
from sparkjet.errors import AnalysisError
from sparkjet.sinks.erased_files import FilesErasure, FoundRows
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.read_files import read_files
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import QUERY, transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.sinks.protocol import Handle

pytestmark = pytest.mark.interpreted

ANNA = Sought({"k": "anna"})


def prepared(spark: SparkSession, sink: FilesSink, epoch: int, rows: list[Any], schema: str = "k string, n int") -> Any:
    return sink.prepare(spark.createDataFrame(rows, schema).coalesce(1), transaction(epoch))


def published(spark: SparkSession, sink: FilesSink, *epochs: list[Any]) -> list[Handle]:
    handles = [prepared(spark, sink, number, rows) for number, rows in enumerate(epochs, 1)]
    for handle in handles:
        sink.commit(handle, lambda: None)
    return handles


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


def contents(place: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in place.glob("part-*")}


def read(spark: SparkSession, place: Path, format: str = "parquet") -> tuple[list[Any], list[Any]]:
    """The rows that readers of whole epochs find, and other readers."""
    plain = spark.read.schema("k string, n int").format(format).load(str(place))
    found = [rows.where("k IS NOT NULL").collect() for rows in (read_files(place).select("k", "n"), plain)]
    return sorted(map(tuple, found[0])), sorted(map(tuple, found[1]))


@pytest.mark.parametrize("format", ["parquet", pytest.param("orc", marks=pytest.mark.long)])
def test_files_keep_their_names_and_the_rows_of_others(spark: SparkSession, tmp_path: Path, format: str) -> None:
    clock, place = ManualClock(1_000), tmp_path / "out dir é"
    sink = FilesSink(place, format, retention=160, clock=clock)
    sink.create()
    published(spark, sink, [("anna", 1), ("ben", 1)], [("ben", 2)])
    clock.advance(1_000)
    wider = prepared(spark, sink, 3, [("anna", 3, "x")], "k string, n int, more string")
    sink.commit(wider, lambda: None)
    sink.commit(prepared(spark, sink, 4, [("ben", 4), ("anna", 4), ("anna", 4)]), lambda: None)
    sink.commit(prepared(spark, sink, 5, [(True,)], "other boolean"), lambda: None)
    before = contents(place)
    erasure = FilesErasure(spark, PosixDirectory(place), ANNA)
    found = FoundRows(4, 3, lacking=1)
    assert erasure.look() == found
    assert contents(place) == before
    assert FilesErasure(spark, PosixDirectory(place), ANNA).erase(QUERY) == found
    after = contents(place)
    assert after.keys() == before.keys()
    assert {name[:14] for name in after if after[name] != before[name]} == {f"part-{n:09d}" for n in (1, 3, 4)}
    assert not any(b"anna" in each for each in after.values())
    # The first two epochs have left the manifest, and are still files.
    assert read(spark, place, format) == ([("ben", 4)], [("ben", 1), ("ben", 2), ("ben", 4)])
    assert FilesErasure(spark, PosixDirectory(place), ANNA).erase(QUERY) == FoundRows(0, 0, lacking=1)
    assert FilesErasure(spark, PosixDirectory(place), Sought({"none": 1})).erase(QUERY) == FoundRows(None, 0, lacking=5)
    assert not any((place / "_sparkjet").rglob("*erased*"))


@pytest.mark.crash
def test_what_is_killed_in_between_leaves_whole_files_and_is_made_up_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FilesSink(tmp_path / "out")
    sink.create()
    published(spark, sink, [("anna", 1), ("ben", 1)], [("anna", 2), ("ben", 2)])
    replaced = []

    class Dying(PosixDirectory):
        def replace(self, source: str, target: str) -> None:
            if replaced:
                raise KeyboardInterrupt
            replaced.append(target)
            super().replace(source, target)

    with pytest.raises(KeyboardInterrupt):
        FilesErasure(spark, Dying(tmp_path / "out"), ANNA).erase(QUERY)
    half = [("anna", 2), ("ben", 1), ("ben", 2)]
    assert read(spark, tmp_path / "out") == (half, half)
    # What it has left belongs to nobody, and is in nobody's way.
    erasure = FilesErasure(spark, PosixDirectory(tmp_path / "out"), ANNA)
    erasure.check_published("another query", [])
    assert erasure.erase(QUERY) == FoundRows(1, 1)
    whole = [("ben", 1), ("ben", 2)]
    assert read(spark, tmp_path / "out") == (whole, whole)
    assert not any((tmp_path / "out" / "_sparkjet").rglob("*erased*"))


def test_what_is_prepared_is_refused_or_goes(spark: SparkSession, tmp_path: Path) -> None:
    sink = FilesSink(tmp_path / "out")
    sink.create()
    published(spark, sink, [("ben", 1)])
    decided = prepared(spark, sink, 2, [("anna", 2)])

    def erasure() -> FilesErasure:
        return FilesErasure(spark, PosixDirectory(tmp_path / "out"), ANNA)

    for query, handles in ((QUERY, [decided]), ("another query", [])):
        with pytest.raises(AnalysisError, match=r"has prepared and not published\. Start that query, stop it with"):
            erasure().check_published(query, handles)
    # Of an epoch that was never decided: the next start would remove it.
    erasure().check_published(QUERY, [])
    erasure().erase(QUERY)
    assert not any(each.is_file() for each in (tmp_path / "out" / "_sparkjet").rglob("staging/**/*"))
    # Published, and killed before the prepared rest was removed.
    late = prepared(spark, sink, 3, [("anna", 3)])
    sink.commit(late, lambda: None)
    (tmp_path / "out" / "_sparkjet" / QUERY / "results" / "staging" / late["staging"]).mkdir(parents=True)
    erasure().check_published(QUERY, [late])
    # Spark's readers would read the new files with the sizes of the old ones.
    (tmp_path / "out" / "_spark_metadata").mkdir()
    with pytest.raises(AnalysisError, match=r"erase: readers of .*out\" follow the list of its files"):
        erasure()


@pytest.mark.parametrize("format", [pytest.param("parquet", marks=pytest.mark.long), "orc"])
def test_whatever_the_files_and_the_session_rows_go_and_stay_as_they_are(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    sink, nested = FilesSink(tmp_path, format), FilesSink(tmp_path / "late", format)
    for each in (sink, nested):
        each.create()
    schema = "k string collate UTF8_LCASE, K string, n int"
    with setting(spark, "spark.sql.caseSensitive", "true"):
        first = prepared(spark, sink, 1, [("Anna", "k", 1), *(("ben", "anna", n) for n in (2, 3))], schema)
    sink.commit(first, lambda: None)
    # Late rows in a directory below, which has the name of a column.
    nested.commit(prepared(spark, nested, 1, [("anna", 1), ("ben", 7)], "k string, late int"), lambda: None)
    waiting = prepared(spark, nested, 2, [("anna", 8)], "k string, late int")
    # As Spark writes partitions by itself: with checksums, and the same name in each.
    rows = spark.createDataFrame([("ben", 4, "x"), ("anna", 5, "y"), ("ben", 6, "y")], "k string, n int, d string")
    rows.coalesce(1).write.partitionBy("d").format(format).save(str(tmp_path / "aside"))
    for name in ("d=x", "d=y"):
        (tmp_path / "aside" / name).rename(tmp_path / name)
    with setting(spark, "spark.sql.files.maxRecordsPerFile", "1"):
        assert FilesErasure(spark, PosixDirectory(tmp_path), ANNA).erase(QUERY) == FoundRows(3, 3)
    with setting(spark, "spark.sql.caseSensitive", "true"):
        assert sorted(row.n for row in read_files(tmp_path).collect()) == [2, 3]
    found = [spark.read.schema("k string, n int").format(format).load(str(tmp_path / name)) for name in ("d=x", "d=y")]
    assert [[tuple(row) for row in each.collect()] for each in found] == [[("ben", 4)], [("ben", 6)]]
    # What waits there is of somebody else, who will publish it.
    nested.commit(waiting, lambda: None)
    assert sorted(row.late for row in read_files(tmp_path / "late").collect()) == [7, 8]


def test_files_of_several_types_are_looked_through_when_no_manifest_tells_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(1_000)
    sink = FilesSink(tmp_path, retention=160, clock=clock)
    sink.create()
    for epoch, (kind, value) in enumerate((("int", 4), ("string", "4"), ("double", 4.0)), 1):
        rows = [("anna", value), ("ben", value)]
        sink.commit(prepared(spark, sink, epoch, rows, f"k string, n {kind}"), lambda: None)
    clock.advance(1_000)
    sink.commit(prepared(spark, sink, 4, [("ben", 1)]), lambda: None)
    assert FilesErasure(spark, PosixDirectory(tmp_path), ANNA).erase(QUERY) == FoundRows(3, 3)
    assert not any(b"anna" in each for each in contents(tmp_path).values())


def test_a_file_that_cannot_be_read_is_an_error_whatever_the_session_ignores(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = FilesSink(tmp_path)
    sink.create()
    published(spark, sink, [("anna", 1), ("ben", 1)])
    (file,) = tmp_path.glob("part-*")
    damaged = bytearray(file.read_bytes())
    damaged[4:40] = bytes(byte ^ 0xFF for byte in damaged[4:40])
    file.write_bytes(damaged)
    erasure = FilesErasure(spark, PosixDirectory(tmp_path), ANNA)
    with (
        setting(spark, "spark.sql.files.ignoreCorruptFiles", "true"),
        pytest.raises(AnalysisError, match=r'erase: ".*" cannot be read: .*Restore the file, or remove it\.'),
    ):
        FilesErasure(spark, PosixDirectory(tmp_path), ANNA).look()
    file.unlink()
    with pytest.raises(AnalysisError, match=r"cannot be read: .*no such file"):
        erasure.look()


def test_times_of_others_keep_their_microseconds(spark: SparkSession, tmp_path: Path) -> None:
    sink = FilesSink(tmp_path)
    sink.create()
    rows = spark.range(2).selectExpr("IF(id = 0, 'anna', 'ben') AS k", "timestamp_micros(1000001) AS ts")
    sink.commit(sink.prepare(rows.coalesce(1), transaction(1)), lambda: None)
    with setting(spark, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS"):
        assert FilesErasure(spark, PosixDirectory(tmp_path), ANNA).erase(QUERY) == FoundRows(1, 1)
    assert [row[0] for row in read_files(tmp_path).selectExpr("unix_micros(ts)").collect()] == [1_000_001]


def test_rows_of_a_query_that_has_published_nothing_yet_go_too(spark: SparkSession, tmp_path: Path) -> None:
    sink = FilesSink(tmp_path)
    sink.create()
    assert FilesErasure(spark, PosixDirectory(tmp_path), ANNA).erase(QUERY) == FoundRows(0, 0)
    handle = prepared(spark, sink, 1, [("anna", 1)])
    with pytest.raises(AnalysisError, match="has prepared and not published"):
        FilesErasure(spark, PosixDirectory(tmp_path), ANNA).check_published(QUERY, [handle])
    assert FilesErasure(spark, PosixDirectory(tmp_path), ANNA).erase(QUERY) == FoundRows(0, 0)
    assert not list(tmp_path.rglob("part-*"))


@pytest.mark.parametrize("column", ["_k", "a:b", "K"])
def test_columns_that_are_directories_are_known_by_their_names(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    sink, name = FilesSink(tmp_path, partition_by=(column,)), column.lower()
    sink.create()
    sink.commit(prepared(spark, sink, 1, [("ben", 1)], f"`{column}` string, n int"), lambda: None)
    with pytest.raises(AnalysisError, match=f"have the values of {name} in their names"):
        FilesErasure(spark, PosixDirectory(tmp_path), Sought({name: "ben"}))


def test_what_cannot_be_rewritten_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    for name, sink, said in (
        ("csv", FilesSink(tmp_path / "csv", "csv"), "has csv files, which would be rewritten as other text"),
        ("by", FilesSink(tmp_path / "by", partition_by=("k",)), "have the values of k in their names"),
    ):
        sink.create()
        published(spark, sink, [("ben", 1)])
        with pytest.raises(AnalysisError, match=said):
            FilesErasure(spark, PosixDirectory(tmp_path / name), ANNA)
    assert FilesErasure(spark, PosixDirectory(tmp_path / "by"), Sought({"n": 1})).erase(QUERY) == FoundRows(1, 1)
    assert read(spark, tmp_path / "by") == ([], [])
    with pytest.raises(AnalysisError, match=r'".*by": n is int, and "one" is not a value of that type'):
        FilesErasure(spark, PosixDirectory(tmp_path / "by"), Sought({"n": "one"}, is_text=True)).look()
