"""Complete results that are grouped once more: after each epoch Spark's batch result over all rows so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.testing import CollectingSink, StreamDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "load long, kind string, cents long"
EPOCHS = [
    [(1, "a", 3), (2, "a", 5), (3, "b", 1)],
    # The highest offers of 1 and 3 rise: their earlier ones must not count.
    [(1, "a", 9), (3, "b", 2), (3, "b", 1)],
    [(4, "c", None), (2, "a", 1)],
]


def by_kind(offers: Any) -> Any:
    highest = offers.groupBy("load", "kind").agg(F.max("cents").alias("best")).where("best IS NOT NULL")
    kinds = highest.groupBy("kind").agg(F.avg("best").alias("mean"), F.percentile("best", 0.5).alias("p"))
    return kinds.withColumn("doubled", F.col("mean") * 2).orderBy("kind")


def overall(offers: Any) -> Any:
    return offers.groupBy("load", "kind").agg(F.max("cents").alias("p")).groupby(["kind"]).max("p").groupBy().count()


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.long)])
def test_every_epoch_gives_sparks_result_of_all_rows_so_far(spark: SparkSession, count: int) -> None:
    queries = by_kind, overall
    driver = StreamDriver(spark, lambda offers: [query(offers) for query in queries], SCHEMA, outputMode="complete")
    for number, rows in enumerate(EPOCHS[:count], 1):
        driver.process(rows)
        driver.restart()
        so_far = spark.createDataFrame([row for epoch in EPOCHS[:number] for row in epoch], SCHEMA)
        for sink, query in zip(driver.sinks, queries, strict=True):
            assert isinstance(sink, CollectingSink)
            assert list(map(tuple, sink.committed[number])) == list(map(tuple, query(so_far).collect()))


def test_they_say_what_they_are(spark: SparkSession) -> None:
    totals = sj.stream(spark.createDataFrame([], SCHEMA)).groupBy("load", "kind").agg(F.max("cents").alias("p"))
    for grouped in (totals.groupBy("kind"), totals.groupBy("kind").pivot("load", [1])):
        assert repr(grouped).startswith("GroupedResults[grouping expressions: [kind")
    assert repr(totals.na) == f"NaFunctions[{totals!r}]"


@pytest.mark.parametrize(
    "aggregated",
    [
        lambda grouped: grouped.agg({"cents": "max"}),
        lambda grouped: grouped.count(),
        lambda grouped: grouped.sum(),
        lambda grouped: grouped.avg("cents"),
        lambda grouped: grouped.mean("cents"),
        lambda grouped: grouped.min("load", "cents"),
        lambda grouped: grouped.max(),
    ],
)
def test_the_methods_are_those_of_grouped_data(spark: SparkSession, aggregated: Any) -> None:
    def query(rows: Any) -> Any:
        return aggregated(rows.distinct().groupBy("load", "kind").agg(F.sum("cents").alias("cents")).groupBy("kind"))

    table = spark.createDataFrame([(1, "a", 2)], SCHEMA)
    assert query(sj.stream(table)).schema == query(table).schema
