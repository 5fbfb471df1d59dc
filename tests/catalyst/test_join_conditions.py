"""Join conditions taken apart: keys, the event times that are bounded, the rest, and the columns of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from sparkjet.catalyst.expressions import label
from sparkjet.catalyst.join_conditions import JoinCondition, join_condition, spark_join
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def sides(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    left = spark.createDataFrame([], "k long, ts timestamp, x string, later timestamp")
    right = spark.createDataFrame([], "k int, ts timestamp, y string")
    return left.alias("a"), right.alias("b")


def taken_apart(sides: tuple[DataFrame, DataFrame], on: Any, how: str = "inner") -> JoinCondition:
    """The left stream has two event times, as after a join."""
    return join_condition(spark_join(sides, F.expr(on) if isinstance(on, str) else on, how), ([[1], [3]], [[1]]))


def test_keys_are_equal_expressions_of_both_sides(sides: tuple[DataFrame, DataFrame]) -> None:
    found = taken_apart(sides, "b.k = a.k AND upper(a.x) <=> b.y AND a.ts = b.ts AND a.x = 'x' AND a.k = a.k + b.k")
    keys = [(label(key.left), label(key.right), key.null_safe, key.type) for key in found.keys]
    assert keys == [
        ("left0", "CAST(right0 AS BIGINT)", False, "bigint"),
        ("upper(left2)", "right2", True, "string"),
        ("left1", "right1", False, "timestamp"),
    ]
    assert (found.bounds.lower, found.bounds.upper) == (0, 0)
    # What the bounds say is not compared once more, and no equality is left that Spark would shuffle by.
    rest = label(found.rest)
    assert "left1" not in rest
    assert "CAST(right0 AS BIGINT)" in rest
    assert "(left0 = " not in rest.replace("(left0 = (left0", "")


def test_the_event_time_that_the_condition_bounds_is_chosen(sides: tuple[DataFrame, DataFrame]) -> None:
    bounded = "a.k = b.k AND b.ts BETWEEN a.later AND a.later + INTERVAL 1 SECOND"
    assert taken_apart(sides, bounded).times == (1, 0)
    assert taken_apart(sides, f"{bounded} AND b.ts > a.ts").times == (1, 0)
    assert taken_apart(sides, "a.k = b.k AND a.ts = b.ts").times == (0, 0)


def test_the_columns_of_a_join_by_names_are_those_of_spark(sides: tuple[DataFrame, DataFrame]) -> None:
    full = taken_apart(sides, ["k", "ts"], "full").columns
    assert [(each.name, label(each.column), sorted(each.times)) for each in full] == [
        ("k", "coalesce(left0, CAST(right0 AS BIGINT))", []),
        ("ts", "coalesce(left1, right1)", ["left", "right"]),
        ("x", "left2", []),
        ("later", "left3", []),
        ("y", "right2", []),
    ]
    right = taken_apart(sides, ["k", "ts"], "right").columns
    assert [(each.name, label(each.column), sorted(each.times)) for each in right][:2] == [
        ("k", "right0", []),
        ("ts", "right1", ["right"]),
    ]
    assert [each.name for each in taken_apart(sides, ["k", "ts"], "left_anti").columns] == ["k", "ts", "x", "later"]


def test_both_sides_may_be_the_same_rows(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], "k long, ts timestamp")
    joined = spark_join((rows.alias("a"), rows.alias("b")), F.expr("a.k = b.k AND a.ts < b.ts"), "inner")
    found = join_condition(joined, ([[1]], [[1]]))
    assert [(label(key.left), label(key.right)) for key in found.keys] == [("left0", "right0")]
    assert (found.bounds.lower, found.bounds.upper) == (1, None)


def test_what_spark_refuses_is_refused_with_its_reason(sides: tuple[DataFrame, DataFrame]) -> None:
    with pytest.raises(AnalysisError, match="INVALID_NON_DETERMINISTIC_EXPRESSIONS"):
        taken_apart(sides, "a.k = b.k AND rand() > 0.5")
    with pytest.raises(AnalysisError, match="UNRESOLVED_USING_COLUMN_FOR_JOIN"):
        taken_apart(sides, ["nothing"])
