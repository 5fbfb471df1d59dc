"""Aggregates of rows that were accumulated in parts, merged as the engine merges them, against Spark's of all rows."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import Aggregate, Inputs
from sparkjet.testing.laws import check_aggregate
from sparkjet.windows.accumulators import Accumulators
from tests.aggregates import samples
from tests.aggregates.samples import order
from tests.laws import law

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

PAIR = tuple[Aggregate, "Callable[[], Column]"]
POINTS = ("corr", "covar_pop", "covar_samp")
REGRESSIONS = ("slope", "intercept", "r2", "sxx", "sxy", "syy", "avgx", "avgy", "count")
PERCENTAGES = [0.0, 0.1, 0.28, 0.5, 0.95, 1.0]


def like_spark(functions: Sequence[str], *columns: str) -> list[PAIR]:
    return [(getattr(J, f)(*columns), lambda f=f: getattr(F, f)(*columns)) for f in functions]


def regressions(y: str, x: str) -> list[PAIR]:
    return like_spark([f"regr_{name}" for name in REGRESSIONS], y, x)


def named(text: str) -> Callable[[], Column]:
    return lambda: F.expr(text)


def mode_of(column: str) -> PAIR:
    return J.mode(column), lambda: F.mode(column, True)


# Spark computes all aggregates of a query once for each set of distinct columns.
DISTINCT: list[PAIR] = [
    *(pair for c in ("d", "s", "bin", "st", "a", "dec") for pair in like_spark(("count_distinct",), c)),
    *like_spark(("count_distinct",), "d", "s"),
    *like_spark(("count_distinct",), "st", "b", "i"),
    *(pair for c in ("d", "f", "i", "l", "dec", "d28", "wide") for pair in like_spark(("sum_distinct",), c)),
]
ON_SAMPLES: list[PAIR] = [
    *like_spark(("count_if", "bool_and", "bool_or", "every", "some"), "b"),
    (J.count("d", "s"), named("count(d, s)")),
    *(pair for c in ("l", "by") for pair in like_spark(("bit_and", "bit_or", "bit_xor"), c)),
    *(pair for c in ("i", "dec", "wide") for pair in like_spark(("try_sum", "try_avg"), c)),
    *(pair for c in ("d",) for pair in like_spark(("std", "skewness", "kurtosis", "median"), c)),
    *(pair for c in ("d", "by") for pair in like_spark(("product",), c)),
    *(pair for x, y in (("d", "f"), ("dec", "l")) for pair in like_spark(POINTS, x, y)),
    *regressions("d", "i"),
    *regressions("dec", "f"),
    *(mode_of(c) for c in ("d", "dt", "bin", "st")),
    *((J.percentile(c, PERCENTAGES), lambda c=c: F.percentile(c, PERCENTAGES)) for c in ("d", "l", "wide")),
    (J.percentile("d", 0.3, "often"), lambda: F.percentile("d", 0.3, F.col("often"))),
    (J.percentile("i", [0.2, 0.9], 3), lambda: F.percentile("i", [0.2, 0.9], 3)),
    (J.percentile("i", 0.5, 0), lambda: F.percentile("i", 0.5, 0)),
    *(
        (getattr(J, f)("d", 0.28, reverse=reverse), named(f"{f}(0.28) WITHIN GROUP (ORDER BY d {way})"))
        for f in ("percentile_cont", "percentile_disc")
        for reverse, way in ((False, "ASC"), (True, "DESC"))
    ),
    (J.percentile_disc("i", [0.1, 0.9]), named("percentile_disc(array(0.1, 0.9)) WITHIN GROUP (ORDER BY i)")),
]


def ordered(by: Sequence[str], read: Callable[[list[Any]], Any]) -> Callable[[str], Any]:
    """A result in plain Python, from the rows of a group as tuples of columns, in the order of these tuples."""

    def expected(group: str) -> Any:
        rows = list(zip(*(samples.column(group, name) for name in by), strict=True))
        return read(sorted(rows, key=order))

    return expected


def best(rows: list[Any], k: int, *, greatest: bool) -> Any:
    rows = [row for row in rows if row[0] is not None]
    rows.sort(key=lambda row: order(row[2]), reverse=greatest)
    rows.sort(key=lambda row: row[1])
    rows.sort(key=lambda row: order(row[0]), reverse=greatest)
    return [row[2] for row in rows[:k]] or None


def joined(values: list[Any], delimiter: Any) -> Any:
    present = [value for value in values if value is not None]
    return delimiter.join(present) if present else None


IN_PYTHON: list[tuple[Aggregate, Callable[[str], Any]]] = [
    (J.min_by("s", "d", 3), ordered(("d", "t", "s"), lambda rows: best(rows, 3, greatest=False))),
    (J.max_by("s", "d", 3), ordered(("d", "t", "s"), lambda rows: best(rows, 3, greatest=True))),
    (J.max_by("d", "s", 100), ordered(("s", "t", "d"), lambda rows: best(rows, 100, greatest=True))),
    (J.listagg("s", ", "), ordered(("t", "s"), lambda rows: joined([row[1] for row in rows], ", "))),
    (J.listagg("s"), ordered(("t", "s"), lambda rows: joined([row[1] for row in rows], ""))),
    (
        J.listagg_distinct("s", "-"),
        ordered(("s",), lambda rows: joined(sorted({row[0] for row in rows} - {None}), "-")),
    ),
    (
        J.listagg("bin", b"\xff"),
        ordered(("t", "bin"), lambda rows: joined([row[1] and bytes(row[1]) for row in rows], b"\xff")),
    ),
    (J.any_value("s"), ordered(("t", "s"), lambda rows: rows[0][1])),
]


def merged(rows: DataFrame, aggregates: Sequence[Aggregate]) -> DataFrame:
    """The results by group, from the accumulators of each part of a group, combined as the engine does."""
    inputs = Inputs(rows, F.col("t"))
    operations = [(aggregate.output_name, aggregate.resolve(inputs)) for aggregate in aggregates]
    partials = rows.groupBy("g", "part").agg(*Accumulators.aggregations(operations))
    accumulators = Accumulators(operations, partials.schema)
    return accumulators.group(partials, "g").select("g", *accumulators.finish())


def of_spark(rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
    return rows.groupBy("g").agg(*(column.alias(f"_{i}") for i, column in enumerate(columns)))


def collected(results: DataFrame) -> dict[str, list[Any]]:
    return {row[0]: list(row[1:]) for row in results.collect()}


def same(left: Any, right: Any) -> bool:
    """Equality where NaN equals NaN, and floating-point numbers are equal up to rounding."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(same(x, y) for x, y in zip(left, right, strict=True))
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
    return type(left) is type(right) and left == right


def differing(rows: DataFrame, pairs: Sequence[PAIR]) -> list[str]:
    ours = merged(rows, [aggregate for aggregate, _ in pairs])
    theirs = of_spark(rows, [column() for _, column in pairs])
    types = ([field.dataType.simpleString() for field in results.schema.fields[1:]] for results in (ours, theirs))
    wrong = [
        f"{pair[0].output_name} is {our}, Spark's {their}"
        for pair, our, their in zip(pairs, *types, strict=True)
        if our != their
    ]
    found = collected(ours)
    return wrong + [
        f"{aggregate.output_name} of {group}: {our!r}, Spark's {their!r}"
        for group, results in collected(theirs).items()
        for (aggregate, _), our, their in zip(pairs, found[group], results, strict=True)
        if not same(our, their)
    ]


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    parts = samples.frame_of(spark).withColumn("part", F.pmod(F.xxhash64("d", "i", "t"), F.lit(4)))
    return parts.withColumn("often", F.abs(F.col("by").cast("int"))).localCheckpoint()


@pytest.mark.crash
def test_merged_samples_are_sparks(frame: DataFrame) -> None:
    wrong = differing(frame, ON_SAMPLES) + differing(frame, DISTINCT)
    assert not wrong, "\n".join(wrong)


def test_merged_samples_are_in_order_of_event_time(frame: DataFrame) -> None:
    wrong = [
        f"{aggregate.output_name} of {group}: {result!r}, expected {expected(group)!r}"
        for group, results in collected(merged(frame, [aggregate for aggregate, _ in IN_PYTHON])).items()
        for (aggregate, expected), result in zip(IN_PYTHON, results, strict=True)
        if not same(result, expected(group))
    ]
    assert not wrong, "\n".join(wrong)


# Few values, so that groups are constant or have ties; 0.1 is not what sums of it are divided into.
VALUES = [None, 0.0, -0.0, 3.0, -2.5, 1000.25, math.nan, 0.1, 0.1, 0.1, 0.7, 0.7]


def random_groups(chance: random.Random) -> list[tuple[Any, ...]]:
    """Rows of sixty groups, in three parts each, a third of them constant in one column."""
    rows: list[tuple[Any, ...]] = []
    for group in range(60):
        chosen = [chance.choices(VALUES, k=chance.randint(1, 4)) for _ in "xy"]
        size = chance.randint(1, 12)
        rows += [(str(group), 0, *map(chance.choice, chosen), chance.randint(0, 2)) for _ in range(size)]
    return rows


ON_RANDOM_ROWS: list[PAIR] = [
    *like_spark(("count_distinct", "sum_distinct"), "x"),
    *like_spark(("std", "skewness", "kurtosis", "median", "product"), "x"),
    *like_spark(POINTS, "x", "y"),
    *like_spark(("regr_slope", "regr_intercept", "regr_r2"), "y", "x"),
    (J.linear_trend("x", "y"), lambda: F.regr_slope("y", "x")),
    (J.percentile("x", PERCENTAGES), lambda: F.percentile("x", PERCENTAGES)),
    (J.percentile_disc("x", PERCENTAGES), named(f"percentile_disc(array{(*PERCENTAGES,)}) WITHIN GROUP (ORDER BY x)")),
]


@pytest.mark.long
@settings(law(2), phases=[Phase.generate])  # The group is in the message; to shrink the seed means nothing.
@given(seed=st.integers(0, 2**32))
def test_merged_random_rows_are_sparks(spark: SparkSession, seed: int) -> None:
    rows = spark.createDataFrame(
        random_groups(random.Random(seed)), "g string, t bigint, x double, y double, part int"
    ).coalesce(1)
    wrong = differing(rows, ON_RANDOM_ROWS)
    assert not wrong, "\n".join(wrong)


@pytest.mark.crash
@pytest.mark.long
def test_laws_hold(frame: DataFrame) -> None:
    """In CI, results that are merged from parts are Spark's, above, and what is deducted is gone, below."""
    # One of each kind of accumulator.
    lawful = [
        *(J.count("d", "s"), J.count_distinct("s"), J.count_distinct("st", "b"), J.bool_and("b"), J.bit_and("l")),
        *(J.bit_xor("by"), J.try_sum("d28"), J.product("by"), J.kurtosis("d"), J.corr("d", "f"), J.mode("st")),
        *(J.regr_avgx("i", "dec"), J.max_by("s", "d", 2), J.listagg("s", ","), J.histogram_numeric("d", 99)),
    ]
    check_aggregate(lawful, frame, "t", by=["g"])


def test_laws_hold_where_nothing_is_nullable(spark: SparkSession) -> None:
    rows = spark.range(8).select("id", F.array("id").alias("a"), F.struct(F.col("id").alias("x")).alias("st"))
    check_aggregate([J.mode("a"), J.count_distinct("st", "id"), J.min_by("st", "id", 2)], rows, "id")


def test_a_count_deducts(frame: DataFrame) -> None:
    deducting = [J.count("d", "s"), J.count_if("b"), J.every("b"), J.some("b"), J.bit_xor("l"), J.regr_count("d", "i")]
    growing = [J.count_distinct("d"), J.sum_distinct("i"), J.median("d"), J.mode("d"), J.listagg("s")]
    inputs = Inputs(frame, F.col("t"))
    assert all(aggregate.resolve(inputs).deduct is not None for aggregate in deducting)
    assert not any(aggregate.resolve(inputs).bounded for aggregate in growing)


def test_a_histogram_has_at_most_its_bins(spark: SparkSession) -> None:
    rows = spark.range(90).select(F.lit("g").alias("g"), "id", (F.col("id") % 3).alias("part"), F.lit(0).alias("t"))
    (bins,) = collected(merged(rows, [J.histogram_numeric("id", 5)]))["g"]
    assert (len(bins), sum(y for _, y in bins)) == (5, 90.0)
    assert [x for x, _ in bins] == sorted(x for x, _ in bins)
    # Two are the nearest, and their weighted mean lies between them.
    few = spark.createDataFrame([("g", 0, 0.0, 0), ("g", 0, 4.0, 1), ("g", 0, 5.5, 2), ("g", 0, 4.0, 2)], rows_of("x"))
    assert collected(merged(few, [J.histogram_numeric("x", 2)]))["g"] == [[(0.0, 1.0), (4.5, 3.0)]]
    assert collected(merged(few, [J.histogram_numeric("x", 3)]))["g"] == [[(0.0, 1.0), (4.0, 2.0), (5.5, 1.0)]]


def rows_of(column: str) -> str:
    return f"g string, t bigint, {column} double, part int"


def test_names_are_sparks(frame: DataFrame) -> None:
    pairs: list[PAIR] = [
        *(pair for pair in ON_SAMPLES if "often" not in pair[0].output_name and "WITHIN" not in pair[0].output_name),
        *DISTINCT,
        (J.any_value("d", True), lambda: F.any_value("d", True)),
        *like_spark(("listagg_distinct",), "s"),
        (J.listagg("s", ","), lambda: F.listagg("s", ",")),
        (J.max_by("d", "t", 2), lambda: F.max_by("d", "t", 2)),
        (J.histogram_numeric("d", 3), lambda: F.histogram_numeric("d", F.lit(3))),
    ]
    pairs = [pair for pair in pairs if not pair[0].output_name.startswith("mode")] + [
        (J.mode("d"), lambda: F.mode("d"))
    ]
    assert [ours.output_name for ours, _ in pairs] == frame.agg(*(column() for _, column in pairs)).columns
