"""What to use instead of an aggregate of Spark in ``agg``, and whether the result is the same."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession

SAME = (
    *("avg", "collect_set", "count", "max", "mean", "min", "stddev", "stddev_pop", "stddev_samp", "sum"),
    *("var_pop", "var_samp", "variance"),
)
"""Functions that Spark and sparkjet have under one name and with one meaning."""

NOTHING = (
    "sparkjet.functions has nothing of the same meaning yet. Write an sj.AggregateOperation or an sj.python_aggregate."
)
NO_AGGREGATE = "Use a function of sparkjet.functions, or write an sj.AggregateOperation."
EXPRESSION = (
    "Give agg the aggregates alone, each a function of sparkjet.functions with an alias(…), and compute with their "
    "results in withColumn(…) afterwards."
)

_BY_TIME = "goes by event time where Spark goes by arrival"
_TIES = "differs in ties: it takes the row with the lowest event time, Spark any of them"
_QUANTILE = (
    "sparkjet.functions.percentile_approx({}) differs: it is approximate, and gives a value that occurs where Spark "
    "interpolates. Exactly: sparkjet.functions.collect_list, and compute with the list in withColumn(…) afterwards."
)
_SKETCH = "sparkjet.functions.percentile_approx differs: it is another sketch, so its estimates are other ones."
_LIST = (
    "Take sparkjet.functions.{}, and F.array_join of its result in withColumn(…) afterwards. It differs in its order: "
    "by {}, where Spark's is that of arrival."
)
_BOTH = "F.when(F.col(x).isNotNull() & F.col(y).isNotNull(), {})"

_OTHERS = {
    "any": "Use sparkjet.functions.max of the condition: the same result.",
    "any_value": "sparkjet.functions.first differs: it is not any value but that with the lowest event time.",
    "approx_count_distinct": (
        "sparkjet.functions.approx_count_distinct differs: it is another sketch, so its estimates are other ones, by "
        "default within 1.6 % where Spark's are within 5 %."
    ),
    "approx_percentile": _SKETCH,
    "array_agg": f"sparkjet.functions.collect_list differs: its order {_BY_TIME}.",
    "bool_and": "Use sparkjet.functions.min of the condition: the same result.",
    "bool_or": "Use sparkjet.functions.max of the condition: the same result.",
    "collect_list": f"sparkjet.functions.collect_list differs: its order {_BY_TIME}.",
    "count_if": "Use sparkjet.functions.count(F.when(condition, 1)): the same result.",
    "every": "Use sparkjet.functions.min of the condition: the same result.",
    "first": f"sparkjet.functions.first differs: it {_BY_TIME}.",
    "first_value": f"sparkjet.functions.first differs: it {_BY_TIME}.",
    "last": f"sparkjet.functions.last differs: it {_BY_TIME}.",
    "last_value": f"sparkjet.functions.last differs: it {_BY_TIME}.",
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
    "try_avg": "sparkjet.functions.avg differs: where Spark's gives null because of an overflow it fails.",
    "try_sum": "sparkjet.functions.sum differs: where Spark's gives null because of an overflow it fails.",
}
_DISTINCT = {
    "collect_set": "Use sparkjet.functions.collect_set: the same result.",
    "count": (
        "sparkjet.functions.approx_count_distinct differs: it is approximate. Exactly: sparkjet.functions.collect_set, "
        "and F.size of its result in withColumn(…) afterwards; for several columns the set of an F.struct that is null "
        "where one of them is."
    ),
    "listagg": _LIST.format("collect_set", "value"),
    "max": "Use sparkjet.functions.max: the same result.",
    "min": "Use sparkjet.functions.min: the same result.",
    "string_agg": _LIST.format("collect_set", "value"),
}
_OF_DIFFERENT_VALUES = (
    "sparkjet.functions has no aggregates of different values (DISTINCT) yet, and the same function without DISTINCT "
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
"""How many arguments ours take of those that Spark allows more, and what to do about the others."""
_KNOWN = frozenset({*SAME, *_OTHERS})


def advice(column: Column) -> tuple[str, str]:
    """How Spark writes a Column that was given to ``agg``, and what to do instead; on the driver."""
    session = SparkSession.active()
    expression: Any = session._jsparkSession.expression(column._jc)
    while expression.getClass().getSimpleName() == "Alias":
        expression = expression.child()
    written = str(expression.sql())
    if _is_function(expression) and expression.isDistinct():
        # Spark leaves the word out, and would show the aggregate as the one that it must not be taken for.
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
        # Null is what all of SAME leave out; first and its like do not.
        return _FILTERED if name in SAME or name == "count_if" else NOTHING
    if expression.isDistinct():
        return _DISTINCT.get(name, _OF_DIFFERENT_VALUES)
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
