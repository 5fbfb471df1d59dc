"""Physical plans as DataFrames: their rows, read like any table, and empty tables that stand for them."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkjet.catalyst.physical_plans import PLANNED, as_frame, no_rows, planned

pytestmark = pytest.mark.spark


def again(frame: DataFrame) -> DataFrame:
    """The same rows, by the physical plan of a DataFrame."""
    plan = frame._jdf.queryExecution().sparkPlan()
    return planned(frame.sparkSession, plan, plan.output())


def numbers(frame: DataFrame) -> list[int]:
    """The first column in ascending order."""
    return sorted(row[0] for row in frame.collect())


def test_a_physical_plan_has_its_rows_columns_and_types(session: SparkSession) -> None:
    frame = session.range(5).selectExpr("id * 2 AS twice", "CAST(id AS string) AS text")
    got = again(frame)
    assert got.schema == frame.schema
    assert sorted(map(tuple, got.collect())) == sorted(map(tuple, frame.collect()))


def test_what_reads_it_is_planned_with_it(session: SparkSession) -> None:
    got = again(session.range(10).where("id > 3")).where("id < 7")
    assert numbers(got) == [4, 5, 6]
    shown = got._jdf.queryExecution().executedPlan().toString()
    assert "RDD" not in shown
    assert shown.count("Filter") == 2


def test_a_shuffle_in_it_is_planned_when_it_is_run(session: SparkSession) -> None:
    got = again(session.range(10).selectExpr("id % 3 AS k").groupBy("k").count())
    assert sorted(map(tuple, got.collect())) == [(0, 4), (1, 3), (2, 3)]


def test_two_plans_are_not_taken_for_one(session: SparkSession) -> None:
    few, many = again(session.range(2)), again(session.range(5))
    cached = few.persist()
    try:
        assert numbers(cached) == [0, 1]
        assert numbers(many) == [0, 1, 2, 3, 4]
    finally:
        cached.unpersist()


def test_an_empty_table_has_columns_and_no_rows(session: SparkSession) -> None:
    logical = session.range(3)._jdf.queryExecution().analyzed()
    got = as_frame(session, no_rows(session, logical.output()))
    assert got.columns == ["id"]
    assert got.collect() == []
    assert PLANNED not in got._jdf.queryExecution().analyzed().toString()
