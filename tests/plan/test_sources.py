"""Sources: several DataFrames that travel as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import SUBSTREAM, TIME
from sparkjet.catalyst.identities import IdentifiedColumns
from sparkjet.catalyst.logical_plans import analyzed, attribute_id, listed
from sparkjet.errors import AnalysisError
from sparkjet.plan.sources import Sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def two(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Two sources with different columns, one of the same name."""
    clicks = spark.sql(f"SELECT 1 AS id, 'a' AS `the page`, 7L AS {TIME}, 'all' AS {SUBSTREAM}")
    orders = spark.createDataFrame(
        [(2, 3.5, 9, "4"), (3, 0.0, None, "4")], f"id int, price double, {TIME} long, {SUBSTREAM} string"
    )
    return clicks, orders


def test_the_rows_of_each_source_come_back(spark: SparkSession) -> None:
    clicks, orders = two(spark)
    sources = Sources.of({clicks: "clicks", orders: None})
    batch = sources.united
    assert sources.rows(batch, 0).collect() == [(1, "a", 7, "clicks/all")]
    assert sorted(map(tuple, sources.rows(batch, 1).select("id", "price", SUBSTREAM).collect())) == [
        (2, 3.5, "2/4"),
        (3, 0.0, "2/4"),
    ]
    assert sources.rows(batch, 0).columns == clicks.columns


def test_columns_keep_the_identity_that_a_users_expression_names(spark: SparkSession) -> None:
    clicks, orders = two(spark)
    sources = Sources.of({clicks: None, orders: None})
    # As a batch of Spark's, whose plan begins here.
    batch = sources.united.localCheckpoint()
    found = sources.rows(batch, 1).where(orders["price"] > 1).select(orders.id, (orders.id + 1).alias("next"))
    assert found.collect() == [(2, 3)]


def test_columns_keep_sparks_mark_of_a_window(spark: SparkSession) -> None:
    marked = spark.sql("SELECT window(timestamp'2026-01-01 12:00:05', '10 seconds') AS w")
    # What a join holds is nulled for rows that are late, and comes back from a snapshot: nothing has marks there.
    held = marked.select(F.when(F.lit(True), F.col("w")).alias("held")).localCheckpoint()
    found = IdentifiedColumns([F.col("held")], marked).select(held)
    assert found.select(F.date_format(F.window_time("w"), "ss.SSSSSS")).collect()[0][0] == "09.999999"


def test_what_spark_runs_has_its_own_identities(spark: SparkSession) -> None:
    """Where spark.sql.planChangeValidation is on, Spark refuses a column that is made of one of the same identity."""
    clicks, orders = two(spark)
    united = Sources.of({clicks: None, orders: None}).united
    ids = [{attribute_id(each) for each in listed(analyzed(rows).output())} for rows in (clicks, orders, united)]
    assert ids[2].isdisjoint(ids[0] | ids[1])


def test_one_source_is_what_it_is(spark: SparkSession) -> None:
    clicks, _ = two(spark)
    sources = Sources.of({clicks: "clicks"})
    assert sources.united is clicks
    assert sources.rows(clicks, 0) is clicks


def test_two_streams_of_one_name_are_refused(spark: SparkSession) -> None:
    clicks, orders = two(spark)
    with pytest.raises(AnalysisError, match="two streams are called 'a'"):
        Sources.of({clicks: "a", orders.select(F.col("*")): "a"})
