"""The aggregates of an ``agg``: each distinct call once, with the result columns over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Aggregate, AggregateOperation, Inputs
from sparkjet.aggregates.spark_functions import aggregate_of
from sparkjet.catalyst.aggregate_calls import (
    AggregateCall,
    AggregateColumns,
    GroupWindow,
    Pivot,
    ResultColumn,
    names_in_order,
)
from sparkjet.catalyst.columns import HIDDEN
from sparkjet.catalyst.placeholders import typed
from sparkjet.catalyst.stars import starless
from sparkjet.errors import AnalysisError
from sparkjet.plan.aggregation import ResolvedAggregate, key_name, result_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Expression = Column | AggregateOperation | Mapping[str, str]


def resolved_aggregates(
    expressions: Sequence[Expression],
    inputs: Inputs,
    keys: Sequence[Column],
    window: GroupWindow | None = None,
    pivot: Pivot | None = None,
) -> tuple[tuple[ResolvedAggregate, ...], tuple[ResultColumn, ...]]:
    """The aggregates that some expressions need, and the expressions as result columns."""
    found = _Found(inputs)
    given, order = _given(expressions, inputs.frame.drop(*HIDDEN))
    columns = [each if _own(each) else starless(each, inputs.frame) for each in given]
    composed = {
        i: typed(c, inputs.frame.sparkSession, found.type_of) for i, c in enumerate(columns) if pivot or not _own(c)
    }
    named = [(key, F.col(key_name(number))) for number, key in enumerate(keys)]
    columns_of = AggregateColumns(inputs.frame.drop(*HIDDEN), named, found.place, window)
    if pivot is not None:
        pivoted = columns_of.pivoted([composed[number] for number in order], pivot)
        return tuple(found.aggregates), tuple(pivoted)
    apart = columns_of.taken_apart([*composed.values()]) if composed else []
    results = dict(zip(composed, apart, strict=True))
    for number, column in enumerate(columns):
        if isinstance(column, Aggregate):
            results[number] = ResultColumn(column.output_name, F.col(found.add(column)), column.computes)
    return tuple(found.aggregates), tuple(results[number] for number in order)


class _Found:
    """The aggregates found so far, in the order of their results."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._names: dict[str, str] = {}
        self.aggregates: list[ResolvedAggregate] = []

    def add(self, aggregate: Aggregate) -> str:
        """Name of the result of an aggregate."""
        operation = aggregate.within(self._inputs)
        self.aggregates.append(ResolvedAggregate(aggregate.computes, operation, aggregate.unsaid))
        return result_name(len(self.aggregates) - 1)

    def place(self, call: AggregateCall) -> str:
        """Name of the result of a call; equal calls share one."""
        if call.identity not in self._names:
            self._names[call.identity] = self.add(aggregate_of(call))
        return self._names[call.identity]

    def type_of(self, aggregate: Aggregate) -> Any:
        """Type of an aggregate's result."""
        return aggregate.type_in(self._inputs)


def _own(column: Column) -> bool:
    return isinstance(column, Aggregate)


def _given(expressions: Sequence[object], rows: DataFrame) -> tuple[list[Column], list[int]]:
    """The columns given to ``agg``, and their positions in the order of the results.

    The two differ for a dict, whose results Spark orders itself: saved state has them in the given order.
    """
    columns: list[Column] = []
    order: list[int] = []
    for expression in expressions:
        if isinstance(expression, Mapping):
            names = names_in_order(rows, expression)
            order += [len(columns) + [*expression].index(name) for name in names]
            columns += [_called(name, function).alias(names[name]) for name, function in expression.items()]
        else:
            order.append(len(columns))
            columns.append(_column(expression))
    return columns, order


def _column(expression: object) -> Column:
    if isinstance(expression, Column):
        return expression
    if isinstance(expression, AggregateOperation):
        return expression.alias("aggregate")
    message = (
        f"agg: {expression!r} is not an aggregate. Give Columns such as pyspark.sql.functions.avg(…), or a dict such "
        'as {"price": "avg"}.'
    )
    raise AnalysisError(message)


def _called(name: str, function: str) -> Column:
    known = _SPARKS.get(function.lower(), function)
    return F.count(F.lit(1)) if name == "*" else F.call_function(known, F.col(name))


_SPARKS = {"average": "avg", "size": "count"}
"""Functions with another name in a dict."""
