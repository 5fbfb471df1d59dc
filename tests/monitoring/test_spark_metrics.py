"""Spark's own metrics system has a query's gauges, if Spark's setting asks for them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.monitoring.spark_metrics import SWITCH
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def switched_back(spark: SparkSession) -> Iterator[None]:
    yield
    spark.conf.unset(SWITCH)


def gauges(spark: SparkSession, query: str) -> dict[str, int]:
    """The metrics that Spark's sinks would send of a query; those that one test registers stay for the others."""
    system = _field(spark, "org.apache.spark.SparkEnv", "metricsSystem", spark.sparkContext._jsc.sc().env())
    values = _field(spark, "org.apache.spark.metrics.MetricsSystem", "registry", system).getGauges()
    prefix = f"sparkjet.{query}."
    return {name.partition(prefix)[2]: values.get(name).getValue() for name in list(values.keySet()) if prefix in name}


def _field(spark: SparkSession, owner: str, name: str, of: Any) -> Any:
    """Not by a method: py4j would load the types of all methods, and some are only where Spark's servlets are."""
    field = spark.sparkContext._jvm.java.lang.Class.forName(owner).getDeclaredField(name)
    field.setAccessible(True)
    return field.get(of)


@pytest.mark.crash
@pytest.mark.usefixtures("switched_back")
def test_gauges_follow_sparks_own_setting(spark: SparkSession, tmp_path: Path) -> None:
    feed, times = Feed(tmp_path / "in"), itertools.count()

    def run(name: str) -> dict[str, int]:
        feed.add(*rows([next(times) * 100], k="a", v=1))
        stream = sj.stream(feed.read(spark)).withWatermark("ts", "1 second")
        counted = stream.groupBy(F.window("ts", "10 seconds")).agg(F.count("*").alias("n"))
        writer = counted.writeStream.format("noop").option("checkpointLocation", tmp_path / name).queryName(name)
        writer.trigger(availableNow=True).start().awaitTermination()
        return gauges(spark, name)

    assert run("gauges_off") == {}
    spark.conf.set(SWITCH, "TRUE")
    first = run("gauges_on")
    assert len(first) == 8, first
    assert first["stateEntries"] == 1
    # The same name again: it goes on with its gauges.
    second = run("gauges_on")
    assert second.keys() == first.keys()
    assert second["epoch"] > first["epoch"]
