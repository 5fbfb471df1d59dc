"""Every aggregate against Spark's own function, or plain Python if Spark's depends on arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import Aggregate, Inputs
from sparkjet.testing.laws import check_aggregate
from tests.aggregates import samples
from tests.aggregates.samples import NUMBERS, order, percentile, same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

RESULTS = dict[str, dict[str, Any]]
PERCENTAGES = [0.0, 0.1, 0.5, 0.95, 1.0]
MOMENTS = ["var_pop", "var_samp", "variance", "stddev_pop", "stddev_samp", "stddev"]


def like_spark(functions: Iterable[str], columns: Iterable[str]) -> list[tuple[Aggregate, Callable[[], Column]]]:
    return [(getattr(J, f)(c), lambda f=f, c=c: getattr(F, f)(c)) for f in functions for c in columns]


def distinct(column: str) -> Callable[[], Column]:
    return lambda: F.size(F.collect_set(column)).cast("bigint")


EXACT: list[tuple[Aggregate, Callable[[], Column]]] = [
    (J.count(), lambda: F.count("*")),
    *like_spark(("sum",), NUMBERS),
    *like_spark(("avg",), [name for name in NUMBERS if name != "l"]),
    # Spark's avg of bigint adds doubles; sparkjet's is exact.
    (J.avg("l"), lambda: F.avg(F.col("l").cast("decimal(20,0)")).cast("double")),
    *like_spark(("min", "max"), ("d", "f", "wide", "s", "b", "bin", "ts", "a", "st")),
    *like_spark(("count",), ("d", "st")),
    *like_spark(MOMENTS, ("d",)),
    *like_spark(("stddev",), ("i", "dec")),
    (J.linear_trend("i", "d"), lambda: F.regr_slope("d", "i")),
    (J.linear_trend("d", "l"), lambda: F.regr_slope("l", "d")),
    (J.linear_trend("ts", "dec"), lambda: F.regr_slope("dec", F.col("ts").cast("double"))),
    *((J.approx_count_distinct(c), distinct(c)) for c in ("d", "l", "s", "bin", "st")),
    *((J.collect_set(c), lambda c=c: F.sort_array(F.collect_set(c))) for c in ("d", "f", "s", "st")),
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
    def expected(group: str) -> Any:
        present = [value for value in samples.column(group, values) if value is not None]
        return sorted(present, key=order, reverse=greatest)[:n]

    return expected


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
    *((J.first(c), by_time(c)) for c in ("d", "s", "st")),
    *((J.last(c), by_time(c, last=True)) for c in ("d", "s", "st")),
    *((J.first(c, ignorenulls=True).alias(f"first!({c})"), by_time(c, ignorenulls=True)) for c in ("d", "s")),
    *((J.last(c, True).alias(f"last!({c})"), by_time(c, last=True, ignorenulls=True)) for c in ("d", "s")),
    *((J.min_by(c, by), by_order(c, by)) for c, by in (("s", "d"), ("d", "s"), ("l", "st"))),
    *((J.max_by(c, by), by_order(c, by, greatest=True)) for c, by in (("s", "d"), ("d", "s"), ("l", "st"))),
    *((J.collect_list(c), listed(c)) for c in ("d", "s", "ts", "st")),
    *((J.top_n(c, 3), ranked(c, 3, greatest=True)) for c in ("d", "st")),
    *((J.bottom_n(c, 2), ranked(c, 2, greatest=False)) for c in ("d", "st")),
    *((J.percentile_approx(c, PERCENTAGES), percentiles(c)) for c in ("d", "f", "l", "by", "dec", "dt", "ts")),
    (J.percentile_approx("d", 0.5), lambda group: percentile(samples.column(group, "d"), 0.5)),
]
EVERYTHING = [aggregate for aggregate, _ in (*EXACT, *ORDERED)]
# One of each function and each kind of accumulator.
LAWFUL = [
    *(J.count(), J.count("d"), J.sum("i"), J.sum("l"), J.sum("d"), J.sum("d27"), J.sum("d28"), J.sum("wide")),
    *(J.avg("l"), J.avg("d"), J.avg("dec"), J.min("d"), J.max("st"), J.first("d"), J.last("s", ignorenulls=True)),
    *(J.min_by("s", "d"), J.max_by("l", "st"), J.collect_list("st"), J.collect_set("d"), J.top_n("d", 3)),
    *(J.bottom_n("st", 2), J.var_pop("d"), J.var_samp("d"), J.stddev("dec"), J.linear_trend("i", "d")),
    *(J.approx_count_distinct("s"), J.percentile_approx("d", 0.5), J.percentile_approx("ts", [0.1, 0.9])),
]


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return samples.frame_of(spark)


@pytest.fixture(scope="module")
def ours(frame: DataFrame) -> RESULTS:
    inputs = Inputs(frame, F.col("t"))
    operations = [(aggregate.output_name, aggregate.resolve(inputs)) for aggregate in EVERYTHING]
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
    return collected(frame.groupBy("g").agg(*(column().alias(aggregate.output_name) for aggregate, column in EXACT)))


def collected(results: DataFrame) -> RESULTS:
    return {row["g"]: row.asDict() for row in results.collect()}


def test_results_are_sparks(ours: RESULTS, sparks: RESULTS) -> None:
    names = [aggregate.output_name for aggregate, _ in EXACT]
    wrong = [
        f"{name} of {group}: {ours[group][name]!r}, Spark's {results[name]!r}"
        for group, results in sparks.items()
        for name in names
        if not same(ours[group][name], results[name])
    ]
    assert not wrong, "\n".join(wrong)


def test_results_of_order_are_those_of_event_time(ours: RESULTS) -> None:
    wrong = [
        f"{aggregate.output_name} of {group}: {results[aggregate.output_name]!r}, expected {expected(group)!r}"
        for group, results in ours.items()
        for aggregate, expected in ORDERED
        if not same(results[aggregate.output_name], expected(group))
    ]
    assert not wrong, "\n".join(wrong)


def test_types_are_sparks(frame: DataFrame) -> None:
    inputs = Inputs(frame, F.col("t"))
    operations = [(aggregate.output_name, aggregate.resolve(inputs)) for aggregate, _ in EXACT]
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


@pytest.mark.crash
def test_laws_hold(frame: DataFrame) -> None:
    check_aggregate(LAWFUL, frame, "t", by=["g"])


def test_laws_hold_where_nothing_is_nullable(spark: SparkSession) -> None:
    # An accumulator's type must not contain NOT NULL, or the empty one cannot have it.
    rows = spark.range(8).select("id", F.array("id").alias("a"), F.struct(F.col("id").alias("x")).alias("st"))
    fitting = [J.min("st"), J.first("a"), J.max_by("st", "id"), J.collect_list("a"), J.collect_set("st")]
    check_aggregate([*fitting, J.top_n("st", 2)], rows, "id")


def test_names_are_sparks(frame: DataFrame) -> None:
    pairs: list[tuple[Aggregate, Column]] = [
        (J.count(), F.count("*")),
        (J.count(F.lit(1)), F.count(F.lit(1))),
        (J.first("d", ignorenulls=True), F.first("d", ignorenulls=True)),
        (J.min_by("d", "t"), F.min_by("d", "t")),
        (J.sum(F.col("i").cast("bigint")), F.sum(F.col("i").cast("bigint"))),
        (J.approx_count_distinct("d", 0.01), F.approx_count_distinct("d", 0.01)),
        (J.percentile_approx("d", 0.99), F.percentile_approx("d", 0.99)),
        (J.percentile_approx("d", [0.5, 0.9], 100), F.percentile_approx("d", [0.5, 0.9], 100)),
        *((getattr(J, f)("d"), getattr(F, f)("d")) for f in (*MOMENTS, "sum", "avg", "min", "max", "collect_list")),
    ]
    assert [aggregate.output_name for aggregate, _ in pairs] == frame.agg(*(column for _, column in pairs)).columns
