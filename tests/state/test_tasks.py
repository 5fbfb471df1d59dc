"""Few rows are read by as many tasks as there are cores, however many partitions hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkjet.state.tasks import FEW, tasks_of_few

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.parametrize("rows", [0, 1, FEW])
def test_few_rows_are_read_by_a_task_for_each_core(spark: SparkSession, rows: int) -> None:
    cores = spark.sparkContext.defaultParallelism
    assert tasks_of_few(spark, 128, rows) == cores


@pytest.mark.spark
def test_many_rows_and_unknown_ones_are_read_by_a_task_for_each_partition(spark: SparkSession) -> None:
    cores = spark.sparkContext.defaultParallelism
    assert tasks_of_few(spark, 128, FEW * cores + 1) is None
    assert tasks_of_few(spark, 128, None) is None


@pytest.mark.spark
def test_no_more_tasks_than_partitions(spark: SparkSession) -> None:
    assert tasks_of_few(spark, spark.sparkContext.defaultParallelism, 1) is None
