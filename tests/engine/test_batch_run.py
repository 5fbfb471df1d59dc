"""The same query over a batch DataFrame gives all of its rows at once, as a DataFrame."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

import sparkjet as sj
from tests.persisted import persisted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 3, 1, 10, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    rows = [(START + timedelta(seconds=i * 37 % 600), "ab"[i % 2], i % 7) for i in range(60)]
    return spark.createDataFrame([*rows, (None, "a", 1)], "ts timestamp, k string, v int").localCheckpoint()


def windowed(df: Any) -> Any:
    return (
        df.where("v <> 3")
        .withColumnRenamed("ts", "at")
        .withWatermark("at", "10 seconds")
        .groupBy(F.window("at", "2 minutes", "1 minute"), F.upper("k").alias("key"))
        .agg(F.sum("v").alias("s"), F.round(F.avg("v"), 2), F.count("*").alias("n"))
        .where("n > 1")
        .withColumn("late", F.col("window.end") > F.lit("2026-03-01 10:05:00"))
    )


def chained(df: Any) -> Any:
    minutes = df.withWatermark("ts", "10 seconds").groupBy(F.window("ts", "1 minute"), "k").count()
    return minutes.groupBy(F.window(F.window_time("window"), "5 minutes")).agg(F.max("count").alias("most"))


def rows_only(df: Any) -> Any:
    return df.where("v > 2").select("k", (F.col("v") * 2).alias("double")).dropna().toDF("key", "double")


# In CI, windows of windows of a batch are compared with Spark's in `api/test_like_spark.py` too.
@pytest.mark.parametrize("query", [windowed, pytest.param(chained, marks=pytest.mark.long), rows_only])
def test_the_result_is_that_of_spark(events: DataFrame, query: Any) -> None:
    result = query(sj.stream(events))
    assert not result.isStreaming
    assertDataFrameEqual(result.toDF(), query(events), ignoreNullable=True)


def test_nothing_is_held_but_the_result(spark: SparkSession, events: DataFrame) -> None:
    before = persisted(spark)
    result = windowed(sj.stream(events)).toDF()
    assert len(persisted(spark) - before) == 1
    assert result.count() == result.count() > 0


def test_rows_without_an_event_time_are_late_rows(events: DataFrame) -> None:
    result = sj.stream(events).withWatermark("ts", "1 second").groupBy(F.window("ts", "1 minute")).count()
    (late,) = result.lateRows.toDF().collect()
    assert (late.k, late._reason) == ("a", "null_timestamp")
    none = sj.stream(events.where("ts IS NOT NULL")).withWatermark("ts", "1 second")
    counts = none.groupBy(F.window("ts", "1 minute")).count()
    assert counts.lateRows.toDF().collect() == []


def test_what_depends_on_batches_is_refused_as_in_a_stream(events: DataFrame) -> None:
    stream = sj.stream(events)
    with pytest.raises(sj.AnalysisError, match="window function"):
        stream.withColumn("r", F.row_number().over(Window.orderBy("v")))
    with pytest.raises(sj.AnalysisError, match=r"start: this is a batch DataFrame.*toDF\(\)"):
        stream.select("k").writeStream.format("console").start()


def test_a_stream_has_no_rows_to_return(spark: SparkSession) -> None:
    stream = sj.stream(spark.readStream.format("rate").load())
    assert stream.isStreaming
    with pytest.raises(sj.AnalysisError, match="come from a stream"):
        stream.toDF()
    with pytest.raises(sj.AnalysisError, match="toDF: 1 names for 2 columns, timestamp, value"):
        stream.toDF("ts")


def test_columns_that_one_side_of_a_union_lacks_are_null(events: DataFrame) -> None:
    def united(one: Any, other: Any) -> Any:
        return one.drop("k").unionByName(other.drop("v"), allowMissingColumns=True).where("k = 'a' OR v > 2")

    stream = sj.stream(events)
    assertDataFrameEqual(united(stream.alias("a"), stream.alias("b")).toDF(), united(events, events))
    assert stream.sparkSession is events.sparkSession
