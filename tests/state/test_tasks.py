"""Few rows are read by few tasks, however many partitions hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkjet.state.tasks import FEW, tasks_of_few

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("rows", "tasks"), [(0, 2), (1, 2), (2 * FEW, 2), (2 * FEW + 1, 4), (5 * FEW, 8)])
def test_few_rows_are_read_by_two_tasks_or_one_for_each_ten_thousand(
    spark: SparkSession, rows: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkjet.state.tasks.cores", lambda _: 16)
    assert tasks_of_few(spark, 128, rows) == tasks


def test_tasks_are_powers_of_two(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkjet.state.tasks.cores", lambda _: 16)
    found = [tasks_of_few(spark, 128, tens * FEW) for tens in (1, 2, 3, 4, 5, 9, 16, 17)]
    assert found == [2, 2, 4, 4, 8, 16, 16, None]


def test_many_rows_and_unknown_ones_are_read_by_a_task_for_each_partition(spark: SparkSession) -> None:
    assert tasks_of_few(spark, 128, FEW * spark.sparkContext.defaultParallelism * 2) is None
    assert tasks_of_few(spark, 128, None) is None


def test_as_many_tasks_as_partitions_are_one_each(spark: SparkSession) -> None:
    assert tasks_of_few(spark, 1, 1) is None
    assert tasks_of_few(spark, 2, 1) is None
    assert tasks_of_few(spark, 3, 1) == 2
