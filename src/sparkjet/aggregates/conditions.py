"""count_if, bool_and and bool_or: aggregates of conditions, which count and so deduct."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Aggregate
from sparkjet.aggregates.totals import summing
from sparkjet.aggregates.values import condition
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Accumulator, AggregateOperation, ColumnOrName, Inputs


def count_if(col: ColumnOrName) -> Aggregate:
    """Number of rows where a condition is true, not null or false; bigint. Deducts."""
    name = f"count_if({label(col)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        counted = {"count": F.count_if(condition(inputs, name, col))}
        return replace(summing({"count": "bigint"}, counted, exact=True), finish=lambda acc: acc["count"])

    return Aggregate(name, resolve)


def bool_and(col: ColumnOrName) -> Aggregate:
    """Whether all non-null values are true; null if there are none. Deducts."""
    return _truth("bool_and", col, _all)


def every(col: ColumnOrName) -> Aggregate:
    """Whether all non-null values are true, the same as :func:`bool_and`."""
    return _truth("every", col, _all)


def bool_or(col: ColumnOrName) -> Aggregate:
    """Whether any non-null value is true; null if there are none. Deducts."""
    return _truth("bool_or", col, _any)


def some(col: ColumnOrName) -> Aggregate:
    """Whether any non-null value is true, the same as :func:`bool_or`."""
    return _truth("some", col, _any)


def _truth(function: str, col: ColumnOrName, finish: Callable[[Accumulator], Column]) -> Aggregate:
    name = f"{function}({label(col)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        value = condition(inputs, name, col)
        counted = {"true": F.count_if(value), "count": F.count(value)}
        operation = summing(dict.fromkeys(counted, "bigint"), counted, exact=True)
        return replace(operation, finish=lambda acc: F.when(acc["count"] > 0, finish(acc)))

    return Aggregate(name, resolve)


def _all(acc: Accumulator) -> Column:
    return acc["true"] == acc["count"]


def _any(acc: Accumulator) -> Column:
    return acc["true"] > 0
