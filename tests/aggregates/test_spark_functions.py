"""Spark's own aggregate functions, and expressions over them, give Spark's results when frames are combined."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import Column, Window
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import Inputs
from sparkjet.plan.resolved_aggregates import resolved_aggregates
from tests.aggregates.framewise import framewise
from tests.laws import law

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Rows of three keys in four frames, with nulls and a key of nulls only; doubles whose sums are exact."""
    drawn = [
        (
            "abc"[i % 3],
            i * 7 % 40,
            i % 4,
            None if i % 5 == 0 or i % 3 == 2 else i % 11,
            None if i % 7 == 0 or i % 3 == 2 else (i * 13 % 32) / 4,
            None if i % 4 == 1 or i % 3 == 2 else f"s{i % 6}",
            None if i % 6 == 5 or i % 3 == 2 else i % 2 == 0,
        )
        for i in range(36)
    ]
    columns = "g string, t long, frame int, n int, d double, s string, b boolean"
    return spark.createDataFrame(drawn, columns).localCheckpoint()


def called(function: Callable[..., Any]) -> Column | None:
    """A call of a function of Spark, of as many columns as it needs; None where it does not take columns."""
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for value in ("n", 3):
        try:
            column = function(*[value] * len(needed), *(["n"] if several and not needed else []))
        except Exception:  # noqa: BLE001, S112 - whatever says that it takes something else
            continue
        if isinstance(column, Column):
            return column
    return None


def registered(spark: SparkSession) -> dict[str, str]:
    """All aggregate functions of pyspark.sql.functions, by name, with their name in SQL, by Spark's own registry."""
    catalog = spark._jsparkSession.sessionState().catalog()  # type: ignore[union-attr]
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        columns = {name: called(f) for name, f in vars(F).items() if inspect.isfunction(f) and not name.startswith("_")}
    for name, column in columns.items():
        if column is None:
            continue
        expression: Any = spark._jsparkSession.expression(column._jc)
        if expression.getClass().getSimpleName() == "UnresolvedFunction":
            function = str(expression.nameParts().last())
            info = catalog.lookupBuiltinOrTempFunction(function)
            if info.isDefined() and info.get().getGroup() == "agg_funcs":
                found[name] = function
    return found


def compared(rows: DataFrame, expressions: list[Column]) -> None:
    """Fail where the results, put together from frames, are not those of Spark's own ``groupBy("g").agg(…)``."""
    named = [expression.alias(f"c{number}") for number, expression in enumerate(expressions)]
    ours = {row["g"]: row for row in framewise(rows, named).collect()}
    theirs = {row["g"]: row for row in rows.groupBy("g").agg(*named).collect()}
    assert ours.keys() == theirs.keys()
    wrong = [
        f"{expression} of {key}: {ours[key][f'c{number}']!r}, Spark's {row[f'c{number}']!r}"
        for key, row in theirs.items()
        for number, expression in enumerate(expressions)
        if not same(ours[key][f"c{number}"], row[f"c{number}"])
    ]
    assert not wrong


def same(ours: object, theirs: object) -> bool:
    """Whether two results are equal, but for the last digits of floating-point numbers and the order of sets."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(ours) and math.isnan(theirs))
    if isinstance(ours, list) and isinstance(theirs, list):
        return sorted(ours, key=repr) == sorted(theirs, key=repr)
    return ours == theirs


WRITTEN = [
    "sum(n)", "avg(n)", "count(*)", "count(1)", "count(n)", "count(NULL)", "min(s)", "max(d)", "mean(d)", "sum(d)",
    "sum(s2)", "avg(s2)", "sum(n) / count(d)", "round(avg(d), 2)", "coalesce(sum(n), -1)", "concat(g, '-', max(s))",
    "CASE WHEN sum(n) > 20 THEN 'big' ELSE 'small' END", "cast(avg(n) AS decimal(10, 3))", "max(d) - min(d)",
    "sum(n) FILTER (WHERE d > 3)", "count(*) FILTER (WHERE d > 3)", "count(*) FILTER (WHERE d > 3000)",
    "count(*) FILTER (WHERE n BETWEEN 2 AND 7)", "sum(nullif(n, 3))", "max(n) BETWEEN 4 AND count(*)",
    "avg(d) FILTER (WHERE s IS NOT NULL)", "sum(n * 2 + 1)", "sum(if(b, n, 0))", "struct(max(n) AS hi, min(n) AS lo)",
    "array(min(n), max(n))", "stddev(d)", "stddev_pop(n)", "var_samp(d)", "variance(n)", "var_pop(d)", "std(d)",
    "collect_set(s)", "sort_array(collect_set(n))", "size(collect_set(s))", "max(struct(n, s))", "upper(g)",
    "max(DISTINCT n)", "min(DISTINCT s)", "sum(n) > 3 AND max(b)", "named_struct('g', g, 'n', count(n))",
    "count(DISTINCT n, s)", "count(DISTINCT n)", "sum(DISTINCT n)", "length(listagg(DISTINCT s, '+'))",
    "bool_and(DISTINCT b)",
    "count_if(n > 3)", "bool_or(b)", "every(b) FILTER (WHERE n > 2)", "some(b)", "corr(n, d)", "covar_pop(n, d)",
    "covar_samp(n, d)", "skewness(n)", "kurtosis(d)", "median(d)", "percentile(d, 0.3)",
    "percentile(n, array(0.1, 0.9))", "percentile(n, 0.5, frame)",
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY d DESC)", "mode(b) IS NULL",
    "percentile_disc(0.25) WITHIN GROUP (ORDER BY n)", "bit_and(n)", "bit_or(n)", "bit_xor(n)", "regr_slope(n, d)",
    "regr_r2(n, d)", "regr_intercept(n, d)", "regr_count(n, d)", "regr_avgx(n, d)", "regr_avgy(n, d)", "regr_sxx(n, d)",
    "regr_sxy(n, d)", "regr_syy(n, d)", "try_sum(n)", "try_avg(d)", "array_size(array_agg(n))", "size(collect_list(s))",
    "max_by(n, t)", "min_by(s, t)", "max_by(n, t, 2)", "count(n, d)", "approx_count_distinct(n)",
    "any(b)", "any(b) FILTER (WHERE n > 3)", "avg(DISTINCT n)", "avg(DISTINCT d)", "mean(DISTINCT n * 2)",
    "avg(DISTINCT cast(d AS decimal(30, 4)))", "bit_or(DISTINCT n)", "sort_array(collect_list(DISTINCT s))",
    *(f"{call}(make_dt_interval(0, n, 0, d))" for call in ("sum", "avg", "try_sum", "try_avg")),
    "sum(DISTINCT make_dt_interval(n))", "avg(DISTINCT make_dt_interval(0, n))", "avg(make_dt_interval(n)) / 3",
    *(f"cast({call}(make_ym_interval(0, n)) AS string)" for call in ("sum", "avg", "try_avg")),
    "cast(avg(DISTINCT make_ym_interval(0, n)) AS string)", "mode() WITHIN GROUP (ORDER BY n % 3 DESC)",
    "mode() WITHIN GROUP (ORDER BY n % 3)",
    "first(s) FILTER (WHERE frame > 5)", "any_value(s) FILTER (WHERE frame > 5)",
    "first(n, true) FILTER (WHERE n > 100)",
]  # fmt: skip
"""Expressions that Spark computes without regard to the order of rows."""


@pytest.mark.crash
def test_expressions_over_aggregates_are_sparks(rows: DataFrame) -> None:
    compared(rows.withColumn("s2", F.col("n").cast("string")), [F.expr(text) for text in WRITTEN])


def test_values_are_listed_in_the_order_asked_for(rows: DataFrame) -> None:
    orders = {
        "listagg(s, '+')": "(ORDER BY t)",
        "listagg(s, '-')": "(ORDER BY s)",
        "listagg(n)": "(ORDER BY t DESC)",
        "string_agg(s, '+')": "(ORDER BY nullif(frame, 1) DESC NULLS FIRST, t)",
        "string_agg(s)": "(ORDER BY n NULLS LAST, t) FILTER (WHERE frame > 0)",
    }
    compared(rows, [F.expr(f"{call} WITHIN GROUP {order}") for call, order in orders.items()])
    # Each by itself: Spark 4.3 fails with one of them beside another DISTINCT.
    compared(rows, [F.expr("listagg(DISTINCT s, '+') WITHIN GROUP (ORDER BY s DESC)")])
    compared(rows, [F.expr("listagg(DISTINCT n, '+') WITHIN GROUP (ORDER BY n)")])


NUMBERS = [
    *("sum(n)", "avg(d)", "count(n)", "count(*)", "min(n)", "max(d)", "sum(d)", "stddev(n)"),
    *("avg(n) FILTER (WHERE b)", "max(n * 2)"),
]
FORMS = [
    *("({} + {})", "({} - {})", "({} * {})", "try_divide({}, {})", "greatest({}, {})", "coalesce({}, {})"),
    *("if({} > {}, 1.5D, 2)", "round({} + 0 * {}, 1)", "cast(cast({} AS string) AS double) + {}"),
    "abs({} % 7 - {})",
]


@st.composite
def compositions(draw: st.DrawFn, depth: int = 3) -> str:
    """A number computed from aggregates and constants."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(NUMBERS))
    one, other = draw(compositions(depth=depth - 1)), draw(compositions(depth=depth - 1))
    form: str = draw(st.sampled_from(FORMS))
    return form.format(one, other)


@pytest.mark.long
@law(8)
@given(expressions=st.lists(compositions(), min_size=3, max_size=8))
def test_random_compositions_are_sparks(rows: DataFrame, expressions: list[str]) -> None:
    compared(rows, [F.expr(expression) for expression in expressions])


def resolved(rows: DataFrame, *expressions: Column | Any) -> tuple[list[str], list[str]]:
    """The SQL of each aggregate, and the names of the result columns."""
    aggregates, columns = resolved_aggregates(expressions, Inputs(rows, F.col("t")), [F.col("g")])
    return [each.computes for each in aggregates], [each.name for each in columns]


def test_equal_calls_are_computed_once_and_columns_have_sparks_names(rows: DataFrame) -> None:
    average = F.sum("n") / F.count("n")
    assert resolved(rows, F.sum("n"), average, F.round(average, 1).alias("r"), F.expr("SUM(n)").alias("again")) == (
        ["sum(n)", "count(n)"],
        ["sum(n)", "(sum(n) / count(n))", "r", "again"],
    )
    several = {"n": "sum", "*": "count", "d": "max", "s": "size", "frame": "std", "t": "average"}
    assert resolved(rows, several)[1] == rows.groupBy("g").agg(several).columns[1:]
    assert resolved(rows, F.sum("n"))[0] == resolved(rows, J.sum("n"))[0]
    # SQL shows neither.
    assert len(resolved(rows, F.approx_count_distinct("n"), F.approx_count_distinct("n", 0.01).alias("finer"))[0]) == 2
    # The text of a plan ends before what they differ in.
    long_calls = [F.max(F.greatest("n", *map(F.lit, range(-30, 0)), F.lit(last))).alias(f"m{last}") for last in (7, 8)]
    assert len(resolved(rows, *long_calls)[0]) == 2
    assert resolved(rows, F.max(rows.n))[1] == ["max(n)"]


def test_aggregates_of_sparkjet_compose_like_sparks(rows: DataFrame) -> None:
    least = sj.AggregateOperation(
        accumulate={"low": F.min("n")},
        create={"low": F.lit(None).cast("int")},
        combine=lambda a, b: {"low": F.least(a["low"], b["low"])},
        finish=lambda a: a["low"],
    ).alias("least")
    pairs = {
        "(sum(n) / count(n))": (J.sum("n") / J.count("n"), F.sum("n") / F.count("n")),
        "CAST(avg(d) AS STRING)": (J.avg("d").cast("string"), F.avg("d").cast("string")),
        "(get(top_n(d, 2), 0) + max(n))": (F.get(J.top_n("d", 2), 0) + F.max("n"), F.max("d") + F.max("n")),
        "(least + 1)": (least + 1, F.min("n") + 1),
        "least": (least, F.min("n")),
    }
    columns = [ours for ours, _ in pairs.values()]
    assert resolved(rows, *columns)[1] == list(pairs)
    assert "top_n(d, 2)" in resolved(rows, *columns)[0]
    found = {row["g"]: row[1:] for row in framewise(rows, columns).collect()}
    expected = rows.groupBy("g").agg(*(theirs.alias(name) for name, (_, theirs) in pairs.items()))
    assert found == {row["g"]: row[1:] for row in expected.collect()}


FAMILIES = ("bitmap_", "hll_", "kll_", "theta_", "tuple_")
NEVER = {"collect_union", "count_min_sketch", "grouping", "grouping_id"}


def test_every_other_function_is_refused_by_name(rows: DataFrame, spark: SparkSession) -> None:
    found = registered(spark)
    assert len(found) > 80
    for name in found.values():
        if name.startswith(FAMILIES) or name in NEVER:
            arguments = {"grouping_id": "", "tuple_sketch_agg_double": "n, d"}.get(name, "n")
            # Some of Spark's own: those take sketches, not numbers.
            with pytest.raises((sj.AnalysisError, AnalysisException)):
                resolved(rows, F.expr(f"{name}({arguments})"))
    with pytest.raises(sj.AnalysisError, match=r"hll_sketch_agg\(n, 12\) cannot be combined.*approx_count_distinct"):
        resolved(rows, F.hll_sketch_agg("n"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((F.sum,), "is not an aggregate"),
        (("n",), "'n' is not an aggregate"),
    ],
)
def test_what_is_not_an_aggregate_is_refused(rows: DataFrame, columns: tuple[Any, ...], message: str) -> None:
    with pytest.raises(sj.AnalysisError, match=message):
        resolved(rows, *columns)


def test_spark_reports_what_it_cannot_analyze(rows: DataFrame) -> None:
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        resolved(rows, F.sum("nope"))
    with pytest.raises(AnalysisException, match="MISSING_AGGREGATION"):
        resolved(rows, F.col("n") + F.sum("n"))
    with pytest.raises(sj.AnalysisError, match="not computed from aggregates and keys alone"):
        resolved(rows, F.sum("n"), F.rank().over(Window.orderBy(F.sum("n"))))


@pytest.mark.parametrize("kind", ["{}", "array({}, 'x')", "struct({} AS t, 1 AS n)"])
@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UNICODE_CI", "UTF8_BINARY_RTRIM"])
def test_texts_with_a_collation_are_counted_by_it(spark: SparkSession, kind: str, collation: str) -> None:
    texts = spark.createDataFrame([(text,) for text in ("a", "A", "a ", "b", None, "B")], "text string").repartition(2)
    rows = texts.selectExpr(f"IF(text IS NULL, NULL, {kind.format(f'text COLLATE {collation}')}) AS value")
    [wanted] = rows.agg(F.countDistinct("value")).first() or ()
    assert J.count_distinct("value").evaluate(rows) == wanted
    assert J.approx_count_distinct("value").evaluate(rows) == wanted
