"""Steps that Spark computes row by row may come before a stream; steps with state or that depend on batches may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import sparkjet as sj
from sparkjet.catalyst.row_by_row import REFUSED, ROW_BY_ROW
from sparkjet.spark_line import LINE
from sparkjet.testing import StreamDriver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.grouped import WindowedStream
    from sparkjet.api.stream import Stream

SCHEMA = "ts timestamp, k string, p string, v long, a array<int>"
upper = F.udf(lambda text: text and text.upper(), StringType())


@pytest.fixture
def df(spark: SparkSession, tmp_path: Path) -> Iterator[DataFrame]:
    df = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    df.createOrReplaceTempView("events")
    spark.sql("SELECT 'a' AS k, 1 AS extra").createOrReplaceTempView("static")
    yield df
    for view in ("events", "static"):
        spark.catalog.dropTempView(view)


def passed(batches: Any) -> Any:
    return batches


def static(df: DataFrame) -> DataFrame:
    return df.sparkSession.table("static")


def sql(text: str) -> Callable[[DataFrame], DataFrame]:
    return lambda df: df.sparkSession.sql(text)


def by(*columns: str) -> Any:
    return SparkWindow.partitionBy(*columns).orderBy("v")


ALLOWED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "select": lambda df: df.select("ts", F.upper("k").alias("k")),
    "selectExpr": lambda df: df.selectExpr("*", "v + 1 AS w", "w + 1 AS x"),
    "where": lambda df: df.where("v > 1").dropna(),
    "withColumnRenamed": lambda df: df.withColumnRenamed("k", "key").withColumnsRenamed({"p": "q"}),
    "fillna, replace": lambda df: df.fillna(0).replace("a", "b"),
    "toDF, to": lambda df: df.select("k").toDF("z").to(df.select(F.col("k").alias("z")).schema),
    "withMetadata": lambda df: df.withMetadata("k", {"unit": "m"}),
    "alias": lambda df: df.alias("e").select("e.*"),
    "temporary view": lambda df: df.sparkSession.table("events"),
    "SQL": sql("SELECT * FROM events WHERE v > 1"),
    "SQL with arguments": lambda df: df.sparkSession.sql("SELECT * FROM events WHERE v > :n", args={"n": 1}),
    "SQL with a CTE": sql("WITH big AS (SELECT * FROM events WHERE v > 1) SELECT * FROM big"),
    "SQL with a CTE used twice": sql(
        "WITH big AS (SELECT * FROM events) SELECT * FROM big UNION ALL SELECT * FROM big"
    ),
    "SQL with pipes": sql("FROM events |> WHERE v > 1 |> SELECT k"),
    "view over a view": lambda df: df.where("v > 1").transform(lambda d: d.sparkSession.table("events")),
    "union": lambda df: df.union(df.where("v > 1")),
    "unionByName": lambda df: df.unionByName(df.drop("v"), allowMissingColumns=True),
    "inner join with a batch": lambda df: df.join(static(df), "k"),
    "broadcast left join with a batch": lambda df: df.join(F.broadcast(static(df)), "k", "left"),
    "left semi join with a batch": lambda df: df.join(static(df), "k", "left_semi"),
    "left anti join with a batch": lambda df: df.join(static(df), "k", "left_anti"),
    "batch right join": lambda df: static(df).join(df, "k", "right"),
    "cross join with a batch": lambda df: df.crossJoin(static(df).select("extra")),
    "join with an aggregated batch": lambda df: df.join(static(df).groupBy("k").count().limit(3), "k"),
    "join with an aggregate in SQL": sql(
        "SELECT * FROM events JOIN (SELECT k, max(extra) m FROM static GROUP BY k) USING (k)"
    ),
    "IN": sql("SELECT * FROM events WHERE k IN (SELECT k FROM static)"),
    "NOT EXISTS": sql("SELECT * FROM events e WHERE NOT EXISTS (SELECT 1 FROM static s WHERE s.k = e.k)"),
    "scalar subquery": sql("SELECT *, (SELECT max(extra) FROM static) AS most FROM events"),
    "lateral join": sql("SELECT * FROM events, LATERAL (SELECT extra FROM static WHERE static.k = events.k)"),
    "explode": lambda df: df.withColumn("x", F.explode("a")),
    "posexplode_outer": lambda df: df.select("*", F.posexplode_outer("a")),
    "lateral view": sql("SELECT * FROM events LATERAL VIEW explode(a) AS x"),
    "table function": sql("SELECT * FROM events, LATERAL explode(a) AS t(x)"),
    "unpivot": lambda df: df.unpivot(["ts", "k"], ["v"], "name", "value"),
    "Python function": lambda df: df.withColumn("u", upper("k")),
    "mapInPandas": lambda df: df.mapInPandas(passed, df.schema),
    "mapInArrow": lambda df: df.mapInArrow(passed, df.schema),
    "repartition": lambda df: df.repartition(3).repartition(3, "k").coalesce(1),
    "repartitionByRange": lambda df: df.repartitionByRange(3, "v"),
    "hints": lambda df: df.hint("rebalance").hint("broadcast").hint("repartition", 3),
    "sample": lambda df: df.sample(0.5, seed=1),
    "observe": lambda df: df.observe("seen", F.count(F.lit(1)).alias("rows")),
    "Spark's time window as a column": lambda df: df.withColumn("w", F.window("ts", "1 minute", "30 seconds")),
    "script": sql("SELECT TRANSFORM(k) USING 'cat' AS (k STRING) FROM events"),
    "rate": lambda df: df.sparkSession.readStream.format("rate").load(),
}


@pytest.mark.parametrize("shape", ALLOWED.values(), ids=ALLOWED)
def test_steps_row_by_row_are_accepted(df: DataFrame, shape: Callable[[DataFrame], DataFrame]) -> None:
    shaped = shape(df)
    assert sj.stream(shaped).columns == shaped.columns


UNSAFE: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "withWatermark": (lambda df: df.withWatermark("ts", "1 minute"), "Spark's withWatermark"),
    "distinct": (lambda df: df.distinct(), "dropDuplicates or distinct"),
    "dropDuplicates": (lambda df: df.dropDuplicates(["k"]), "dropDuplicates or distinct"),
    "SELECT DISTINCT": (sql("SELECT DISTINCT k FROM events"), "SELECT DISTINCT"),
    "UNION": (sql("SELECT k FROM events UNION SELECT p FROM events"), "UNION that drops duplicates"),
    "dropDuplicatesWithinWatermark": (
        lambda df: df.withWatermark("ts", "1 minute").dropDuplicatesWithinWatermark(["k"]),
        "dropDuplicatesWithinWatermark",
    ),
    "limit": (lambda df: df.limit(3), "a limit"),
    "LIMIT in a CTE": (sql("WITH few AS (SELECT * FROM events LIMIT 3) SELECT * FROM few"), "a limit"),
    "TABLESAMPLE of rows": (sql("SELECT * FROM events TABLESAMPLE (3 ROWS)"), "a limit"),
    "below other steps": (lambda df: df.limit(3).where("v > 1").withColumn("x", F.explode("a")), "a limit"),
    "on one side of a union": (lambda df: df.union(df.limit(3)), "a limit"),
    "beside a batch": (lambda df: df.limit(3).join(static(df), "k"), "a limit"),
    "offset": (lambda df: df.offset(3), "an offset"),
    "sort": (lambda df: df.orderBy("v"), "a sort"),
    "sortWithinPartitions": (lambda df: df.sortWithinPartitions("v"), "a sort"),
    "window function": (lambda df: df.withColumn("n", F.row_number().over(by("k"))), "a window function"),
    "QUALIFY": (
        sql("SELECT * FROM events QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts) = 1"),
        "window function",
    ),
    "groupBy": (lambda df: df.groupBy("k").count(), "an aggregation"),
    "aggregate of all": (lambda df: df.select(F.sum("v")), "an aggregation"),
    "rollup": (lambda df: df.rollup("k").count(), "an aggregation"),
    "HAVING": (sql("SELECT k FROM events GROUP BY k HAVING count(*) > 1"), "an aggregation"),
    "applyInPandas": (lambda df: df.groupBy("k").applyInPandas(lambda rows: rows, df.schema), "applyInPandas"),
    "applyInArrow": (lambda df: df.groupBy("k").applyInArrow(lambda rows: rows, df.schema), "applyInArrow"),
    "applyInPandasWithState": (
        lambda df: df.groupBy("k").applyInPandasWithState(
            lambda key, rows, state: rows, "k string", "n long", "append", "NoTimeout"
        ),
        "a stateful function",
    ),
    "cogroup": (
        lambda df: df.groupBy("k").cogroup(static(df).groupBy("k")).applyInPandas(lambda a, b: a, df.schema),
        "a cogroup",
    ),
    "intersect": (lambda df: df.select("k").intersect(static(df).select("k")), "an intersection"),
    "intersectAll": (lambda df: df.select("k").intersectAll(static(df).select("k")), "an intersection"),
    "subtract": (lambda df: df.select("k").subtract(static(df).select("k")), "a subtraction"),
    "exceptAll": (lambda df: df.select("k").exceptAll(static(df).select("k")), "a subtraction"),
    "stream-stream join": (lambda df: df.alias("a").join(df.alias("b"), "k"), "stream-stream join"),
    "semi join of streams": (lambda df: df.join(df.select("k"), "k", "left_semi"), "stream-stream join"),
    "zipWithIndex": (lambda df: df.zipWithIndex(), "zipWithIndex"),
    "randomSplit": (lambda df: df.select("k").randomSplit([0.5, 0.5])[0], "a sort"),
}


if LINE < (4, 2):
    # Spark has neither.
    del UNSAFE["QUALIFY"], UNSAFE["zipWithIndex"]


@pytest.mark.parametrize(("shape", "named"), UNSAFE.values(), ids=UNSAFE)
def test_state_and_results_by_batch_are_refused(
    df: DataFrame, shape: Callable[[DataFrame], DataFrame], named: str
) -> None:
    with pytest.raises(sj.AnalysisError, match=f"stream: the DataFrame contains .*{named}"):
        sj.stream(shape(df))


def test_a_node_that_is_on_no_list_is_refused_by_its_name(df: DataFrame) -> None:
    batch = static(df).select("k", F.current_timestamp().alias("at"))
    joined = df._joinAsOf(batch, "ts", "at", on="k", how="left")  # type: ignore[operator]
    with pytest.raises(sj.AnalysisError, match=r"contains AsOfJoin, which is not known.*separate Spark query"):
        sj.stream(joined)
    assert not ROW_BY_ROW & REFUSED.keys()


@pytest.fixture
def stream(df: DataFrame) -> Stream:
    return sj.stream(df).withWatermark("ts", "1 minute")


@pytest.fixture
def results(stream: Stream) -> WindowedStream:
    return stream.groupBy(sj.window("ts", "1 minute"), "k").agg(F.max("v").alias("v"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s.withColumn("n", F.row_number().over(by("k"))),
        lambda s: s.select("k", F.sum("v").over(by("k")).alias("total")),
        lambda s: s.where("k = 'a'").withColumn("n", F.lag("v").over(by("k"))),
    ],
)
def test_window_functions_over_the_rows_of_a_batch_are_refused(stream: Stream, spoil: Callable[[Any], Any]) -> None:
    late = stream.groupBy(sj.window("ts", "1 minute"), "k").count().lateRows
    for rows in (stream, late):
        with pytest.raises(sj.AnalysisError, match=r"a window function.*row by row.*top_n"):
            spoil(rows)


def test_an_aggregation_of_late_rows_is_refused(results: WindowedStream) -> None:
    with pytest.raises(sj.AnalysisError, match="an aggregation"):
        results.lateRows.select(F.count("*").alias("n"))


@pytest.mark.parametrize(
    "rank",
    [
        lambda r: r.withColumn("n", F.rank().over(by("window"))).where("n <= 3"),
        lambda r: r.withColumn("n", F.rank().over(by("k", "window"))),
        lambda r: r.withColumn("n", F.rank().over(by("window.end"))),
        lambda r: r.select(F.col("window.start").alias("at"), "v").withColumn("n", F.rank().over(by("at"))),
    ],
)
def test_results_of_one_window_may_be_compared(
    results: WindowedStream, rank: Callable[[WindowedStream], WindowedStream]
) -> None:
    assert "n" in rank(results).columns


@pytest.mark.parametrize(
    "rank",
    [
        lambda r: r.withColumn("n", F.rank().over(by("k"))),
        lambda r: r.withColumn("n", F.rank().over(by())),
        lambda r: r.withColumn("n", F.rank().over(by(F.date_trunc("hour", F.col("window.end"))))),
        lambda r: r.select(F.col("k").alias("window"), "v").withColumn("n", F.rank().over(by("window"))),
        lambda r: r.withColumn("n", F.rank().over(by("window")) + F.rank().over(by("k"))),
    ],
)
def test_results_of_several_windows_may_not(
    results: WindowedStream, rank: Callable[[WindowedStream], WindowedStream]
) -> None:
    with pytest.raises(sj.AnalysisError, match=r"must be partitioned by 'window'.*partitionBy"):
        rank(results)


def test_sessions_are_compared_by_their_end_not_their_start(stream: Stream) -> None:
    sessions = stream.groupBy(sj.session_window("ts", "1 minute"), "k").agg(F.max("v").alias("v"))
    assert "n" in sessions.withColumn("n", F.rank().over(by("session_window.end"))).columns
    with pytest.raises(sj.AnalysisError, match="must be partitioned by 'session_window'"):
        sessions.withColumn("n", F.rank().over(by("session_window.start")))


@pytest.mark.crash
def test_rows_that_a_window_as_a_column_drops_have_moved_the_watermark(spark: SparkSession) -> None:
    """Spark gives each row once for each sliding window, and drops it if the time is null, as it does in a batch."""

    def query(rows: Stream) -> list[Any]:
        timed = rows.withWatermark("ts", 0)
        twice = timed.withColumn("w", F.window("other", "10 seconds", "5 seconds"))
        return [twice.groupBy(F.window("ts", "10 seconds")).count(), twice.select("w.start")]

    driver = StreamDriver(spark, query, "ts timestamp, other timestamp")
    driver.process([("2026-01-01 12:00:01", "2026-01-01 12:00:07"), ("2026-01-01 12:00:20", None)])
    assert [row["count"] for row in driver.results()] == [2]
    assert sorted(row.start.second for row in driver.results(1)) == [0, 5]
