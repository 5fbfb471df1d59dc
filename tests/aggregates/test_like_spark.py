"""Every aggregate against Spark's own function, or plain Python where Spark's depends on arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from sparkjet import functions as J
from sparkjet.aggregate import Aggregate, Inputs
from sparkjet.testing.laws import check_aggregate
from tests.aggregates import samples
from tests.aggregates.samples import NUMBERS, ORDERABLE, order, percentile, same

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

RESULTS = dict[str, dict[str, Any]]
PERCENTAGES = [0.0, 0.1, 0.5, 0.95, 1.0]
MOMENTS = ["var_pop", "var_samp", "variance", "stddev_pop", "stddev_samp", "stddev"]

EXACT: list[tuple[Aggregate, Callable[[], Column]]] = [
    (J.count(), lambda: F.count("*")),
    *((getattr(J, f)(c), lambda f=f, c=c: getattr(F, f)(c)) for f in ("sum", "avg") for c in NUMBERS),
    *((getattr(J, f)(c), lambda f=f, c=c: getattr(F, f)(c)) for f in ("min", "max", "count") for c in ORDERABLE),
    *((getattr(J, f)(c), lambda f=f, c=c: getattr(F, f)(c)) for f in MOMENTS for c in ("d", "i", "dec")),
    (J.linear_trend("i", "d"), lambda: F.regr_slope("d", "i")),
    (J.linear_trend("d", "l"), lambda: F.regr_slope("l", "d")),
    (J.linear_trend("ts", "dec"), lambda: F.regr_slope("dec", F.col("ts").cast("double"))),
    *((J.approx_count_distinct(c), lambda c=c: F.count_distinct(c)) for c in ORDERABLE),
    *((J.collect_set(c), lambda c=c: F.sort_array(F.collect_set(c))) for c in ORDERABLE),
]


def by_time(values: str, *, last: bool = False, ignorenulls: bool = False) -> Callable[[str], Any]:
    def expected(group: str) -> Any:
        rows = list(zip(samples.column(group, "t"), samples.column(group, values), strict=True))
        rows = [row for row in rows if not (ignorenulls and row[1] is None)]
        return (max if last else min)(rows, key=order)[1] if rows else None

    return expected


def by_order(values: str, by: str, *, greatest: bool = False) -> Callable[[str], Any]:
    def expected(group: str) -> Any:
        rows = zip(*(samples.column(group, name) for name in (by, "t", values)), strict=True)
        rows = [row for row in rows if row[0] is not None]
        if greatest:
            return max(rows, key=lambda r: (order(r[0]), -r[1], order(r[2])))[2] if rows else None
        return min(rows, key=order)[2] if rows else None

    return expected


def ranked(values: str, n: int, *, greatest: bool) -> Callable[[str], Any]:
    return lambda group: sorted(filter(None.__ne__, samples.column(group, values)), key=order, reverse=greatest)[:n]


def listed(values: str) -> Callable[[str], Any]:
    def expected(group: str) -> Any:
        rows = zip(samples.column(group, "t"), samples.column(group, values), strict=True)
        return [value for _, value in sorted((row for row in rows if row[1] is not None), key=order)]

    return expected


def percentiles(values: str) -> Callable[[str], Any]:
    def expected(group: str) -> Any:
        found = [percentile(samples.column(group, values), p) for p in PERCENTAGES]
        return None if found[0] is None else found

    return expected


ORDERED: list[tuple[Aggregate, Callable[[str], Any]]] = [
    *((J.first(c), by_time(c)) for c in ORDERABLE),
    *((J.last(c), by_time(c, last=True)) for c in ORDERABLE),
    *((J.first(c, ignorenulls=True).alias(f"first!({c})"), by_time(c, ignorenulls=True)) for c in ("d", "s")),
    *((J.last(c, True).alias(f"last!({c})"), by_time(c, last=True, ignorenulls=True)) for c in ("d", "s")),
    *((J.min_by(c, by), by_order(c, by)) for c, by in (("s", "d"), ("d", "s"), ("l", "st"))),
    *((J.max_by(c, by), by_order(c, by, greatest=True)) for c, by in (("s", "d"), ("d", "s"), ("l", "st"))),
    *((J.collect_list(c), listed(c)) for c in ("d", "s", "ts", "st")),
    *((J.top_n(c, 3), ranked(c, 3, greatest=True)) for c in ("d", "s", "wide", "st")),
    *((J.bottom_n(c, 2), ranked(c, 2, greatest=False)) for c in ("d", "s", "wide", "st")),
    *((J.percentile_approx(c, PERCENTAGES), percentiles(c)) for c in (*NUMBERS[:-3], "dt", "ts")),
    (J.percentile_approx("d", 0.5), lambda group: percentile(samples.column(group, "d"), 0.5)),
]
EVERYTHING = [aggregate for aggregate, _ in (*EXACT, *ORDERED)]


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return samples.frame_of(spark)


@pytest.fixture(scope="module")
def ours(frame: DataFrame) -> RESULTS:
    inputs = Inputs(frame, F.col("t"))
    operations = [(aggregate.name, aggregate.resolve(inputs)) for aggregate in EVERYTHING]
    accumulators = frame.groupBy("g").agg(
        *(c.alias(f"{i}_{field}") for i, (_, op) in enumerate(operations) for field, c in op.accumulate.items())
    )
    return collected(
        accumulators.select(
            "g",
            *(
                op.finish({field: F.col(f"{i}_{field}") for field in op.create}).alias(name)
                for i, (name, op) in enumerate(operations)
            ),
        )
    )


@pytest.fixture(scope="module")
def sparks(frame: DataFrame) -> RESULTS:
    return collected(frame.groupBy("g").agg(*(column().alias(aggregate.name) for aggregate, column in EXACT)))


def collected(results: DataFrame) -> RESULTS:
    return {row["g"]: row.asDict() for row in results.collect()}


def test_results_are_sparks(ours: RESULTS, sparks: RESULTS) -> None:
    wrong = [
        f"{aggregate.name} of {group}: {ours[group][aggregate.name]!r}, Spark's {results[aggregate.name]!r}"
        for group, results in sparks.items()
        for aggregate, _ in EXACT
        if not same(ours[group][aggregate.name], results[aggregate.name])
    ]
    assert not wrong, "\n".join(wrong)


def test_results_of_order_are_those_of_event_time(ours: RESULTS) -> None:
    wrong = [
        f"{aggregate.name} of {group}: {results[aggregate.name]!r}, expected {expected(group)!r}"
        for group, results in ours.items()
        for aggregate, expected in ORDERED
        if not same(results[aggregate.name], expected(group))
    ]
    assert not wrong, "\n".join(wrong)


def test_types_are_sparks(frame: DataFrame) -> None:
    inputs = Inputs(frame, F.col("t"))
    operations = [(aggregate.name, aggregate.resolve(inputs)) for aggregate, _ in EXACT]
    finished = [
        frame.agg(*(c.alias(field) for field, c in op.accumulate.items()))
        .select(op.finish({field: F.col(field) for field in op.create}))
        .schema[0]
        .dataType.simpleString()
        for _, op in operations
    ]
    assert finished == [
        field.dataType.simpleString() for field in frame.agg(*(column() for _, column in EXACT)).schema.fields
    ]


@pytest.mark.parametrize("half", [0, 1])
def test_laws_hold(frame: DataFrame, half: int) -> None:
    # The sum of 2^62 is in range for a group, but not for every part of it that the laws look at.
    subjects = [aggregate for aggregate in EVERYTHING if aggregate.name != "sum(l)"]
    check_aggregate(subjects[half::2], frame, "t", by=["g"])


def test_names_are_sparks(frame: DataFrame) -> None:
    pairs: list[tuple[Aggregate, Column]] = [
        (J.count(), F.count("*")),
        (J.count(F.lit(1)), F.count(F.lit(1))),
        (J.mean("d"), F.mean("d")),
        (J.first("d", ignorenulls=True), F.first("d", ignorenulls=True)),
        (J.min_by("d", "t"), F.min_by("d", "t")),
        (J.sum(F.col("i").cast("bigint")), F.sum(F.col("i").cast("bigint"))),
        (J.approx_count_distinct("d", 0.01), F.approx_count_distinct("d", 0.01)),
        (J.percentile_approx("d", 0.99), F.percentile_approx("d", 0.99)),
        (J.percentile_approx("d", [0.5, 0.9], 100), F.percentile_approx("d", [0.5, 0.9], 100)),
        *((getattr(J, f)("d"), getattr(F, f)("d")) for f in (*MOMENTS, "sum", "avg", "min", "max", "collect_list")),
    ]
    assert [aggregate.name for aggregate, _ in pairs] == frame.agg(*(column for _, column in pairs)).columns
