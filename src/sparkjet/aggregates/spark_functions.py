"""Spark's own aggregate functions in ``agg``: each call becomes the aggregate of sparkjet's that computes the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from sparkjet.aggregates import collected, distinct, extremes, moments, quantiles, sums
from sparkjet.aggregates.advice import nearest_to
from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Inputs
    from sparkjet.catalyst.aggregate_calls import AggregateCall

_Translation: TypeAlias = "Callable[[AggregateCall], Aggregate]"


def aggregate_of(call: AggregateCall) -> Aggregate:
    """The aggregate that computes what a call of an aggregate function in a Column does; on the driver.

    Raises:
        AnalysisError: There is none; the message names the function and the nearest one.
    """
    if isinstance(call.own, Aggregate):
        return call.own
    translation = (_DISTINCT if call.distinct else _FUNCTIONS).get(call.name)
    if translation is None:
        message = f"agg: {call.text} cannot be combined from the frames of a window. {nearest_to(call.name)}"
        raise AnalysisError(message)
    return replace(translation(call), computes=call.text)


def _taken(call: AggregateCall) -> list[Column]:
    """The arguments, null in rows that the call does not take; for functions that pass over nulls."""
    columns = list(call.columns)
    return columns if call.condition is None else [F.when(call.condition, column) for column in columns]


def _of(make: Callable[..., Aggregate], columns: int | None = None) -> _Translation:
    """A function of columns; those from number ``columns`` on are constants."""

    def translated(call: AggregateCall) -> Aggregate:
        count = len(call.columns) if columns is None else columns
        return make(*_taken(call)[:count], *map(call.constant, range(count, len(call.columns))))

    return translated


def _by_time(make: Callable[..., Aggregate]) -> _Translation:
    """A function that picks a row, and may pass over nulls."""

    def translated(call: AggregateCall) -> Aggregate:
        value, ignorenulls = call.columns[0], bool(call.function.ignoreNulls())
        if call.condition is None or ignorenulls:
            return make(*_taken(call), ignorenulls)
        # In a struct: a null that is taken differs from a row that is not.
        return _unwrapped(make(F.when(call.condition, F.struct(value.alias("value"))), ignorenulls=True))

    return translated


def _unwrapped(aggregate: Aggregate) -> Aggregate:
    def resolve(inputs: Inputs) -> AggregateOperation:
        operation = aggregate.resolve(inputs)
        return replace(operation, finish=lambda acc: operation.finish(acc)["value"])

    return replace(aggregate, resolve=resolve)


def _count(call: AggregateCall) -> Aggregate:
    return sums.count() if call.counts_rows else sums.count(*_taken(call))


def _approx_count_distinct(call: AggregateCall) -> Aggregate:
    return distinct.approx_count_distinct(_taken(call)[0], float(call.function.relativeSD()))


_FUNCTIONS: dict[str, _Translation] = {
    "approx_count_distinct": _approx_count_distinct,
    "avg": _of(sums.avg),
    "collect_list": _of(collected.collect_list),
    "collect_set": _of(collected.collect_set),
    "count": _count,
    "first": _by_time(extremes.first),
    "last": _by_time(extremes.last),
    "max": _of(extremes.max),
    "max_by": _of(extremes.max_by, 2),
    "mean": _of(sums.avg),
    "min": _of(extremes.min),
    "min_by": _of(extremes.min_by, 2),
    "percentile_approx": _of(quantiles.percentile_approx, 1),
    "std": _of(moments.stddev),
    "stddev": _of(moments.stddev),
    "stddev_pop": _of(moments.stddev_pop),
    "stddev_samp": _of(moments.stddev_samp),
    "sum": _of(sums.sum),
    "var_pop": _of(moments.var_pop),
    "var_samp": _of(moments.var_samp),
    "variance": _of(moments.variance),
}
"""By Spark's name of the function."""

_DISTINCT: dict[str, _Translation] = {
    "collect_set": _of(collected.collect_set),
    "max": _of(extremes.max),
    "min": _of(extremes.min),
}
"""The same with DISTINCT."""
