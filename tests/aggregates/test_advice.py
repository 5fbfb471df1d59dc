"""Each aggregate of Spark in ``agg`` is answered with what means the same, or with how the nearest differs."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Column, Window
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import functions as J
from sparkjet.aggregates import advice
from sparkjet.aggregates.operation import NotAnAggregateError, as_aggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from sparkjet.aggregates.operation import Aggregate


def answered(column: Column) -> str:
    with pytest.raises(NotAnAggregateError) as refused:
        as_aggregate(column)
    return str(refused.value)


def made(function: Callable[..., Any]) -> Column | None:
    """A Column of a function of Spark, of as many columns as it needs; None where it does not take columns."""
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for value in ("v", 3):
        try:
            column = function(*[value] * len(needed), *(["v"] if several and not needed else []))
        except Exception:  # noqa: BLE001, S112 - whatever says that it takes something else
            continue
        if isinstance(column, Column):
            return column
    return None


def aggregates(spark: SparkSession) -> dict[str, Column]:
    """All aggregates of pyspark.sql.functions by name, by what Spark's own registry says of them."""
    catalog = spark._jsparkSession.sessionState().catalog()  # type: ignore[union-attr]
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        columns = {name: made(f) for name, f in vars(F).items() if inspect.isfunction(f) and not name.startswith("_")}
    for name, column in columns.items():
        if column is None:
            continue
        expression: Any = spark._jsparkSession.expression(column._jc)
        if expression.getClass().getSimpleName() == "UnresolvedFunction":
            info = catalog.lookupBuiltinOrTempFunction(expression.nameParts().last())
            if info.isDefined() and info.get().getGroup() == "agg_funcs":
                found[name] = column
    return found


def test_every_aggregate_of_spark_is_answered_without_changing_the_meaning(spark: SparkSession) -> None:
    found = aggregates(spark)
    expected = {"sum", "countDistinct", "count_distinct", "sum_distinct", "listagg_distinct", "skewness", "median"}
    assert expected <= found.keys()
    assert len(found) > 80
    ours = {name for name in J.__all__ if name in found}
    for name, column in found.items():
        answer = answered(column)
        same = [each for each in advice.SAME if f"Use sparkjet.functions.{each} instead" in answer]
        if same:
            # F.mean is written avg by Spark itself.
            assert same == [{"mean": "avg"}.get(name, name)], name
            assert name in ours
        else:
            assert any(said in answer for said in ("differs", ": the same result", advice.NOTHING)), (name, answer)
        if name in ours:
            assert f"sparkjet.functions.{same[0] if same else name}" in answer


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (lambda: F.countDistinct("v"), r"count\(DISTINCT v\).*approx_count_distinct differs.*collect_set.*F.size"),
        (lambda: F.count_distinct("v", "w"), r"approx_count_distinct differs.*F.struct"),
        (lambda: F.sum_distinct("v"), r"sum\(DISTINCT v\).*without DISTINCT differs.*collect_set"),
        (lambda: F.expr("avg(DISTINCT v)"), "without DISTINCT differs"),
        (lambda: F.expr("count(DISTINCT v)").alias("n"), "approx_count_distinct differs"),
        (lambda: F.expr("max(DISTINCT v)"), "functions.max: the same result"),
        (lambda: F.expr("sum(v) FILTER (WHERE v > 1)"), r"without its FILTER differs.*F.when\(condition, column\)"),
        (lambda: F.expr("first(v) FILTER (WHERE v > 1)"), "nothing of the same meaning"),
        (lambda: F.expr("count(v, w)"), r"count\(F.when\(condition, 1\)\), the condition being that no column is null"),
        (lambda: F.expr("SUM(v)"), "Use sparkjet.functions.sum instead"),
        (lambda: F.sum("v") / F.count("v"), r"aggregates alone.*withColumn"),
        (lambda: F.round(F.avg("v"), 2), r"aggregates alone.*withColumn"),
        (lambda: F.expr("sum(v) / 2"), r"aggregates alone.*withColumn"),
        (lambda: F.skewness(F.abs("v")), "nothing of the same meaning"),
        (lambda: F.col("sum(v)"), "Use a function of sparkjet.functions"),
        (lambda: F.sum("v").over(Window.partitionBy("w")), "Use a function of sparkjet.functions"),
        (lambda: F.mean("v"), "Use sparkjet.functions.avg instead of pyspark.sql.functions.avg"),
    ],
)
def test_an_answer_says_what_it_means(spark: SparkSession, column: Callable[[], Column], named: str) -> None:
    assert re.search(named, answered(column()))


def test_every_function_of_spark_that_sparkjet_lacks_names_what_to_use(spark: SparkSession) -> None:
    theirs = {name for name, f in vars(F).items() if getattr(f, "__module__", None) == "pyspark.sql.functions.builtin"}
    theirs = {name for name in {*theirs, *F.__all__} if not name.startswith("_")}
    assert len(theirs) > 550
    found = aggregates(spark)
    elsewhere = {"window": sj.window, "session_window": sj.session_window}
    elsewhere |= dict.fromkeys(("pandas_udf", "arrow_udf"), sj.python_aggregate)
    for name in theirs - {*J.__all__}:
        assert not hasattr(J, name)
        with pytest.raises(AttributeError) as missing:
            getattr(J, name)
        answer = str(missing.value)
        if name in found:
            # The same words as agg has, which agree with what the function means.
            assert answer.removeprefix(f"sparkjet.functions has no {name!r}. ") in answered(found[name]), name
            assert not {*re.findall(r"sparkjet\.functions\.(\w+)", answer)} - {*J.__all__}
        elif name in elsewhere:
            assert answer.endswith(f"Use sj.{elsewhere[name].__name__}.")
        else:
            assert answer.endswith(f"It is not an aggregate: use pyspark.sql.functions.{name}.")


def test_a_misspelt_function_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"sparkjet.functions has no 'summ'; did you mean \"sum\"\? Known: approx"):
        J.summ  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'median'"):
        from sparkjet.functions import median  # type: ignore[attr-defined]  # noqa: F401
    assert not hasattr(J, "__path__")


def test_each_same_result_is_the_same(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(1, 2.0, True), (4, None, None), (None, 3.5, False), (4, 1.0, True), (9, 8.0, None)],
        "v int, x double, c boolean",
    )
    both = F.col("x").isNotNull() & F.col("v").isNotNull()
    pairs: dict[str, tuple[Column, Aggregate]] = {
        **{name: (getattr(F, name)("v"), getattr(J, name)("v")) for name in advice.SAME if name != "collect_set"},
        "collect_set": (F.sort_array(F.collect_set("v")), J.collect_set("v")),
        "bool_and": (F.bool_and("c"), J.min("c")),
        "bool_or": (F.bool_or("c"), J.max("c")),
        "every": (F.every("c"), J.min("c")),
        "some": (F.some("c"), J.max("c")),
        "any": (F.expr("any(c)"), J.max("c")),
        "count_if": (F.count_if("c"), J.count(F.when(F.col("c"), 1))),
        "std": (F.std("v"), J.stddev("v")),
        "regr_slope": (F.regr_slope("v", "x"), J.linear_trend("x", "v")),
        "regr_count": (F.regr_count("v", "x"), J.count(F.when(both, 1))),
        "regr_avgx": (F.regr_avgx("v", "x"), J.avg(F.when(both, F.col("x")))),
        "regr_avgy": (F.regr_avgy("v", "x"), J.avg(F.when(both, F.col("v")))),
    }
    said = {name for name, text in advice._OTHERS.items() if "the same result" in text}
    assert pairs.keys() == said | set(advice.SAME)
    theirs = rows.agg(*(column.alias(name) for name, (column, _) in pairs.items())).collect()[0].asDict()
    ours = {name: aggregate.evaluate(rows) for name, (_, aggregate) in pairs.items()}
    assert {name: pytest.approx(value) if isinstance(value, float) else value for name, value in ours.items()} == theirs
    distinct = rows.agg(F.count_distinct("v"), F.size(F.collect_set("v")), F.count_distinct("v", "x")).collect()[0]
    both_columns = rows.agg(F.size(F.collect_set(F.when(both, F.struct("v", "x"))))).collect()[0]
    assert distinct[0] == distinct[1]
    assert distinct[2] == both_columns[0]
