"""Partitions that are lost are found, and replaced without anything else being computed or moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F

from sparkjet.state.partitions import LOST, lost_partitions, partition_count, patched, release
from tests.persisted import lose_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 5


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    return session


def rows(session: SparkSession, scale: int) -> DataFrame:
    """Keys with a value each, partitioned by the keys."""
    return session.range(100).select("id", (F.col("id") * scale).alias("value")).repartition(PARTITIONS, "id")


def held(session: SparkSession) -> DataFrame:
    return rows(session, 1).localCheckpoint()


def numbered(rows: DataFrame) -> DataFrame:
    return rows.withColumn("p", F.spark_partition_id())


def test_what_is_held_is_not_lost(session: SparkSession) -> None:
    found = held(session)
    assert partition_count(found) == PARTITIONS
    assert lost_partitions(found) == set()
    lose_partitions(session, found, [1, 3])
    assert lost_partitions(found) == {1, 3}
    release(found)
    assert lost_partitions(found) == set(range(PARTITIONS))


def test_lost_partitions_are_replaced_by_those_of_others(session: SparkSession) -> None:
    before = held(session)
    expected = {row.id: row.p for row in numbered(before).collect()}
    lose_partitions(session, before, [1, 3])
    with pytest.raises(Py4JJavaError, match=LOST):
        before.count()
    after = patched(before, rows(session, -1), frozenset({1, 3}))
    found = numbered(after).collect()
    assert {row.id: row.p for row in found} == expected
    assert all(row.value == (-row.id if row.p in {1, 3} else row.id) for row in found)
    assert {row.p for row in found} == set(range(PARTITIONS))


def test_what_is_replaced_is_partitioned_as_before(session: SparkSession) -> None:
    before = held(session)
    lose_partitions(session, before, [0])
    after = patched(before, rows(session, 1), frozenset({0}))
    grouped = after.groupBy("id").agg(F.sum("value"))
    assert "Exchange" not in grouped._jdf.queryExecution().executedPlan().toString()
    assert grouped.count() == 100


def test_nothing_else_of_the_others_is_computed(session: SparkSession) -> None:
    before = held(session)
    lose_partitions(session, before, [2])
    lazily = rows(session, 1).localCheckpoint(eager=False)
    assert patched(before, lazily, frozenset({2})).count() == 100
    assert lost_partitions(lazily) == {0, 1, 3, 4}
