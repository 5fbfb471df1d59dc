"""Shuffles that are left out: the same rows in the same partitions, with one exchange or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.catalyst.tables import Rows, table_of

pytestmark = pytest.mark.spark

Build = Callable[[DataFrame], DataFrame]
PARTITIONS = 3


@pytest.fixture
def numbers(spark: SparkSession) -> DataFrame:
    """The numbers up to 200 in four partitions, as a table."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", "5")
    rows = session.range(0, 200, 1, 4).selectExpr("id", "id % 7 AS a", "cast(id % 11 AS string) AS b")
    return rows.localCheckpoint()


def exchanges(frame: DataFrame) -> int:
    """How often a plan shuffles."""
    shown: str = frame._jdf.queryExecution().executedPlan().toString()
    return shown.count("Exchange ")


def by_partition(frame: DataFrame) -> list[Counter[tuple[Any, ...]]]:
    """The rows of each partition; a list in a row as what is in it."""
    parts = frame.rdd.map(lambda row: tuple(tuple(sorted(v)) if isinstance(v, list) else v for v in row)).glom()
    return [Counter(part) for part in parts.collect()]


def summed(rows: DataFrame) -> DataFrame:
    """Sums by two columns, partitioned by one of them."""
    return rows.groupBy("a", "b").agg(F.sum("id").alias("sum")).repartition(PARTITIONS, "a")


def renamed(rows: DataFrame) -> DataFrame:
    """By a hash of a column that has another name by then."""
    grouped = rows.groupBy((F.col("a") * 2).alias("key"), "b").agg(F.max("id").alias("most"))
    return grouped.select("b", "key", "most", F.xxhash64("key").alias("hash")).repartition(PARTITIONS, "hash")


def listed(rows: DataFrame) -> DataFrame:
    """With accumulators that are objects."""
    return rows.groupBy("a", "b").agg(F.collect_list("id").alias("all")).repartition(PARTITIONS, "b", "a")


def latest(rows: DataFrame) -> DataFrame:
    """With accumulators that Spark sorts for."""
    return rows.groupBy("a").agg(F.max_by("b", "id").alias("last")).repartition(PARTITIONS, "a")


def in_one(rows: DataFrame) -> DataFrame:
    """All in one partition."""
    return rows.groupBy("a").agg(F.count("*").alias("n")).repartition(1, "a")


@pytest.mark.parametrize("build", [summed, renamed, listed, latest, in_one])
def test_groups_are_shuffled_once_into_the_partitions_that_they_would_be_in(numbers: DataFrame, build: Build) -> None:
    got = KeptPlans()(build.__name__, inputs=[[Rows(numbers)]], build=build)
    assert by_partition(got) == by_partition(build(numbers))
    assert exchanges(got) == 1
    assert exchanges(build(numbers)) == 2


@pytest.mark.parametrize("build", [renamed, summed])
def test_their_readers_know_their_partitions(numbers: DataFrame, build: Build) -> None:
    got = KeptPlans()(build.__name__, inputs=[[Rows(numbers)]], build=build).localCheckpoint()
    column = "hash" if build is renamed else "a"
    assert exchanges(got.groupBy(column).count()) == 0


def test_what_the_groups_do_not_tell_is_shuffled_by_afterwards(numbers: DataFrame) -> None:
    def build(rows: DataFrame) -> DataFrame:
        return rows.groupBy("a", "b").agg(F.sum("id").alias("sum")).repartition(PARTITIONS, "sum")

    got = KeptPlans()("sums", inputs=[[Rows(numbers)]], build=build)
    assert by_partition(got) == by_partition(build(numbers))
    assert exchanges(got) == 2


def test_each_partition_by_itself_adds_up_to_the_whole(numbers: DataFrame) -> None:
    def build(rows: DataFrame) -> DataFrame:
        return rows.groupBy("a").agg(F.count("*").alias("n"))

    got = KeptPlans()("counts", inputs=[[Rows(numbers)]], build=build, by_partition=True)
    assert exchanges(got) == 0
    added: Counter[int] = Counter()
    for value, count in got.collect():
        added[value] += count
    assert added == dict(map(tuple, build(numbers).collect()))


def test_tables_by_other_keys_differ_however_little_of_a_plan_is_shown(numbers: DataFrame) -> None:
    numbers.sparkSession.conf.set("spark.sql.debug.maxToStringFields", 1)
    partitioned = [("a", "b"), ("a", "id"), ("a", "b"), ("b", "a")]
    tables = [table_of(numbers.repartition(PARTITIONS, *keys).localCheckpoint()) for keys in partitioned]
    tables.append(table_of(numbers.repartition(PARTITIONS + 1, "a", "b").localCheckpoint()))
    kinds = [each.kind for each in tables if each is not None]
    assert all(kind.is_partitioned for kind in kinds)
    assert [kinds.index(kind) for kind in kinds] == [0, 1, 0, 3, 4]
