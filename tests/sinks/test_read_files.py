"""Reading whole epochs: each with the settings it was written with, united by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row

from sparkjet.errors import AnalysisError
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.manifest import Manifest, ManifestEntry
from sparkjet.sinks.protocol import TransactionId
from sparkjet.sinks.read_files import read_files
from sparkjet.testing.sink_contract import QUERY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OTHER = "99999999-2222-3333-4444-555555555555"


def publish(place: Path, epoch: int, rows: DataFrame, *given: Any, query: str = QUERY, **options: str) -> None:
    """Publish rows as an epoch; ``given`` are the format and the columns of ``partitionBy``."""
    sink = FilesSink(place, *given, options=options)
    sink.check(rows.schema)
    sink.create()
    handle = sink.prepare(rows, TransactionId(query, "results", 0, epoch, 0))
    assert handle is not None
    sink.commit(handle, lambda: None)


def found(place: Path, *columns: str, **given: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in read_files(str(place), **given).select(*columns).collect()), key=repr)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_each_epoch_is_read_with_its_own_layout(spark: SparkSession, out: Path) -> None:
    old, new = [("a", 1), ("b", 2), ("c", 3)], [("a", 4), ("d", 5), (None, 6)]
    publish(out, 1, spark.createDataFrame(old, "k string, v long"))
    publish(out, 2, spark.createDataFrame(new, "k string, v long"), "parquet", ("k",))
    publish(out, 3, spark.createDataFrame([("7", 7)], "k string, v long"), "parquet", ("v",))
    assert found(out, "k", "v") == sorted([*old, *new, ("7", 7)], key=repr)


def test_each_epoch_is_read_with_its_own_options(spark: SparkSession, out: Path) -> None:
    publish(out, 1, spark.createDataFrame([("a", 1), ("b", 2)], "k string, v long"), "csv")
    publish(out, 2, spark.createDataFrame([("c;", 3)], "k string, v long"), "csv", header="true", sep=";")
    assert found(out, "k", "v") == [("a", 1), ("b", 2), ("c;", 3)]


def test_each_epoch_is_read_with_its_own_format(spark: SparkSession, out: Path) -> None:
    formats = ["csv", "json", "orc", "parquet"]
    for number, each in enumerate(formats):
        publish(out, number, spark.createDataFrame([(each, number)], "k string, v long"), each)
    publish(out, 9, spark.createDataFrame([("text",)], "k string"), "text")
    assert found(out, "k", "v") == sorted([*zip(formats, range(4), strict=True), ("text", None)], key=repr)


@pytest.mark.parametrize("file_format", ["orc", "parquet"])
def test_collations_come_back_though_sparks_readers_fail_at_them(
    spark: SparkSession, out: Path, file_format: str
) -> None:
    """ORC's at those of columns, all of them at those of partition columns."""
    text = "'a' COLLATE UNICODE_CI"
    rows = spark.sql(f"SELECT {text} AS k, MAP(1, ARRAY(NAMED_STRUCT('t', {text}))) AS `a.m`, 'p' AS p, {text} AS q")
    publish(out, 1, rows, file_format, ("p", "q"))
    assert read_files(str(out)).dtypes == rows.dtypes
    assert [tuple(row) for row in read_files(str(out)).where("k = 'A' AND q = 'A'").collect()] == [tuple(rows.head())]


def test_columns_are_found_by_name_and_the_newest_epochs_come_first(spark: SparkSession, out: Path) -> None:
    publish(out, 1, spark.createDataFrame([("a", 1)], "k string, v long"), "csv")
    publish(out, 2, spark.createDataFrame([(2, "b", True)], "v long, K string, w boolean"), "csv")
    assert read_files(str(out)).columns == ["v", "K", "w"]
    assert found(out, "k", "v", "w") == [("a", 1, None), ("b", 2, True)]


def test_two_queries_in_one_directory_keep_their_columns(spark: SparkSession, out: Path) -> None:
    publish(out, 7, spark.createDataFrame([("a", 1)], "k string, v long"), "json")
    publish(out, 1, spark.createDataFrame([(2.5, 2)], "x double, v long"), "csv", query=OTHER)
    assert found(out, "k", "v", "x") == [("a", 1, None), (None, 2, 2.5)]


@pytest.mark.parametrize(
    ("old", "new", "type_", "values"),
    [
        ("CAST(1 AS INT)", "9223372036854775807L", "bigint", [1, 9223372036854775807]),
        ("9223372036854775807L", "CAST(1 AS INT)", "bigint", [1, 9223372036854775807]),
        ("7L", "'x'", "string", ["7", "x"]),
        ("DATE'2026-01-02'", "TIMESTAMP_NTZ'2026-01-02 03:04:05'", "timestamp_ntz", None),
        ("1.25", "CAST(3 AS DECIMAL(20,4))", "decimal(20,4)", None),
        ("NAMED_STRUCT('a', 1)", "NAMED_STRUCT('b', 'x', 'a', 2L)", "struct<b:string,a:bigint>",
         [Row(b=None, a=1), Row(b="x", a=2)]),
        ("ARRAY(NAMED_STRUCT('a', 1))", "ARRAY(NAMED_STRUCT('b', 2))", "array<struct<b:int,a:int>>",
         [[Row(b=2, a=None)], [Row(b=None, a=1)]]),
        ("MAP('a', 1)", "MAP('b', 2L)", "map<string,bigint>", [{"a": 1}, {"b": 2}]),
    ],
)  # fmt: skip
def test_a_changed_type_becomes_the_wider_one(
    spark: SparkSession, out: Path, old: str, new: str, type_: str, values: list[Any] | None
) -> None:
    publish(out, 1, spark.sql(f"SELECT {old} AS v, 1 AS n"))
    publish(out, 2, spark.sql(f"SELECT {new} AS v, 2 AS n UNION ALL SELECT NULL, 3"))
    assert dict(read_files(str(out)).dtypes)["v"] == type_
    read = [value for (value,) in found(out, "v")]
    assert len(read) == 3
    assert None in read
    if values is not None:
        assert sorted((value for value in read if value is not None), key=repr) == sorted(values, key=repr)


def test_a_type_that_cannot_be_widened_is_named_and_a_schema_is_the_way_out(spark: SparkSession, out: Path) -> None:
    publish(out, 1, spark.sql("SELECT 1L AS v, NAMED_STRUCT('x', TRUE) AS s, 'a' AS k"))
    publish(out, 2, spark.sql("SELECT '2' AS v, NAMED_STRUCT('x', 2L) AS s, 'b' AS k"))
    with pytest.raises(AnalysisError, match=r"the column `s`\.`x` is boolean in some epochs and bigint in .*schema="):
        read_files(str(out))
    assert found(out, "k", schema="k string") == [("a",), ("b",)]
    assert read_files(str(out), "v int, k string, s struct<x: string>").dtypes == [
        ("v", "int"),
        ("k", "string"),
        ("s", "struct<x:string>"),
    ]
    assert found(out, "v", "k", "s.x", schema="v int, k string, s struct<x: string>") == [
        (1, "a", "true"),
        (2, "b", "2"),
    ]
    assert found(out, "k", "missing", schema="k string, missing date") == [("a", None), ("b", None)]
    with pytest.raises(PySparkException, match='cannot cast "STRING" to "ARRAY<INT>"'):
        read_files(str(out), "v array<int>")


def test_partitions_by_time_are_read_in_the_zone_they_were_written_in(spark: SparkSession, out: Path) -> None:
    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    publish(out, 1, elsewhere.sql("SELECT TIMESTAMP_SECONDS(1700000000) AS t, 1 AS n"), "parquet", ("t",))
    publish(out, 2, spark.sql("SELECT TIMESTAMP_SECONDS(1700000000) AS t, 2 AS n"), "parquet", ("t",))
    rows = read_files(str(out)).selectExpr("UNIX_SECONDS(t)", "n").collect()
    assert sorted(map(tuple, rows), key=repr) == [(1700000000, 1), (1700000000, 2)]


def test_entries_of_earlier_versions_are_read_by_what_they_say(spark: SparkSession, out: Path) -> None:
    """They have no time zone, and the oldest no time of their commit."""
    old = spark.createDataFrame([("a", 1)], "k string, v long")
    old.coalesce(1).write.csv(f"file:{out}/written")
    (file,) = (out / "written").glob("part-*")
    (out / "k=b").mkdir()
    file.rename(out / "part-old.csv")
    (out / "k=b" / "part-old.csv").write_text("2\n")
    entry = ManifestEntry(1, ["part-old.csv", "k=b/part-old.csv"], "csv", old.schema.jsonValue(), {})
    Manifest(out, QUERY, "results").add(entry)
    publish(out, 2, spark.createDataFrame([(3, "c")], "v long, k string"), "csv", header="true")
    assert found(out, "k", "v") == [("a", 1), ("b", 2), ("c", 3)]


def test_a_file_that_is_missing_is_an_error_that_names_it(spark: SparkSession, out: Path) -> None:
    for epoch in (1, 2):
        publish(out, epoch, spark.createDataFrame([("a", epoch)], "k string, v long").coalesce(1))
    (lost,) = out.glob("part-000000001-*")
    lost.unlink()
    with pytest.raises(AnalysisError, match=f"{lost.name} is in the manifest of"):
        read_files(str(out))


def test_names_are_not_patterns(spark: SparkSession, tmp_path: Path) -> None:
    """Beside directories that a pattern would match."""
    names = ["outa", "outx", "out", "out[ab]", "out{a,x}", "o?t", "o*", "out\\a"]
    for name in names:
        publish(tmp_path / name, 1, spark.createDataFrame([(name, "a")], "name string, k string"), "csv", ("k",))
    assert [found(tmp_path / name, "name", "k") for name in names] == [[(name, "a")] for name in names]


@pytest.mark.parametrize("rows", ["struct(1 AS a, 2 AS A) AS s", "1 AS a, 2 AS A"])
def test_names_that_differ_by_case_only_are_refused_in_a_session_that_takes_them_for_one(
    spark: SparkSession, out: Path, rows: str
) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        publish(out, 1, spark.sql(f"SELECT {rows}"))
        publish(out, 2, spark.sql(f"SELECT {rows.replace('1', '1L')}"))
        assert len(read_files(str(out)).collect()) == 2
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    with pytest.raises(AnalysisError, match=r"only by case: `a`\. .*spark\.sql\.caseSensitive=true"):
        read_files(str(out))


def test_line_breaks_within_values_end_no_row(spark: SparkSession, out: Path) -> None:
    rows = [(1, "a\nb"), (2, '"\r\n,'), (3, None)]
    publish(out, 1, spark.createDataFrame(rows, "v long, k string").coalesce(1), "csv")
    publish(out, 2, spark.createDataFrame([(5, "c\n\nd"), (6, "e")], "v long, k string"), "csv", header="true")
    assert found(out, "v", "k") == [*rows, (5, "c\n\nd"), (6, "e")]
