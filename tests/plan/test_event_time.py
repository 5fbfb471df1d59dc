"""A replaced event time is refused where a window is built over it, however it was replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

import sparkjet as sj

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream
    from sparkjet.api.stream import Stream

SCHEMA = "ts timestamp, other timestamp, k string, p string, v long"
REFUSED = r"window: 'ts' was replaced after withWatermark.*Compute 'ts' before withWatermark"
same = F.udf(lambda ts: ts, TimestampType())


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> Stream:
    return sj.stream(spark.readStream.schema(SCHEMA).json(str(tmp_path)))


@pytest.fixture
def watermarked(events: Stream) -> Stream:
    return events.withWatermark("ts", "10 seconds", by="p")


REPLACED: dict[str, Callable[[Stream], Stream]] = {
    "withColumn": lambda s: s.withColumn("ts", F.from_utc_timestamp("ts", "Asia/Tokyo")),
    "withColumn of a constant": lambda s: s.withColumn("ts", F.lit(None).cast("timestamp")),
    "withColumn in other case": lambda s: s.withColumn("TS", F.col("other")),
    "cast to text": lambda s: s.withColumn("ts", F.col("ts").cast("string")),
    "cast to a number": lambda s: s.withColumn("ts", F.col("ts").cast("long")),
    "alias of an expression": lambda s: s.select("k", F.date_trunc("hour", "ts").alias("ts")),
    "alias of another column": lambda s: s.select("k", F.col("other").alias("ts")),
    "alias in other case": lambda s: s.select("k", F.col("other").alias("Ts")),
    "SQL in a select": lambda s: s.select("k", F.expr("ts + interval 1 hour").alias("ts")),
    "a second column of its name": lambda s: s.select("ts", F.col("other").alias("ts")),
    "drop, then add": lambda s: s.drop("ts").withColumn("ts", F.col("other")),
    "select without, then add": lambda s: s.select("k", "other").withColumn("ts", F.col("other")),
    "swapped": lambda s: s.select(F.col("ts").alias("other"), F.col("other").alias("ts")),
    "kept aside and replaced": lambda s: s.withColumn("old", F.col("ts")).drop("ts").withColumn("ts", F.col("other")),
    "a Python function": lambda s: s.withColumn("ts", same("ts")),
    "exploded": lambda s: s.withColumn("ts", F.explode(F.array("ts", "other"))),
    "below a filter": lambda s: s.where("v > 1").withColumn("ts", F.col("other")).where("k = 'a'"),
    "after a union": lambda s: s.alias("a").union(s.alias("b")).withColumn("ts", F.col("other")),
    "after a union of filtered sides": lambda s: (
        s.alias("a").union(s.where("v > 1").alias("b")).withColumn("ts", F.col("other"))
    ),
}


@pytest.mark.parametrize("replace", REPLACED.values(), ids=REPLACED)
def test_a_replaced_event_time_is_refused(watermarked: Stream, replace: Callable[[Stream], Stream]) -> None:
    replaced = replace(watermarked)
    with pytest.raises(sj.AnalysisError, match=REFUSED):
        replaced.groupBy(sj.window("ts", "1 minute"))
    with pytest.raises(sj.AnalysisError, match=f"session_{REFUSED}"):
        replaced.groupBy(sj.session_window("ts", "1 minute"))


KEPT: dict[str, Callable[[Stream], Stream]] = {
    "untouched": lambda s: s,
    "where": lambda s: s.where("v > 1").filter(F.col("ts").isNotNull()),
    "select": lambda s: s.select("v", F.col("ts"), "k"),
    "star": lambda s: s.select("*", F.upper("k").alias("upper")),
    "other columns": lambda s: s.withColumn("other", F.col("ts")).withColumn("v", F.col("v") + 1).drop("p"),
    "alias of the same column": lambda s: s.select("k", F.col("ts").alias("ts"), "v"),
    "a copy": lambda s: s.withColumn("hour", F.date_trunc("hour", "ts")),
    "another name, not used": lambda s: s.select("k", "v", F.col("ts").alias("when")),
    "left out": lambda s: s.select("k", "v"),
    "the substream's column": lambda s: s.withColumn("p", F.upper("p")).withColumn("k", F.col("p")),
    "multiplied rows": lambda s: s.withColumn("n", F.explode(F.array(F.lit(1), F.lit(2)))),
    "a Python function beside it": lambda s: s.withColumn("seen", same("ts")),
    "a union": lambda s: s.alias("a").union(s.alias("b")),
    "a union of filtered sides": lambda s: s.alias("a").union(s.where("v > 1").alias("b")).where("v > 2"),
    "a union by name": lambda s: s.alias("a").unionByName(s.select("v", "p", "k", "other", "ts").alias("b")),
    "a union without it": lambda s: s.drop("ts").alias("a").union(s.drop("ts").alias("b")),
    "a union of three": lambda s: s.alias("a").union(s.alias("b")).alias("ab").union(s.alias("c")),
}


@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
def test_what_keeps_the_event_time_is_fine(watermarked: Stream, keep: Callable[[Stream], Stream]) -> None:
    result = keep(watermarked).groupBy(sj.window("ts", "1 minute"), "k").agg(F.max("v").alias("v"))
    assert result.columns == ["window", "k", "v"]


def test_an_event_time_computed_before_the_watermark_is_fine(events: Stream) -> None:
    derived = events.withColumn("ts", F.from_utc_timestamp("ts", "Asia/Tokyo")).withWatermark("ts", "1 minute")
    assert derived.groupBy(sj.window("ts", "1 minute")).count().columns == ["window", "count"]
    cast = events.select(F.col("ts").cast("string").cast("timestamp").alias("at"), "k").withWatermark("at", "1 minute")
    assert cast.groupBy(sj.session_window("at", "1 minute"), "k").count().columns == ["session_window", "k", "count"]


@pytest.mark.parametrize(
    ("unite", "named"),
    [
        (lambda a, b: a.withColumn("ts", F.col("other")).union(b), "union, first stream: 'ts' was replaced"),
        (lambda a, b: a.union(b.withColumn("ts", F.col("other"))), "union, second stream: 'ts' was replaced"),
        (lambda a, b: a.unionByName(b.withColumn("ts", F.col("other"))), "union, second stream: 'ts' was replaced"),
        (lambda a, b: a.where("v > 1").union(b.withColumn("ts", F.col("other"))), "second stream"),
        (
            lambda a, b: a.union(b.select("other", "ts", "k", "p", "v")),
            "'ts' of the first stream is aligned with 'other'",
        ),
        (
            lambda a, b: a.select("ts", "v").union(b.select("other", "v")),
            "'ts' of the first stream is aligned with 'other'",
        ),
    ],
)
def test_a_union_of_other_times_is_refused(
    watermarked: Stream, unite: Callable[[Stream, Stream], Stream], named: str
) -> None:
    with pytest.raises(sj.AnalysisError, match=named):
        unite(watermarked.alias("a"), watermarked.alias("b"))


def test_a_union_of_event_times_of_different_names_is_fine(events: Stream, watermarked: Stream) -> None:
    second = events.withWatermark("other", "1 minute").select("other", F.col("ts").alias("o"), "k", "p", "v")
    united = watermarked.union(second)
    assert united.groupBy(sj.window("ts", "1 minute")).count().columns == ["window", "count"]


@pytest.mark.parametrize(
    "replace",
    [
        lambda r: r.withColumn("window", F.struct(F.lit(0).alias("start"), F.lit(1).alias("end"))),
        lambda r: r.select("k", "count", F.col("window.end").alias("window")),
        lambda r: r.withColumn("Window", F.col("window.start")),
        lambda r: r.drop("window").withColumn("window", F.lit(1)),
    ],
)
def test_a_replaced_window_of_results_is_refused(
    watermarked: Stream, replace: Callable[[WindowedStream], WindowedStream]
) -> None:
    minutes = watermarked.groupBy(sj.window("ts", "1 minute"), "k").count()
    with pytest.raises(sj.AnalysisError, match=r"'window' was replaced.*another name"):
        replace(minutes).groupBy(sj.window("window", "1 hour"))
    kept = minutes.where(F.col("count") > 1).withColumn("end", F.col("window.end")).select("window", "k", "count")
    assert kept.groupBy(sj.window("window", "1 hour")).count().columns == ["window", "count"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s.withColumn("_sparkjet_time", F.lit(0)),
        lambda s: s.select("k", F.lit("x").alias("_sparkjet_substream")),
        lambda s: s.withColumn("_sparkjet_kept", F.lit(False)),
        lambda s: s.withColumn("_SPARKJET_time", F.lit(0)),
        lambda s: s.drop("_sparkjet_time"),
    ],
)
def test_the_columns_after_the_event_time_are_not_touched(
    watermarked: Stream, spoil: Callable[[Stream], Stream]
) -> None:
    for changed in (watermarked, watermarked.groupBy(sj.window("ts", "1 minute"), "k").count()):
        with pytest.raises(sj.AnalysisError, match=r"_sparkjet_.* is used by sparkjet"):
            spoil(changed)  # type: ignore[arg-type]
