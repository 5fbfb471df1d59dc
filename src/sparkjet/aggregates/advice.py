"""Advice on what to use instead of an aggregate function that is not offered."""

from __future__ import annotations

from pyspark.sql import functions as F

NOTHING = "Write an sj.AggregateOperation or an sj.python_aggregate, or compute it in a Spark query over the results."
_COUNTING = "The nearest is approx_count_distinct."
_QUANTILES = "The nearest is percentile_approx."
_FAMILIES = {"hll_": _COUNTING, "theta_": _COUNTING, "tuple_": _COUNTING, "bitmap_": _COUNTING, "kll_": _QUANTILES}
_NEAREST = {
    "collect_union": "The nearest is collect_set of the column after F.explode in a select(…).",
    "count_min_sketch": "The nearest is count, with the column as a key.",
    "grouping": "Rows of one groupBy(…) have one set of keys.",
    "grouping_id": "Rows of one groupBy(…) have one set of keys.",
}
_ELSEWHERE = {
    "session_window": "Use sj.session_window or pyspark.sql.functions.session_window.",
    "window": "Use sj.window or pyspark.sql.functions.window.",
}


def nearest_to(name: str) -> str:
    """The replacement for one of Spark's aggregate functions, by its SQL name.

    >>> nearest_to("kll_sketch_agg_bigint")
    'The nearest is percentile_approx. Write an sj.AggregateOperation or an sj.python_aggregate, or compute it in a ...
    """
    family = next((advice for prefix, advice in _FAMILIES.items() if name.startswith(prefix)), None)
    found = _NEAREST.get(name, family)
    return NOTHING if found is None else f"{found} {NOTHING}"


def instead_of(name: str) -> str | None:
    """The replacement for a function that sparkjet.functions lacks; None if Spark lacks it too.

    >>> instead_of("upper")
    'Use pyspark.sql.functions.upper.'
    >>> instead_of("uper")
    """
    # Not all functions are in __all__.
    found = getattr(F, name, None)
    is_function = name in F.__all__ or getattr(found, "__module__", None) == "pyspark.sql.functions.builtin"
    return _ELSEWHERE.get(name, f"Use pyspark.sql.functions.{name}." if is_function else None)
