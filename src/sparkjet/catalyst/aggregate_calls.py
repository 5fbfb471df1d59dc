"""Columns of aggregates taken apart: the calls of aggregate functions below, the expressions above them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.expressions import by_name, column_of, expression_of, inlined, rebuilt, without_alias
from sparkjet.catalyst.logical_plans import analyzed, attribute_id, children, kind_of, listed
from sparkjet.catalyst.markers import marked_by, unmarked
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class AggregateCall:
    """A call of an aggregate function, as Spark has analyzed it; on the driver.

    Attributes:
        name: Name of the function in SQL.
        text: The whole call in SQL.
        identity: Equal for calls that compute the same in one ``agg``; SQL leaves out some arguments.
        function: The Catalyst function.
        columns: Its arguments, by the names of the rows' columns.
        distinct: Whether it takes each value once.
        condition: Which rows it takes (``FILTER``), None for all.
        own: The aggregate of sparkjet's that it stands for, None if it is Spark's.
    """

    name: str
    text: str
    identity: str
    function: Any
    columns: tuple[Column, ...]
    distinct: bool
    condition: Column | None
    own: object | None

    @property
    def counts_rows(self) -> bool:
        """Whether a count is of all rows, whatever they hold."""
        arguments = children(self.function)
        return self.condition is None and all(each.foldable() and not each.nullable() for each in arguments)

    def is_constant(self, number: int) -> bool:
        """Whether an argument is the same in all rows."""
        return bool(children(self.function)[number].foldable())

    def constant(self, number: int) -> Any:
        """The value of an argument that is the same in all rows.

        Raises:
            AnalysisError: It is not.
        """
        if not self.is_constant(number):
            message = f"agg: {self.text}: argument {number + 1} must be a constant."
            raise AnalysisError(message)
        # One row without a source: Spark evaluates it on the driver.
        value = SparkSession.active().sql("SELECT 1").select(self.columns[number]).collect()[0][0]
        return [_plain(each) for each in value] if isinstance(value, list) else _plain(value)


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result: its name, and how it follows from the values of aggregates and keys."""

    name: str
    column: Column


class AggregateColumns:
    """Columns of aggregates over some rows, for analysis only; on the driver.

    Args:
        rows: What is aggregated.
        keys: The grouping columns, by the names under which the results will find them.
        place: Takes a call, returns the name of the column in which its value will be.
    """

    def __init__(self, rows: DataFrame, keys: Mapping[str, Column], place: Callable[[AggregateCall], str]) -> None:
        self._rows = rows
        self._session = rows.sparkSession
        self._keys = dict(keys)
        self._place = place
        output = zip(listed(analyzed(rows).output()), rows.columns, strict=True)
        self._names = {attribute_id(attribute): name for attribute, name in output}

    def taken_apart(self, columns: Sequence[Column]) -> list[ResultColumn]:
        """The result columns that ``agg`` of these Columns has.

        Raises:
            AnalysisError: A Column is not computed from aggregates and keys alone.
            AnalysisException: Spark cannot analyze them.
        """
        plan = analyzed(self._rows.groupBy(*self._keys.values()).agg(*columns))
        found = listed(plan.aggregateExpressions()) if plan.nodeName() == "Aggregate" else []
        if len(found) - len(columns) not in {0, len(self._keys)}:
            message = (
                "agg: a column is not computed from aggregates and keys alone, or stands for several. Give agg one "
                "Column for each aggregate, and compute the rest in withColumn(…) afterwards."
            )
            raise AnalysisError(message)
        return [self._result(expression, plan) for expression in found[len(found) - len(columns) :]]

    def _result(self, named: Any, plan: Any) -> ResultColumn:
        keys = list(zip(self._keys, listed(plan.groupingExpressions()), strict=True))

        def composed(part: Any) -> Any:
            if kind_of(part) == "AggregateExpression":
                name = self._place(self._call(part))
            else:
                name = next((name for name, key in keys if key.semanticEquals(part)), "")
            return expression_of(F.col(quoted(name)), self._session) if name else None

        expression = rebuilt(inlined(without_alias(named), self._session), self._session, composed)
        return ResultColumn(unmarked(str(named.name())), column_of(expression, self._session))

    def _call(self, expression: Any) -> AggregateCall:
        function, condition = expression.aggregateFunction(), expression.filter()
        return AggregateCall(
            name=str(function.prettyName()),
            text=str(expression.sql()),
            identity=str(expression.toString()),
            function=function,
            columns=tuple(self._column(argument) for argument in children(function)),
            distinct=bool(expression.isDistinct()),
            condition=self._column(condition.get()) if condition.isDefined() else None,
            own=marked_by(function),
        )

    def _column(self, argument: Any) -> Column:
        return column_of(by_name(argument, self._session, self._names), self._session)


def _plain(value: Any) -> Any:
    """A number of SQL such as 0.5, which is a decimal there, as Python writes it."""
    return float(value) if isinstance(value, Decimal) else value
