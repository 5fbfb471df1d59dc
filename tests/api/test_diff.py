"""Differences: rows of one key, rows as a multiset, values that Spark cannot compare, outputs of forks."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.cli import main
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.interpreted, pytest.mark.crash]


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


def test_keys_that_are_null_and_columns_that_differ(spark: SparkSession) -> None:
    columns = "k string, n int, `a.b` double, same string"
    old = spark.createDataFrame(
        [("x", 1, 1.0, "s"), (None, 1, 2.0, "s"), ("z", 1, None, "s"), ("w", 1, 1.0, "s")], columns
    )
    new = spark.createDataFrame(
        [("x", 1, 1.5, "s"), (None, 1, 2.0, "s"), ("z", 1, 3.0, "t"), ("v", 1, 1.0, "s")], columns
    )
    found = sj.diff(old, new, keys=["k", "n"])
    assert found.counts() == {"rows": {"added": 1, "removed": 1, "changed": 2, "same": 1}}
    assert found.differs
    assert repr(found) == "rows: 1 added, 1 removed, 2 changed, 1 same"
    assert found.toDF().columns == ["_change", "k", "n", "_columns", "a.b", "same"]
    assert rows(found.toDF()) == [
        ("added", "v", 1, None, (None, 1.0), (None, "s")),
        ("changed", "x", 1, ["a.b"], (1.0, 1.5), ("s", "s")),
        ("changed", "z", 1, ["a.b", "same"], (None, 3.0), ("s", "t")),
        ("removed", "w", 1, None, (1.0, None), ("s", None)),
    ]
    assert not sj.diff(old, old, keys=["k"]).differs
    # All columns are keys.
    assert sj.diff(old, new, keys=old.columns).counts()["rows"] == {"added": 3, "removed": 3, "changed": 0, "same": 1}


def test_rows_without_keys_are_a_multiset(spark: SparkSession) -> None:
    old = spark.createDataFrame([("x", 1)] * 3 + [(None, None)], "k string, n int")
    new = spark.createDataFrame([("x", 1)] + [(None, None)] * 3 + [("y", 2)], "k string, n int")
    found = sj.diff(old, new)
    assert found.counts() == {"rows": {"added": 3, "removed": 2, "changed": 0, "same": 2}}
    assert rows(found.toDF()) == [("added", 1, "y", 2), ("added", 2, None, None), ("removed", 2, "x", 1)]
    assert not sj.diff(old, old.repartition(3)).differs
    assert sj.diff(old, old.limit(0)).counts()["rows"]["removed"] == 4
    assert not sj.diff(old.limit(0), old.limit(0)).differs


VALUES = [
    ("double('NaN')", "double('NaN')", "1D"),
    ("-0.0D", "0.0D", "1e-300D"),
    ("array(double('NaN'), -0.0D)", "array(double('NaN'), 0.0D)", "array(0.0D, double('NaN'))"),
    ("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)", "map('a', 2, 'b', 1)"),
    (
        "array(struct(map('a', 1, 'b', 2) AS m))",
        "array(struct(map('b', 2, 'a', 1) AS m))",
        "array(struct(map('a', 1) AS m))",
    ),
    ("map('a', map('x', 1, 'y', 2))", "map('a', map('y', 2, 'x', 1))", "map('a', map('y', 2))"),
    ("make_interval(0, 1, 0, 1)", "make_interval(0, 1, 0, 1)", "make_interval(0, 1, 0, 2)"),
    ("'a' COLLATE UTF8_LCASE", "'a' COLLATE UTF8_LCASE", "'A' COLLATE UTF8_LCASE"),
    ("X'00FF'", "X'00FF'", "X'00FE'"),
    ("1.10BD", "1.10BD", "1.11BD"),
    ("TIMESTAMP_NTZ'2026-01-01 00:00:00'", "TIMESTAMP_NTZ'2026-01-01'", "TIMESTAMP_NTZ'2026-01-02'"),
    (
        "struct(1 AS a, struct('x' AS b) AS c)",
        "struct(1 AS a, struct('x' AS b) AS c)",
        "struct(1 AS a, struct('y' AS b) AS c)",
    ),
    ('parse_json(\'[1, {"a": 1, "b": 2}]\')', 'parse_json(\'[1,{"b":2,"a":1}]\')', "parse_json('[1]')"),
]
"""Values, the same in another form, and others."""


def test_values_are_equal_as_in_spark_or_by_what_they_are_made_of(spark: SparkSession) -> None:
    def frame(which: int) -> DataFrame:
        return spark.range(1).selectExpr("id", *(f"{each[which]} AS v{n}" for n, each in enumerate(VALUES)))

    one, same, another = map(frame, range(3))
    nulls = one.select("id", *(F.lit(None).cast(each.dataType).alias(each.name) for each in one.schema[1:]))
    names = one.columns[1:]
    for keys in (None, ["id"], names):
        assert not sj.diff(one, same, keys=keys).differs
    assert [row[0] for row in sj.diff(one, another, keys=["id"]).toDF().select("_columns").collect()] == [names]
    assert [row[0] for row in sj.diff(one, nulls, keys=["id"]).toDF().select("_columns").collect()] == [names]
    assert not sj.diff(nulls, nulls, keys=names).differs


def test_columns_that_only_one_has_or_of_other_types_are_told(spark: SparkSession) -> None:
    old = spark.sql("SELECT 1 AS k, 2 AS n, 'x' AS gone, 5 AS t, array(1) AS a, date'2026-01-01' AS d")
    new = spark.sql("SELECT 1L AS k, 2.5BD AS n, '5' AS t, array('1') AS a, true AS d, 1 AS fresh")
    found = sj.diff(old, new, keys=["k"])
    assert found.columns() == {
        "rows": [
            "k: int, now bigint",
            "n: int, now decimal(2,1)",
            "gone: string, removed",
            "t: int, now string",
            "a: array<int>, now array<string>, not compared",
            "d: date, now boolean, not compared",
            "fresh: int, added",
        ]
    }
    [row] = found.toDF().collect()
    assert (row["_change"], row.k, row["_columns"], row.t) == ("changed", 1, ["n"], ("5", "5"))
    same = spark.sql("SELECT 1L AS k, 2 AS n, 'x' AS gone, 5 AS t, array(1) AS a, date'2026-01-01' AS d")
    # The rows are the same, and the columns are not.
    assert sj.diff(old, same).counts()["rows"] == {"added": 0, "removed": 0, "changed": 0, "same": 1}
    assert sj.diff(old, same).differs


@pytest.mark.parametrize("number", ["CAST(1 AS DECIMAL(38, 0))", "1", "1L"])
def test_a_decimal_that_would_be_rounded_is_reported_and_not_compared(spark: SparkSession, number: str) -> None:
    fine = spark.sql("SELECT 1 AS k, CAST(1.5 AS DECIMAL(38, 37)) AS v")
    found = sj.diff(spark.sql(f"SELECT 1 AS k, {number} AS v"), fine, keys=["k", "k"])
    assert found.differs
    assert found.columns()["rows"][0].endswith("now decimal(38,37), not compared")
    # What is rounded nowhere is compared.
    assert sj.diff(spark.sql("SELECT 1.10BD AS v"), spark.sql("SELECT 1.1BD AS v")).counts()["rows"]["same"] == 1


def test_what_cannot_be_compared_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    one = spark.createDataFrame([("a", None), ("a", 2)], "k string, v int")
    with pytest.raises(
        AnalysisError, match=r"keys: rows: 1 keys have several rows in one of the two, such as {a} of k"
    ):
        sj.diff(one, one.limit(1), keys=["k"])
    with pytest.raises(AnalysisError, match=r'keys: rows: .kk. is not a column of both: did you mean "k"\?'):
        sj.diff(one, one, keys=["kk"])
    with pytest.raises(AnalysisError, match=r"keys: .late. is not an output. Known: rows"):
        sj.diff(one, one, keys={"late": ["k"]})
    with pytest.raises(AnalysisError, match="two columns are called 'k'"):
        sj.diff(one.select("k", "k"), one)
    with pytest.raises(AnalysisError, match="the columns of differences are called _change, _count too"):
        sj.diff(sj.diff(one, one).toDF(), one)
    with pytest.raises(AnalysisError, match="the two have no column in common"):
        sj.diff(one.select("k"), one.select("v"))
    with pytest.raises(AnalysisError, match=re.escape("v: int, now array<int>, not compared.")):
        sj.diff(one.select("v"), one.select(F.array("v").alias("v")))
    with pytest.raises(AnalysisError, match="two columns are called 'k'"):
        sj.diff(one.toDF("k", "K"), one)
    with pytest.raises(AnalysisError, match="the columns of differences are called _change too"):
        sj.diff(one.toDF("k", "_Change"), one)
    for keys in (3, [None], {"rows": 3}):
        with pytest.raises(AnalysisError, match="is neither a column nor a list of columns"):
            sj.diff(one, one, keys=cast("Any", keys))
    with pytest.raises(AnalysisError, match=r"toDF: 'late' is not an output\. Known: rows"):
        sj.diff(one, one).toDF("late")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(AnalysisError, match="this is a stream"):
        sj.diff(stream, stream)
    with pytest.raises(AnalysisError, match="has no output of a query"):
        sj.diff(one, tmp_path)
    wrong: Any = 5
    with pytest.raises(AnalysisError, match="new: 5 is not a DataFrame, fork or directory"):
        sj.diff(one, wrong)


def written(spark: SparkSession, place: Path, values: list[tuple[str, int]]) -> Path:
    """Outputs of a query, as a fork has them: totals, and late rows of the second batch."""
    source = place / "in"
    source.mkdir(parents=True)
    for number, (k, v) in enumerate(values):
        file = source / f"{number}.json"
        file.write_text(json.dumps({"ts": f"2026-01-01 00:{5 - number:02}:00", "k": k, "v": v}))
        # The order in which Spark reads them.
        os.utime(file, (number + 1, number + 1))
    lines = spark.readStream.schema("ts timestamp, k string, v int").option("maxFilesPerTrigger", 1).json(str(source))
    totals = (
        sj.stream(lines).withWatermark("ts", 0).groupBy(sj.window("ts", "1 minute"), "k").agg(F.sum("v").alias("v"))
    )
    writer = totals.writeStream.format("files").option("path", place / "out" / "results")
    writer = writer.option("lateRowsPath", place / "out" / "late").option("closeWindowsAtEnd", True)
    writer.option("checkpointLocation", place / "home").trigger(availableNow=True).start().awaitTermination()
    return place / "out"


def test_outputs_of_forks_are_compared_by_their_names(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(spark, tmp_path / "one", [("a", 1), ("b", 2)])
    two = written(spark, tmp_path / "two", [("a", 3)])
    fork = sj.Fork("", str(one), "", 0, "", "")
    found = sj.diff(fork, two, keys=["window", "k"])
    assert found.counts() == {
        "late": {"added": 0, "removed": 1, "changed": 0, "same": 0},
        "results": {"added": 0, "removed": 0, "changed": 1, "same": 0},
    }
    assert [(row.k, row.v.old, row.v.new) for row in found.toDF("results").collect()] == [("a", 1, 3)]
    assert not sj.diff(fork, one, keys={"results": "k"}).differs
    assert sj.diff(one / "results", sj.read_files(two / "results")).outputs == ["rows"]
    with pytest.raises(AnalysisError, match="one is a table, and the other has several outputs"):
        sj.diff(one / "results", two)
    nothing = sj.Fork("", str(tmp_path / "nothing"), "", 0, "", "")
    with pytest.raises(AnalysisError, match="neither has published any output"):
        sj.diff(nothing, nothing)
    assert main(["diff", str(one), str(two), "--keys", "window, k"]) == 1
    printed = capsys.readouterr().out
    assert "1 → 3" in printed
    assert "results" in printed
    assert main(["diff", str(one), str(two), "--json", "--limit", "1"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["differs"]
    assert told["outputs"]["late"]["counts"]["removed"] == 1
    assert [row["_change"] for row in told["outputs"]["results"]["rows"]] == ["added"]
    assert main(["diff", str(one), str(one), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differs"] is False
    assert main(["diff", str(one), str(tmp_path / "nothing")]) == 2
    assert "has no output of a query" in capsys.readouterr().err
