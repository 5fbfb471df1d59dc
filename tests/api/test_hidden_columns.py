"""Values that Spark takes from hidden columns and the reading task: ``*`` in every place, metadata, file names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.testing import StreamDriver

pytestmark = pytest.mark.spark

Query = Callable[[Any], Any]


def window() -> Any:
    return F.window("ts", "10 seconds")


AGGREGATES: dict[str, Callable[[], Any]] = {
    "max_by": lambda: F.expr("max_by(struct(*), id)"),
    "hash": lambda: F.min(F.hash("*")),
    "json": lambda: F.expr("max(to_json(struct(*)))"),
    "nested": lambda: F.expr("max(struct(struct(*) AS row, id + 1))"),
    "except": lambda: F.expr("max(struct(* EXCEPT (ts)))"),
    "count": lambda: F.expr("count(*)"),
    "count of all": lambda: F.expr("count(DISTINCT *)"),
    "product": lambda: F.expr("sum(id * 2)"),
    "list": lambda: F.sort_array(F.collect_list(F.struct("*"))),
}
LINKS: dict[str, Query] = {
    "withColumn": lambda rows: rows.withColumn("all", F.struct("*")),
    "select": lambda rows: rows.select("*", F.hash("*").alias("h"), F.array_size(F.array("id", "id")).alias("n")),
    "selectExpr": lambda rows: rows.selectExpr("to_json(struct(*)) AS j", "ts", "k"),
    "except": lambda rows: rows.selectExpr("* EXCEPT (id)", "id * 2 AS twice"),
    "where": lambda rows: rows.where("pmod(hash(*), 2) = 0"),
    "filter": lambda rows: rows.where("id > 0").withColumn("all", F.struct("*")).where(F.hash("*") != 0),
    "alias": lambda rows: rows.alias("r").withColumn("all", F.struct("r.*")),
    "of a struct": lambda rows: rows.withColumn("s", F.struct("id", "k")).selectExpr("struct(s.*) AS all", "s.*"),
    "except in a struct": lambda rows: rows.withColumn("s", F.struct("id", "k")).selectExpr(
        "s.* EXCEPT (id)", "struct(* EXCEPT (s.k, ts)) AS all"
    ),
    "except of a struct": lambda rows: rows.withColumn("s", F.struct("id", "k")).selectExpr("* EXCEPT (s.k)"),
    "drop": lambda rows: rows.drop("k").withColumn("all", F.struct("*")),
}


@pytest.fixture(scope="module")
def whole(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT id, if(id % 3 = 0, null, concat('k', id % 2)) AS k, timestamp_seconds(5 * id) AS ts FROM range(6)"
    )


def same(computed: DataFrame, expected: DataFrame) -> None:
    assert computed.schema.simpleString() == expected.schema.simpleString()
    assert sorted(map(str, computed.collect())) == sorted(map(str, expected.collect()))


def test_a_star_in_an_aggregate_is_the_users_columns(whole: DataFrame) -> None:
    aggregates = [make().alias(name) for name, make in AGGREGATES.items()]

    def windows(rows: Any) -> Any:
        return rows.groupBy(window(), "k").agg(*aggregates)

    def rolling(rows: Any) -> Any:
        return rows.where("id > 0").groupBy("k").agg(*aggregates)

    same(windows(sj.stream(whole).withWatermark("ts", 0)).toDF(), windows(whole))
    same(rolling(sj.stream(whole)).toDF(), rolling(whole))


def aggregated(rows: Any) -> Any:
    return rows.groupBy(window(), "k").agg(F.max("id").alias("id"), F.max("ts").alias("ts"))


SOME = ("withColumn", "where", "of a struct", "except in a struct")
"""Those of the links that CI takes, for each method one."""


@pytest.mark.parametrize("names", [SOME, pytest.param(tuple(LINKS), marks=pytest.mark.long)], ids=["some", "all"])
def test_a_star_in_an_expression_is_the_users_columns(whole: DataFrame, names: tuple[str, ...]) -> None:
    """Before state, and behind it, in turns: both are one rule for each kind of expression."""

    def cases(rows: Any) -> dict[str, Any]:
        windows = aggregated(rows)
        firsts = {f"{name}, then the first of each": LINKS[name](rows).dropDuplicates() for name in names[::2]}
        return {**firsts, **{f"windows, then {name}": LINKS[name](windows) for name in names[1::2]}}

    def queries(rows: Any) -> list[Any]:
        return [*cases(rows.withWatermark("ts", 0)).values()]

    driver = StreamDriver(whole.sparkSession, queries, whole.schema)
    driver.process(whole.collect())
    driver.close_windows()
    for number, (name, expected) in enumerate(cases(whole).items()):
        assert driver.plan.outputs[number].sample().schema.simpleString() == expected.schema.simpleString(), name
        assert sorted(map(str, driver.results(number))) == sorted(map(str, expected.collect())), name


def test_a_star_belongs_to_the_table_that_it_names_where_two_have_a_column(whole: DataFrame) -> None:
    table = whole.selectExpr("k", "id + 1 AS more").alias("t")

    def joined(rows: Any) -> Any:
        both = rows.alias("r").join(table, F.expr("r.k = t.k"))
        return both.selectExpr("struct(r.*) AS one", "struct(t.*) AS other")

    same(joined(sj.stream(whole).withWatermark("ts", 0)).toDF(), joined(whole))


def test_a_star_in_a_key_and_in_an_aggregate_of_sparkjets_is_the_users_columns(whole: DataFrame) -> None:
    timed = sj.stream(whole).withWatermark("ts", 0)
    key = F.hash("*").alias("h")
    same(
        timed.groupBy(window(), key).count().toDF(), whole.groupBy(window(), F.hash("id", "k", "ts").alias("h")).count()
    )
    ours = timed.groupBy(window()).agg(
        F.max_by(F.struct("*"), "id").alias("last"), F.last(F.struct("*")).alias("newest")
    )
    last = F.max_by(F.struct("*"), "id")
    same(ours.toDF(), whole.groupBy(window()).agg(last.alias("last"), last.alias("newest")))


def files(spark: SparkSession, directory: Path) -> DataFrame:
    for number in range(2):
        (directory / f"{number}.json").write_text(f'{{"id": {number}, "k": "a", "ts": "2026-01-01 12:00:0{number}"}}\n')
    return spark.readStream.schema("id long, k string, ts timestamp").json(str(directory))


def metadata(rows: Any) -> Any:
    return rows.withColumn("file", F.col("_metadata.file_name"))


def named(rows: Any) -> Any:
    return rows.withColumn("file", F.element_at(F.split(F.input_file_name(), "/"), -1))


def started(spark: SparkSession, *results: Any) -> list[list[Any]]:
    """The rows of the results of one query."""
    names = [f"hidden_columns_{number}" for number in range(len(results))]
    writers = [each.writeStream.format("memory").queryName(name) for each, name in zip(results, names, strict=True)]
    sj.start(*[writer.trigger(availableNow=True) for writer in writers]).awaitTermination()
    return [sorted(map(tuple, spark.table(name).collect())) for name in names]


FILES = [(0, "0.json"), (1, "1.json")]


def firsts(rows: Any) -> Any:
    return rows.dropDuplicates(["id", "ts"])


def test_what_is_known_while_a_file_is_read_is_taken_along_from_there(spark: SparkSession, tmp_path: Path) -> None:
    source = files(spark, tmp_path)
    files_of_both = named(metadata(source).withColumnRenamed("file", "by_metadata"))
    before = sj.stream(files_of_both).withWatermark("ts", 0)
    both = started(spark, firsts(before).select("id", "file", "by_metadata"), before.select("id", "file"))
    assert both == [[(number, file, file) for number, file in FILES], FILES]
    # Where nothing is held, each row is computed where its file is read.
    after = named(sj.stream(source).withWatermark("ts", 0))
    assert started(spark, firsts(after).select("id", "file")) == [FILES]
    assert started(spark, metadata(sj.stream(source)).select("id", "file")) == [FILES]


def test_what_would_be_lost_later_is_refused_before_the_start(spark: SparkSession, tmp_path: Path) -> None:
    source = files(spark, tmp_path)
    whole = sj.stream(source)
    timed = whole.withWatermark("ts", 0)
    for results in (
        [firsts(metadata(timed))],
        [timed.groupBy(window(), "_metadata.file_name").count()],
        [firsts(timed.where("_metadata.file_size > 0"))],
        [metadata(whole), whole],
    ):
        with pytest.raises(sj.AnalysisError, match="start: the source has the column '_metadata' only"):
            started(spark, *results)
    once = F.udf(lambda k: k)
    for results in (
        [firsts(timed), named(timed)],
        [named(timed.where("id >= 0").withColumn("k", once("k"))).groupBy(window(), "file").count()],
    ):
        with pytest.raises(sj.AnalysisError, match=r"start: input_file_name\(\) is known only while a file is read"):
            started(spark, *results)
