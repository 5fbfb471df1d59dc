"""Both engines on Spark can plan the query of every work: a name that is gone would end the benchmark an hour in."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from benchmarks.peers.micro_batches import results
from benchmarks.peers.spark import DIALECT
from benchmarks.peers.sparkjet import dialect
from benchmarks.work import WORKS, Work


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.id)
def test_every_work_is_a_query_of_sparkjet_and_of_spark(spark: SparkSession, work: Work) -> None:
    columns = ["window", "key", *work.aggregates]
    assert results(spark, work, dialect(work)).columns == columns
    assert results(spark, work, DIALECT).columns == columns
