"""Columns of aggregates taken apart: the calls of aggregate functions below, the expressions above them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.expressions import by_name, column_of, expression_of, inlined, parts_of, rebuilt, without_alias
from sparkjet.catalyst.logical_plans import analyzed, attribute_id, children, kind_of, listed, same_name
from sparkjet.catalyst.placeholders import stood_for, without_placeholders
from sparkjet.catalyst.unsaid import Unsaid, unsaid
from sparkjet.errors import AnalysisError
from sparkjet.java import as_map

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class AggregateCall:
    """A call of an aggregate function, as Spark has analyzed it; on the driver.

    Attributes:
        name: Name of the function in SQL.
        text: The whole call in SQL.
        identity: Equal for calls that compute the same in one ``agg``.
        function: The Catalyst function.
        columns: Its arguments, by the names of the rows' columns.
        distinct: Whether it takes each value once.
        condition: Which rows it takes (``FILTER``), None for all.
        own: The aggregate of sparkjet's that it stands for, None if it is Spark's.
        order: The keys of ``WITHIN GROUP (ORDER BY …)``, where that may have several: the column, whether it is
            descending, whether nulls come last.
        ignores_nulls: Whether it passes over nulls, of a function that picks a row.
        unsaid: What ``text`` leaves out of its arguments and its condition.
    """

    name: str
    text: str
    identity: str
    function: Any
    columns: tuple[Column, ...]
    distinct: bool
    condition: Column | None
    own: object | None
    order: tuple[tuple[Column, bool, bool], ...] = ()
    ignores_nulls: bool = False
    unsaid: Unsaid = field(default_factory=dict)

    @property
    def counts_rows(self) -> bool:
        """Whether a count is of all rows, whatever they hold."""
        arguments = children(self.function)
        return self.condition is None and all(each.foldable() and not each.nullable() for each in arguments)

    def is_constant(self, number: int) -> bool:
        """Whether an argument is the same in all rows."""
        return bool(children(self.function)[number].foldable())

    def constant(self, number: int) -> Any:
        """The value of an argument that is the same in all rows."""
        if not self.is_constant(number):
            raise AnalysisError(f"agg: {self.text}: argument {number + 1} must be a constant.")
        # One row without a source: Spark evaluates it on the driver.
        value = SparkSession.active().sql("SELECT 1").select(self.columns[number]).collect()[0][0]
        return [_plain(each) for each in value] if isinstance(value, list) else _plain(value)


@dataclass(frozen=True)
class GroupWindow:
    """The window that rows are grouped by.

    Attributes:
        name: Its name.
        result: What the results will find it in.
        held: The column of the rows that it is, None if it is not among them.
    """

    name: str
    result: Column
    held: Column | None = None


@dataclass(frozen=True)
class Pivot:
    """A column of the rows; a result has separate columns for each of its values."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result.

    Attributes:
        name: Its name.
        column: How it follows from the values of aggregates and keys.
        text: The whole of it in SQL, over the rows; empty where SQL has no words for it.
    """

    name: str
    column: Column
    text: str = ""


class AggregateColumns:
    """Columns of aggregates over some rows, for analysis only; on the driver.

    Args:
        rows: What is aggregated.
        keys: The grouping columns, each with what the results will find its value in.
        place: Takes a call, returns the name of the column in which its value will be.
        window: The window, if the rows are grouped by one.
    """

    def __init__(
        self,
        rows: DataFrame,
        keys: Sequence[tuple[Column, Column]],
        place: Callable[[AggregateCall], str],
        window: GroupWindow | None = None,
    ) -> None:
        self._session = rows.sparkSession
        self._names = names_of(rows)
        self._keys = list(keys)
        self._place = place
        self._only: tuple[Column, str] | None = None
        self._without_nulls: tuple[str, ...] = ()
        self._window: Any = None
        if window is not None and window.held is not None:
            self._keys.append((window.held, window.result))
        elif window is not None and not any(same_name(rows, name, window.name) for name in rows.columns):
            # A stand-in: rows have no window before the operator has them.
            time = F.lit(None).cast("timestamp")
            rows = rows.withColumn(window.name, F.struct(time.alias("start"), time.alias("end")))
            self._keys.append((F.col(quoted(window.name)), window.result))
            self._window = listed(analyzed(rows).output())[-1]
        self._rows = rows

    def taken_apart(self, columns: Sequence[Column]) -> list[ResultColumn]:
        """The result columns that ``agg`` of these Columns has."""
        plan = analyzed(self._rows.groupBy(*(key for key, _ in self._keys)).agg(*columns))
        found = listed(plan.aggregateExpressions()) if plan.nodeName() == "Aggregate" else []
        if len(found) - len(columns) not in {0, len(self._keys)}:
            message = (
                "agg: a column is not computed from aggregates and keys alone, or stands for several. Give agg one "
                "Column for each aggregate, and compute the rest in withColumn(…) afterwards."
            )
            raise AnalysisError(message)
        return [self._result(expression, plan) for expression in found[len(found) - len(columns) :]]

    def pivoted(self, columns: Sequence[Column], pivot: Pivot) -> list[ResultColumn]:
        """The result columns that ``agg`` of these Columns has after ``pivot``, by the names that Spark gives them."""
        keys = [key for key, _ in self._keys]
        plan = analyzed(self._rows.groupBy(*keys).pivot(pivot.column, [*pivot.values]).agg(*columns))
        names = [str(each.name()) for each in listed(plan.output())][len(keys) :]
        # Where Spark looks values up in the groups that it has, it has none of a value that never came. Not by the plan
        # as text, of which the session says how much it shows.
        tops = [each for node in (plan, *children(plan)) for each in listed(node.expressions())]
        looked_up = any(kind_of(part) == "PivotFirst" for each in tops for part in parts_of(each))
        # Otherwise Spark makes nulls of what other values have, and has these two pass over all nulls.
        self._without_nulls = () if looked_up else ("First", "Last")
        found: list[ResultColumn] = []
        column = F.col(pivot.column)
        data_type = self._rows.select(column).schema.fields[0].dataType
        for value in pivot.values:
            # Compared as a value of the column's type, as by Spark: texts would fail beside a number, 0.1f is not 0.1.
            # In words of Python's, which are the same on all lines of Spark, and tell None from "NULL".
            self._only = column.eqNullSafe(F.lit(value).cast(data_type)), f"{pivot.column} <=> {value!r}"
            of_value = self.taken_apart([*columns, F.count(F.lit(1))])
            here = of_value.pop().column > 0
            for each in of_value:
                value_or_none = F.when(here, each.column) if looked_up else each.column
                found.append(ResultColumn(names[len(found)], value_or_none))
        self._only, self._without_nulls = None, ()
        return found

    def _result(self, named: Any, plan: Any) -> ResultColumn:
        keys = list(zip(listed(plan.groupingExpressions()), (found for _, found in self._keys), strict=True))

        def composed(part: Any) -> Any:
            if kind_of(part) == "AggregateExpression":
                return expression_of(F.col(quoted(self._place(self._call(part)))), self._session)
            found = next((found for key, found in keys if key.semanticEquals(part)), None)
            return None if found is None else expression_of(found, self._session)

        computed = inlined(without_alias(named), self._session)
        expression = rebuilt(computed, self._session, composed)
        # Of a pivoted column it would leave out the value that it is of.
        text = "" if self._only is not None else str(computed.sql())
        return ResultColumn(without_placeholders(str(named.name())), column_of(expression, self._session), text)

    def _call(self, expression: Any) -> AggregateCall:
        function, condition = expression.aggregateFunction(), expression.filter()
        if self._window is not None and expression.references().contains(self._window):
            name = str(self._window.name())
            message = (
                f"agg: {expression.sql()}: the window is not known yet where rows are aggregated. Compute with it "
                f'outside of the aggregate, as in F.max("ts") - F.col("{name}.start"); or give the rows a column of '
                "their own, with the same arguments, by withColumn(…, F.window(…)) before groupBy(…)."
            )
            raise AnalysisError(message)
        own, taken = stood_for(function), self._column(condition.get()) if condition.isDefined() else None
        only = ""
        if self._only is not None:
            if own is not None:
                message = f"pivot: {own} is an aggregate of sparkjet's. Use those of pyspark.sql.functions, or FILTER."
                raise AnalysisError(message)
            of_value, said = self._only
            only = f" WHERE {said}"
            taken = of_value if taken is None else of_value & taken
        text = f"{expression.sql()}{only}"
        kind = kind_of(function)
        filters = [condition.get()] if condition.isDefined() else []
        return AggregateCall(
            name=str(function.prettyName()),
            text=text,
            # Both: SQL leaves out some arguments, and the other text all of a long call behind the first 25.
            identity=f"{text} {expression.toString()}",
            function=function,
            columns=tuple(self._column(each) for each in children(function) if kind_of(each) != "SortOrder"),
            distinct=bool(expression.isDistinct()),
            condition=taken,
            own=own,
            order=tuple(self._sort_key(each) for each in children(function) if kind_of(each) == "SortOrder"),
            ignores_nulls=kind in self._without_nulls or (kind in _PICKING and bool(function.ignoreNulls())),
            unsaid=unsaid([*children(function), *filters], self._session),
        )

    def _sort_key(self, order: Any) -> tuple[Column, bool, bool]:
        down, last = (str(each) for each in (order.direction().sql(), order.nullOrdering().sql()))
        return self._column(order.child()), down == "DESC", last == "NULLS LAST"

    def _column(self, argument: Any) -> Column:
        return column_of(by_name(argument, self._session, self._names), self._session)


def names_in_order(rows: DataFrame, functions: Mapping[str, str]) -> dict[str, str]:
    """The results of a dict from column to function: names by column, in the order that Spark gives them."""
    found = listed(analyzed(rows.groupBy().agg({**functions})).aggregateExpressions())
    columns = listed(as_map(rows.sparkSession, functions.items()).keys().toSeq())
    return {str(column): str(each.name()) for column, each in zip(columns, found, strict=True)}


def names_of(rows: DataFrame) -> dict[int, str]:
    """Name of each column of some rows by its identity."""
    output = zip(listed(analyzed(rows).output()), rows.columns, strict=True)
    return {attribute_id(attribute): name for attribute, name in output}


_PICKING = ("AnyValue", "First", "Last")
"""Functions that pick a row, and may pass over nulls."""


def _plain(value: Any) -> Any:
    """A number of SQL such as 0.5, which is a decimal there, as Python writes it; likewise bytes."""
    if isinstance(value, bytearray):
        # What Spark 4.0 collects, and later ones where the session says so.
        return bytes(value)
    return float(value) if isinstance(value, Decimal) else value
