"""What to use instead of a Spark aggregate, and whether the result is the same."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

SAME = (
    *("avg", "collect_set", "count", "max", "mean", "min", "stddev", "stddev_pop", "stddev_samp", "sum"),
    *("var_pop", "var_samp", "variance"),
)
"""Functions that Spark and sparkjet have under one name and with one meaning."""

NOTHING = (
    "sparkjet.functions has nothing of the same meaning yet. Write an sj.AggregateOperation or an sj.python_aggregate."
)
NO_AGGREGATE = "Use a function of sparkjet.functions, or write an sj.AggregateOperation."
_PYTHON = "Use sj.python_aggregate."
NOT_AN_AGGREGATE = "It is not an aggregate: use pyspark.sql.functions.{}."
EXPRESSION = (
    "Give agg the aggregates alone, each a function of sparkjet.functions with an alias(…), and compute with their "
    "results in withColumn(…) afterwards."
)

_ORDER = "sparkjet.functions.collect_list differs: its order is that of event time, Spark's that of arrival."
_FIRST = "sparkjet.functions.first differs: it takes the row with the lowest event time, Spark's the first to arrive."
_LAST = "sparkjet.functions.last differs: it takes the row with the highest event time, Spark's the last to arrive."
_TIES = "differs in ties: it takes the row with the lowest event time, Spark's any of them"
_QUANTILE = (
    "sparkjet.functions.percentile_approx({}) differs: it is approximate, and gives a value that occurs where Spark "
    "interpolates. For the exact value: sparkjet.functions.collect_list, and compute with the list in withColumn(…) "
    "afterwards."
)
_SKETCH = "sparkjet.functions.percentile_approx differs: it is another sketch, with other estimates."
_LIST = (
    "Use sparkjet.functions.{} and apply F.array_join to its result in withColumn(…). The order differs: by {}, where "
    "Spark's is by arrival."
)
_BOTH = "F.when(F.col(x).isNotNull() & F.col(y).isNotNull(), {})"

_OTHERS = {
    "any": "Use sparkjet.functions.max of the condition: the same result.",
    "any_value": "sparkjet.functions.first differs: it takes the value with the lowest event time, Spark's any value.",
    "approx_count_distinct": (
        "sparkjet.functions.approx_count_distinct differs: it is another sketch, with other estimates, by default "
        "within 1.6 % where Spark's are within 5 %."
    ),
    "approx_percentile": _SKETCH,
    "array_agg": _ORDER,
    "bool_and": "Use sparkjet.functions.min of the condition: the same result.",
    "bool_or": "Use sparkjet.functions.max of the condition: the same result.",
    "collect_list": _ORDER,
    "count_if": "Use sparkjet.functions.count(F.when(condition, 1)): the same result.",
    "every": "Use sparkjet.functions.min of the condition: the same result.",
    "first": _FIRST,
    "first_value": _FIRST,
    "last": _LAST,
    "last_value": _LAST,
    "listagg": _LIST.format("collect_list", "event time"),
    "max_by": f"sparkjet.functions.max_by {_TIES}.",
    "median": _QUANTILE.format("…, 0.5"),
    "min_by": f"sparkjet.functions.min_by {_TIES}.",
    "percentile": _QUANTILE.format("…"),
    "percentile_approx": _SKETCH,
    "percentile_cont": _QUANTILE.format("…"),
    "percentile_disc": _QUANTILE.format("…"),
    "regr_avgx": f"For (y, x) use sparkjet.functions.avg({_BOTH.format('F.col(x)')}): the same result.",
    "regr_avgy": f"For (y, x) use sparkjet.functions.avg({_BOTH.format('F.col(y)')}): the same result.",
    "regr_count": f"For (y, x) use sparkjet.functions.count({_BOTH.format('1')}): the same result.",
    "regr_slope": "For (y, x) use sparkjet.functions.linear_trend(x, y): the same result.",
    "some": "Use sparkjet.functions.max of the condition: the same result.",
    "std": "Use sparkjet.functions.stddev: the same result.",
    "string_agg": _LIST.format("collect_list", "event time"),
    "try_avg": "sparkjet.functions.avg differs: it fails on an overflow, where Spark's gives null.",
    "try_sum": "sparkjet.functions.sum differs: it fails on an overflow, where Spark's gives null.",
}
_DISTINCT = {
    "collect_set": "Use sparkjet.functions.collect_set: the same result.",
    "count": (
        "sparkjet.functions.approx_count_distinct differs: it is approximate. For the exact number: "
        "sparkjet.functions.collect_set, and F.size of its result in withColumn(…) afterwards; for several columns the "
        "set of an F.struct that is null where one of them is."
    ),
    "listagg": _LIST.format("collect_set", "value"),
    "max": "Use sparkjet.functions.max: the same result.",
    "min": "Use sparkjet.functions.min: the same result.",
    "string_agg": _LIST.format("collect_set", "value"),
}
_OF_DISTINCT_VALUES = (
    "sparkjet.functions has no aggregates of distinct values (DISTINCT) yet, and the same function without DISTINCT "
    "differs. Take sparkjet.functions.collect_set, and compute with the set in withColumn(…) afterwards."
)
_FILTERED = (
    "An aggregate without its FILTER differs. Put the condition into the column: F.when(condition, column), or "
    "F.when(condition, 1) for count(*)."
)
_ARGUMENTS = {
    "count": (1, "Use sparkjet.functions.count(F.when(condition, 1)), the condition being that no column is null."),
    "max_by": (2, NOTHING),
    "min_by": (2, NOTHING),
}
"""The most arguments that ours take where Spark takes more, and what to do with the others."""
_KNOWN = frozenset({*SAME, *_OTHERS})
_WITHOUT_COUNTERPART = """
    bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg collect_union corr count_min_sketch
    covar_pop covar_samp grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis
    mode regr_intercept regr_r2 regr_sxx regr_sxy regr_syy skewness theta_intersection_agg theta_sketch_agg
    theta_union_agg tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer
"""
_PYTHON_NAMES = {
    "approxCountDistinct": _OTHERS["approx_count_distinct"],
    "countDistinct": _DISTINCT["count"],
    "count_distinct": _DISTINCT["count"],
    "listagg_distinct": _DISTINCT["listagg"],
    "string_agg_distinct": _DISTINCT["string_agg"],
    "sumDistinct": _OF_DISTINCT_VALUES,
    "sum_distinct": _OF_DISTINCT_VALUES,
    "arrow_udf": _PYTHON,
    "pandas_udf": _PYTHON,
    "session_window": "Use sj.session_window.",
    "window": "Use sj.window.",
}
"""Functions of pyspark.sql.functions that SQL writes otherwise, and those that sparkjet has elsewhere."""


def instead_of(name: str) -> str | None:
    """What to use instead of a function of pyspark.sql.functions that sparkjet.functions lacks, None if it is neither.

    >>> instead_of("upper")
    'It is not an aggregate: use pyspark.sql.functions.upper.'
    >>> instead_of("uper")
    """
    if name in _WITHOUT_COUNTERPART.split():
        return NOTHING
    # Not all functions are in __all__.
    is_function = (
        name in F.__all__ or getattr(getattr(F, name, None), "__module__", None) == "pyspark.sql.functions.builtin"
    )
    found = _PYTHON_NAMES.get(name) or _OTHERS.get(name)
    return NOT_AN_AGGREGATE.format(name) if found is None and is_function else found


def advice(column: Column) -> tuple[str, str]:
    """Spark's text of a Column that was given to ``agg``, and what to do instead; on the driver."""
    session = SparkSession.active()
    expression: Any = session._jsparkSession.expression(column._jc)
    while expression.getClass().getSimpleName() == "Alias":
        expression = expression.child()
    written = str(expression.sql())
    if _is_function(expression) and expression.isDistinct():
        # Spark omits the word, and would show the aggregate as the one that it must not be mistaken for.
        written = written.replace("(", "(DISTINCT ", 1)
    return written, _advice(expression)


def _advice(expression: Any) -> str:
    if not _is_function(expression):
        compared = expression.getClass().getSimpleName() == "WindowExpression"
        return EXPRESSION if _has_aggregate(expression) and not compared else NO_AGGREGATE
    name = str(expression.nameParts().last()).lower()
    if name not in _KNOWN:
        return EXPRESSION if _has_aggregate(expression) else NOTHING
    arguments = int(expression.arguments().size())
    if expression.filter().isDefined():
        # All of SAME skip nulls; first and the like do not.
        return _FILTERED if name in SAME or name == "count_if" else NOTHING
    if expression.isDistinct():
        return _DISTINCT.get(name, _OF_DISTINCT_VALUES)
    most, beyond = _ARGUMENTS.get(name, (arguments, NOTHING))
    if arguments > most:
        return beyond
    return _OTHERS.get(name) or f"Use sparkjet.functions.{name} instead of pyspark.sql.functions.{name}."


def _has_aggregate(expression: Any) -> bool:
    children = expression.children()
    for child in (children.apply(i) for i in range(children.size())):
        if _is_function(child) and child.nameParts().last().lower() in _KNOWN:
            return True
        if _has_aggregate(child):
            return True
    return False


def _is_function(expression: Any) -> bool:
    return bool(expression.getClass().getSimpleName() == "UnresolvedFunction")
