"""Variances and trends of values far from zero, for which sums of squares lose all precision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import Inputs
from tests.in_plan import in_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.aggregates.operation import Accumulator, Aggregate


ROWS = "g string, p int, x double, y double"


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        *((J.var_samp("x"), 30.0), (J.stddev_pop("x"), math.sqrt(22.5)), (J.linear_trend("x", "y"), -2.0)),
        *((J.kurtosis("x"), -1.64), (J.corr("x", "y"), -1.0), (J.covar_pop("x", "y"), -45.0)),
    ],
    ids=["var_samp", "stddev_pop", "linear_trend", "kurtosis", "corr", "covar_pop"],
)
@pytest.mark.parametrize("offset", [pytest.param(1e9, marks=pytest.mark.long), -1e12])
def test_parts_far_from_zero_are_merged_exactly(
    spark: SparkSession, aggregate: Aggregate, expected: float, offset: float
) -> None:
    rows = in_plan(spark, [(offset + x, 3 * offset - 2 * x) for x in (4, 7, 13, 16)], "x double, y double")
    operation = aggregate.resolve(Inputs(rows, F.lit(0)))
    singles = rows.groupBy("x").agg(*(c.alias(field) for field, c in operation.accumulate.items()))
    one = F.struct(*(column.alias(field) for field, column in operation.create.items()))

    def step(done: F.Column, item: F.Column) -> F.Column:
        left, right = ({field: side[field] for field in operation.create} for side in (done, item))
        combined: Accumulator = operation.combine(left, right)
        return F.struct(*(combined[field].alias(field) for field in operation.create))

    folded = F.aggregate(F.collect_list(F.struct(*operation.create)), one, step)
    result = singles.agg(folded.alias("acc")).select(operation.finish({f: F.col("acc")[f] for f in operation.create}))
    assert result.collect()[0][0] == pytest.approx(expected, rel=1e-12 * abs(offset) ** 0.5)
    assert aggregate.evaluate(rows) == pytest.approx(expected, rel=1e-12)


def test_a_constant_has_no_slope_whatever_its_mean_is_rounded_to(spark: SparkSession) -> None:
    # The sum of three, divided by three, is not 0.1.
    rows = in_plan(spark, [("g", p, 0.1, y) for p, y in enumerate([1.0, 2.0, 4.0, 8.0, 9.0])], ROWS)
    parts = rows.groupBy(F.col("p") < 3)
    for aggregate in (J.linear_trend("x", "y"), J.skewness("x"), J.kurtosis("x"), J.corr("x", "y"), J.stddev("x")):
        operation = aggregate.resolve(Inputs(rows, F.lit(0)))
        partials = parts.agg(*(c.alias(field) for field, c in operation.accumulate.items()))
        both = partials.agg(F.collect_list(F.struct(*operation.create)).alias("parts"))
        left, right = ({field: F.col("parts")[i][field] for field in operation.create} for i in (0, 1))
        result = both.select(operation.finish(operation.combine(left, right))).collect()[0][0]
        assert result == (0.0 if aggregate.output_name == "stddev(x)" else None), aggregate.output_name
