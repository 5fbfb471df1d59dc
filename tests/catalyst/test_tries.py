"""Tries: expressions are judged one after the other as they are written, whatever Spark's optimizer moves."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.udf import UserDefinedFunction

import sparkjet as sj
from tests.parameters import mostly_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "ts string, k string, px string"


def failing(stream: sj.Stream) -> sj.Stream:
    return stream.divert(errors=True).where("k <> 'b'").where("CAST(px AS INT) > 0").where("10 / CAST(ts AS INT) > 0")


ORDERS: dict[str, Callable[[sj.Stream], sj.Stream]] = {
    "filters": failing,
    "filter behind": lambda s: s.divert(errors=True).withColumn("n", F.expr("CAST(px AS INT)")).where("k <> 'b'"),
    "one name": lambda s: s.divert(errors=True).select(F.expr("CAST(px AS INT)").alias("px"), F.col("px").alias("px2")),
    "struct": lambda s: (
        s.divert(errors=True).select(F.struct(F.expr("CAST(px AS INT) AS n"), "k").alias("s")).select("s.*")
    ),
    "in common": lambda s: s.divert(errors=True).selectExpr("CAST(px AS INT) + 1 AS a", "CAST(px AS INT) + 2 AS b"),
    "lambda": lambda s: s.divert(errors=True).selectExpr("transform(array(px), x -> CAST(x AS INT)) AS a"),
    "json": lambda s: s.divert(errors=True).withColumn(
        "j", F.from_json(F.concat(F.lit('{"n": '), "px", F.lit("}")), "n int", {"mode": "FAILFAST"})
    ),
    "raised": lambda s: s.divert(errors=True).where(F.expr("if(px = 'x', raise_error('no price'), true)")),
    "dropped": lambda s: s.divert(errors=True).dropna(subset=["px"]).fillna("1", ["px"]).where("CAST(px AS INT) > 0"),
}
"""Queries with what of the rows below goes on, and what fails."""
GIVEN = [("1", "a", "1"), ("2", "b", "x"), ("3", "a", "x"), ("0", "a", "4"), ("5", "c", None), ("bad", "a", "0")]
OUTCOMES = {
    "filters": (["1"], ["0", "3"]),
    "filter behind": (["0", "1", "5", "bad"], ["2", "3"]),
    "one name": (["0", "1", "5", "bad"], ["2", "3"]),
    "struct": (["0", "1", "5", "bad"], ["2", "3"]),
    "in common": (["0", "1", "5", "bad"], ["2", "3"]),
    "lambda": (["0", "1", "5", "bad"], ["2", "3"]),
    "json": (["0", "1", "5", "bad"], ["2", "3"]),
    "raised": (["0", "1", "5", "bad"], ["2", "3"]),
    "dropped": (["0", "1"], ["2", "3"]),
}


@pytest.mark.parametrize("name", mostly_long({name: name for name in ORDERS}, ["filters", "in common", "struct"]))
def test_expressions_are_judged_in_the_order_in_which_they_are_written(spark: SparkSession, name: str) -> None:
    stream = sj.stream(spark.createDataFrame(GIVEN, SCHEMA).repartition(1))
    good, bad = OUTCOMES[name]
    found = ORDERS[name](stream)
    assert found.toDF().count() == len(good)
    assert sorted(row.ts for row in found.deadLetters.toDF().collect()) == bad


def test_what_was_said_is_known_after_a_repartition_and_shows_no_constants(spark: SparkSession) -> None:
    given = spark.createDataFrame(GIVEN, SCHEMA)
    # Columns may be named by an alias from before divert, or by the DataFrame.
    diverted = sj.stream(given).alias("s").divert(errors=True).repartition(2).hint("rebalance")
    # The second column is made of the first.
    found = diverted.where(given["ts"].isNotNull())
    found = found.selectExpr("ts", "CAST(replace(s.px, 'geheim', '') AS INT) AS n", "n + 1 AS m").where("m < 5")
    assert sorted((row.n, row.m) for row in found.toDF().collect()) == [(0, 1), (1, 2)]
    letters = {row.ts: row for row in found.deadLetters.toDF().collect()}
    assert sorted(letters) == ["2", "3"]
    assert letters["2"]._stage == "select CAST(replace(s.px, '…', '…') AS INT) AS n"
    assert "The value 'x'" in letters["2"]._message
    assert not any("geheim" in str(row) for row in letters.values())


def test_plans_grow_with_the_steps_and_do_not_double_with_each(spark: SparkSession) -> None:
    """A filter that Spark moved below all steps would have 2^n conditions: sixteen steps ran for hours."""
    given = sj.stream(spark.range(3).select(F.lit("1").alias("text"))).divert(errors=True)

    def size(steps: int) -> int:
        stream = given
        for step in range(steps):
            stream = stream.withColumn(f"n{step}", F.expr(f"cast(text AS int) + {step}"))
        plans = [frame._jdf.queryExecution() for frame in (stream.toDF(), stream.deadLetters.toDF())]
        return sum(len(str(plan.optimizedPlan().toString())) for plan in plans)

    assert size(9) < 4 * size(3)


def test_what_was_said_has_an_end_and_no_text_of_the_query(spark: SparkSession) -> None:
    rows = sj.stream(spark.createDataFrame([("x" * 10_000,)], "at string")).divert(errors=True)
    # Lines that begin as those of a trace do, and patterns that are no expressions.
    column = F.expr("CAST(CASE\n at WHEN 'geheim' THEN '1' ELSE\n at END AS INT) > 0 OR at LIKE ANY ('geheim', 'b')")
    (letter,) = rows.where(column).deadLetters.toDF().collect()
    assert letter._error == "CAST_INVALID_INPUT"
    assert (len(letter._message), len(letter._trace)) == (2000, 2000)
    assert "geheim" not in str(letter)
    (short,) = rows.withColumn("at", F.lit("x")).where(column).deadLetters.toDF().collect()
    assert "The value 'x'" in short._message
    assert "\n\tat " in short._trace
    assert "geheim" not in str(short)


def test_constants_that_raise_do_not_matter_for_rows_that_are_dropped(spark: SparkSession) -> None:
    found = sj.stream(spark.createDataFrame(GIVEN, SCHEMA)).divert(errors=True)
    assert found.where("ts = '7'").selectExpr("CAST('x' AS INT) AS n").deadLetters.toDF().collect() == []
    failed = found.where("k = 'c'").selectExpr("CAST('x' AS INT) AS n").deadLetters.toDF().collect()
    assert [(row.ts, row._error) for row in failed] == [("5", "CAST_INVALID_INPUT")]


@pytest.mark.long
def test_a_value_that_cannot_be_read_at_all_is_in_its_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    # As whatever wrote it was broken: there is no text of it, and so none by which rows are compared.
    binary = "named_struct('value', IF(id % 3 = 0, X'FF', X'0C05'), 'metadata', X'01000000') AS v"
    spark.range(0, 9, 1, 1).selectExpr("id", binary).write.parquet(str(tmp_path / "in"))
    read = spark.read.schema("id long, v variant").parquet(str(tmp_path / "in"))
    found = sj.stream(read).divert(errors=True).withColumn("n", F.col("v").cast("int"))
    assert [row.n for row in found.toDF().select("n").collect()] == [5] * 6
    letters = found.deadLetters.toDF().select("id", "_error", "_message").collect()
    assert sorted((row.id, row._error) for row in letters) == [(number, "MALFORMED_VARIANT") for number in (0, 3, 6)]
    assert all("malformed" in row._message for row in letters)


def number(text: str) -> int:
    return int(text)


COUNT = 10_000
PLACES: dict[str, Callable[[sj.Stream], sj.Stream]] = {
    "event_time": lambda s: s.withColumn("at", F.expr("CAST(concat('2026-01-01 12:00:0', event_time) AS TIMESTAMP)")),
    "select": lambda s: s.select("*", F.col("select").cast("int").alias("n1")),
    "column": lambda s: s.withColumn("n2", F.lit(10) / F.expr("IF(column = 'x', 0, 1)")),
    "filter": lambda s: s.where("CAST(filter AS INT) = 1"),
    "json": lambda s: s.withColumn(
        "n3", F.from_json(F.concat(F.lit('{"n": '), "json", F.lit("}")), "n int", {"mode": "FAILFAST"})
    ),
    "raised": lambda s: s.where(F.expr("IF(raised = 'x', raise_error('no price'), true)")),
    "element": lambda s: s.selectExpr("*", "array(1)[IF(element = 'x', 1, 0)] AS n4"),
    "python": lambda s: s.withColumn("n5", UserDefinedFunction(number, "int")("python")),
}
"""Expressions that may fail for a row, each with its own column, which is bad in one row."""


def test_one_row_of_ten_thousand_fails_at_each_place(spark: SparkSession) -> None:
    columns = {name: F.expr(f"IF(id = {100 * number}, 'x', '1')") for number, name in enumerate(PLACES)}
    given = sj.stream(spark.range(0, COUNT, 1, 2).withColumns(columns)).divert(errors=True)
    found = reduce(lambda stream, place: place(stream), PLACES.values(), given).withWatermark("at", "1 second")
    (counted,) = (
        found.groupBy(F.window("at", "1 minute")).agg(F.count("*").alias("n"), F.sum("n5").alias("m")).toDF().collect()
    )
    assert (counted.n, counted.m) == (COUNT - len(PLACES), COUNT - len(PLACES))
    letters = sorted((row.id, row._stage.split(" ")[0]) for row in found.deadLetters.toDF().collect())
    methods = ["withColumn", "select", "withColumn", "where", "withColumn", "where", "select", "withColumn"]
    assert letters == [(100 * number, method) for number, method in enumerate(methods)]


def test_what_cannot_be_decoded_keeps_its_place_in_kafka(spark: SparkSession) -> None:
    values = [b'{"n": 1}', b'{"n": x}', b"\xff\xfe", b'{"n": 4}', None]
    schema = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
    )
    given = spark.createDataFrame([(b"k", each, "t", n % 2, n, None, 0) for n, each in enumerate(values)], schema)
    found = sj.stream(given).divert(errors=True).withColumn("text", F.decode("value", "UTF-8"))
    found = found.select(F.from_json("text", "n int", {"mode": "FAILFAST"}).alias("json")).select("json.*")
    assert sorted((row.n for row in found.toDF().collect()), key=str) == [1, 4, None]
    letters: list[Any] = sorted(found.deadLetters.toDF().collect(), key=lambda row: row.offset)
    assert [(row.topic, row.partition, row.offset, bytes(row.value)) for row in letters] == [
        ("t", n % 2, n, values[n]) for n in (1, 2)
    ]
    assert [row._error.split(".")[0] for row in letters] == [
        "MALFORMED_RECORD_IN_PARSING",
        "MALFORMED_CHARACTER_CODING",
    ]
