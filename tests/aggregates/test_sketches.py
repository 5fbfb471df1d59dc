"""The accuracy of sketches, and what their size depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import Inputs
from sparkjet.testing.laws import check_aggregate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.aggregates.operation import Aggregate

ROWS = 100_000


def merged(aggregate: Aggregate, rows: DataFrame) -> tuple[float, int]:
    """The result over 50 combined frames, and the bytes of its sketch."""
    operation = aggregate.resolve(Inputs(rows, F.lit(0)))
    assert operation.combine_group is not None
    fields = {field: F.col(field) for field in operation.create}
    frames = rows.groupBy(F.col("id") % 50).agg(*(c.alias(f) for f, c in operation.accumulate.items()))
    joined = frames.agg(*(column.alias(field) for field, column in operation.combine_group(fields).items()))
    return tuple(joined.select(operation.finish(fields), F.length("sketch")).collect()[0])


def test_a_percentile_of_many_values_is_near_its_rank(spark: SparkSession) -> None:
    rows = spark.range(ROWS).select("id", ((F.col("id") * 7919) % ROWS).alias("x"))
    usual, bytes_usual = merged(J.percentile_approx("x", 0.95), rows)
    rough, bytes_rough = merged(J.percentile_approx("x", 0.95, 500), rows)
    # Five times the bound for 99 %: the sketch is random.
    assert abs(usual - 0.95 * ROWS) < 5 * 0.003 * ROWS
    assert abs(rough - 0.95 * ROWS) < 5 * 0.06 * ROWS
    assert bytes_rough < bytes_usual / 5 < 10_000


def test_percentiles_of_up_to_k_values_are_exact(spark: SparkSession) -> None:
    rows = spark.range(1000).select("id", ((F.col("id") * 7919) % 1000).cast("double").alias("x"))
    assert merged(J.percentile_approx("x", 0.95), rows)[0] == 949.0
    check_aggregate(J.percentile_approx("x", [0.01, 0.5, 0.95]), rows)


def test_a_distinct_count_is_near_the_exact_one(spark: SparkSession) -> None:
    rows = spark.range(ROWS).select("id", (F.col("id") % 40_000).alias("x"))
    usual, bytes_usual = merged(J.approx_count_distinct("x"), rows)
    rough, bytes_rough = merged(J.approx_count_distinct(F.col("x").cast("string"), rsd=0.05), rows)
    assert abs(usual - 40_000) < 4 * 0.0163 * 40_000
    assert abs(rough - 40_000) < 4 * 0.05 * 40_000
    assert (bytes_usual, bytes_rough) == (4096 + 40, 512 + 40)


def test_sketches_hold_the_laws_within_their_error(spark: SparkSession) -> None:
    rows = spark.range(30_000).select(((F.col("id") * 7919) % 30_000).alias("x"))
    check_aggregate([J.approx_count_distinct("x", 0.05), J.percentile_approx("x", 0.5, 1000)], rows, tolerance=0.5)
    with pytest.raises(AssertionError, match="percentile_approx"):
        check_aggregate(J.percentile_approx("x", 0.5, 100), rows)
