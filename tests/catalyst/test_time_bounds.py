"""Bounds that are read from comparisons of event times: none is narrower than the comparison itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from sparkjet.catalyst.join_conditions import join_condition, spark_join

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR

# With the greatest and the least difference of clocks in the history of Berlin: 53 minutes 28 seconds and 3 hours.
SPREAD = 3 * HOUR - (53 * 60 + 28) * SECOND

CASES: dict[str, tuple[int | None, int | None, bool]] = {
    "r >= l": (0, None, True),
    "r > l": (1, None, True),
    "l >= r": (None, 0, True),
    "l > r": (None, -1, True),
    "r = l + interval 3 seconds": (3 * SECOND, 3 * SECOND, True),
    "r <= l + interval 1 hour": (None, HOUR, True),
    "r < l + interval '1:30' minute to second": (None, 90 * SECOND - 1, True),
    "l + interval 1 hour >= r": (None, HOUR, True),
    "l < r - interval 10 minutes": (600 * SECOND + 1, None, True),
    "r + interval 1 second - interval 3 seconds < l": (None, 2 * SECOND - 1, True),
    "r between l and l + make_dt_interval(0, 1)": (0, HOUR, True),
    "r < l + make_interval(0, 0, 0, 0, 1)": (None, HOUR - 1, True),
    "cast(r as timestamp) > l": (1, None, True),
    "unix_micros(r) > unix_micros(l) + 5": (6, None, True),
    # The days of the calendar, where clocks change.
    "r <= l + interval 1 day": (None, DAY + SPREAD, False),
    "r > l + interval 1 day": (DAY - SPREAD + 1, None, False),
    "r < l + make_interval(0, 0, 0, 1, -24)": (None, SPREAD - 1, False),
    "r > l - interval 1 month": (-31 * DAY - SPREAD + 1, None, False),
    "r <= l + make_interval(0, 2)": (None, 62 * DAY + SPREAD, False),
    "r - l <= interval '5 minutes'": (None, 300 * SECOND + SPREAD, False),
    # Fractions of seconds are cut off.
    "unix_timestamp(r) - unix_timestamp(l) <= 3600": (None, HOUR + SECOND - 1, False),
    "cast(r as long) >= cast(l as long)": (-SECOND + 1, None, False),
    "unix_millis(r) = unix_millis(l)": (-999, 999, False),
    "cast(r as double) < cast(l as double) + 0.5": (None, SECOND // 2 + 1, False),
    # What says nothing, or nothing that is understood.
    "r > timestamp '2026-01-01'": (None, None, True),
    "r < date_add(l, 1)": (None, None, True),
    "not (r < l)": (None, None, True),
    "r >= l or r < l": (None, None, True),
    "r + (r - l) > l": (None, None, True),
    "r <= l + cast(null as interval hour)": (None, None, True),
}


@pytest.fixture(scope="module")
def berlin(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    return session


@pytest.fixture(scope="module")
def sides(berlin: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Times around the changes of clocks, at all distances that the cases know."""
    starts = [f"timestamp '{day} 01:59:59.5 UTC'" for day in ("2025-03-29", "2025-10-25", "2026-01-31")]
    steps = [0, 1, 999, 500_000, 3 * SECOND, 90 * SECOND, 300 * SECOND, 600 * SECOND, HOUR]
    steps += [23 * HOUR, DAY, 25 * HOUR, 28 * DAY, 31 * DAY, 62 * DAY]
    around = sorted({sign * step + off for step in steps for sign in (1, -1) for off in (-SECOND, -1, 0, 1, SECOND)})
    left = berlin.sql(f"SELECT explode(array({', '.join(starts)})) AS l")
    right = left.crossJoin(berlin.createDataFrame([(each,) for each in around], "step long"))
    return left, right.select(F.timestamp_micros(F.unix_micros("l") + F.col("step")).alias("r"))


def test_the_bounds_of_comparisons(sides: tuple[DataFrame, DataFrame]) -> None:
    for text, expected in CASES.items():
        bounds = join_condition(spark_join(sides, F.expr(text), "inner"), ([[0]], [[0]])).bounds
        assert (bounds.lower, bounds.upper, bounds.exact) == expected, text


def test_no_bound_is_narrower_than_its_comparison_and_exact_ones_are_equal(
    sides: tuple[DataFrame, DataFrame],
) -> None:
    left, right = sides
    checked: list[Column] = []
    for number, (text, (lower, upper, exact)) in enumerate(CASES.items()):
        apart = F.unix_micros("r") - F.unix_micros("l")
        within = (apart >= lower if lower is not None else F.lit(True)) & (
            apart <= upper if upper is not None else F.lit(True)
        )
        wrong = F.expr(text) & ~within
        if exact and (lower, upper) != (None, None):
            wrong = wrong | (within & ~F.expr(text))
        checked.append(F.count_if(wrong).alias(f"wrong{number}"))
        checked.append(F.count_if(F.expr(text)).alias(f"true{number}"))
    found = left.crossJoin(right).agg(*checked).collect()[0]
    for number, text in enumerate(CASES):
        assert found[f"wrong{number}"] == 0, text
    # The last one is never true; all others are at some of these times.
    assert all(found[f"true{number}"] for number in range(len(CASES) - 1))
