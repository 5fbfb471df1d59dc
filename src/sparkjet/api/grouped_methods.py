"""The methods of ``GroupedData`` that all grouped streams share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType
from typing_extensions import Self

from sparkjet.aggregates.operation import AggregateOperation, Inputs
from sparkjet.api.aggregate_rows import AggregateRows
from sparkjet.api.guided import Guided
from sparkjet.catalyst import alternatives
from sparkjet.catalyst.aggregate_calls import Pivot
from sparkjet.catalyst.columns import HIDDEN, TIME, quoted
from sparkjet.errors import AnalysisError
from sparkjet.plan.aggregation import group_window
from sparkjet.plan.grouping import with_group_window
from sparkjet.plan.resolved_aggregates import Expression, resolved_aggregates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.catalyst.aggregate_calls import ResultColumn
    from sparkjet.plan.aggregation import ResolvedAggregate
    from sparkjet.plan.grouping import Grouping
    from sparkjet.plan.stage import Feed

Result = TypeVar("Result", bound=AggregateRows)
_RETAINED = "spark.sql.retainGroupColumns"


class GroupedMethods(Guided, ABC, Generic[Result]):
    """The methods of ``GroupedData`` that all grouped streams share; :meth:`agg` aggregates."""

    _alternatives = alternatives.GROUPS_OF_STREAMS

    def __init__(self, feed: Feed, grouping: Grouping) -> None:
        self._feed = feed
        self._grouping = grouping
        self._pivot: Pivot | None = None

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}: {found}" for name, found in self._feed.shape.drop(*HIDDEN).dtypes)
        return f"{type(self).__name__}[grouping expressions: [{', '.join(self._grouping.order)}], value: [{rows}]]"

    @abstractmethod
    def _aggregated(self, exprs: Sequence[Expression]) -> Result:
        """The results of some aggregates."""

    def agg(self, *exprs: Column | AggregateOperation | Mapping[str, str]) -> Result:
        """Compute aggregates, as ``GroupedData.agg``.

        Args:
            exprs: Columns of aggregates, from ``pyspark.sql.functions`` or :mod:`sparkjet.functions`, and expressions
                over them such as ``F.sum("a") / F.count("b")``; your own operations; or one dict from column to the
                name of a function.

        Raises:
            AnalysisError: Not an aggregate, one that cannot be combined, or two columns of the same name.
            AnalysisException: Spark cannot analyze a Column, e.g. because it names a column that does not exist.

        >>> import sparkjet as sj
        >>> from pyspark.sql import functions as F
        >>> events = sj.stream(spark.readStream.format("rate").load()).withWatermark("timestamp", "1 minute")
        >>> minutes = events.groupBy(F.window("timestamp", "1 minute"))
        >>> minutes.agg(F.round(F.avg("value"), 2), (F.max("value") - F.min("value")).alias("spread")).columns
        ['window', 'round(avg(value), 2)', 'spread']
        """
        if not exprs or any(isinstance(each, Mapping) and not each for each in exprs):
            raise AnalysisError('agg: give at least one aggregate, e.g. pyspark.sql.functions.count("*").')
        self._check_keys()
        return self._aggregated(exprs)

    def _resolved(
        self, exprs: Sequence[Expression], grouping: Grouping
    ) -> tuple[tuple[ResolvedAggregate, ...], tuple[ResultColumn, ...]]:
        """The aggregates and the result columns of some expressions; refused as by :meth:`agg`."""
        rows = self._feed.shape
        inputs = Inputs(rows.drop(*HIDDEN[1:]), F.col(TIME))
        exprs = [with_group_window(each, self._grouping, rows) if isinstance(each, Column) else each for each in exprs]
        keys = [key.column for key in grouping.keys]
        aggregates, columns = resolved_aggregates(exprs, inputs, keys, group_window(grouping), self._pivot)
        names = [*grouping.order, *(column.name for column in columns)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise AnalysisError(f"agg: two columns of the result are named {twice[0]!r}. Rename one with alias(…).")
        return aggregates, columns

    def pivot(self, pivot_col: str, values: Sequence[Any] | None = None) -> Self:
        """Make a column for each of some values, as ``GroupedData.pivot``.

        Args:
            pivot_col: The column that has these values.
            values: The values; Spark would determine them by reading all rows, but a stream has no end.

        Raises:
            AnalysisError: There are no values, or it is called twice.

        >>> import sparkjet as sj
        >>> sales = sj.stream(spark.createDataFrame([("n", 1, 5), ("n", 2, 7), ("s", 1, 2)], "k string, q int, n int"))
        >>> sales.groupBy("k").pivot("q", [1, 2]).sum("n").toDF().orderBy("k").collect()
        [Row(k='n', 1=5, 2=7), Row(k='s', 1=2, 2=None)]
        """
        if not values:
            message = (
                f'pivot: give the values of {pivot_col!r} that become columns, e.g. pivot("{pivot_col}", ["a", "b"]): '
                "which ones a stream will have is not known when it starts."
            )
            raise AnalysisError(message)
        if self._pivot is not None:
            message = (
                "pivot: it is called once for each groupBy(…). Pivot by a column of both values, e.g. F.concat(…)."
            )
            raise AnalysisError(message)
        pivoted = copy(self)
        pivoted._pivot = Pivot(pivot_col, tuple(values))  # noqa: SLF001 - a copy of this one
        return pivoted

    def count(self) -> Result:
        """Number of rows, in a column ``count``, as ``GroupedData.count``."""
        return self.agg(F.count(F.lit(1)).alias("count"))

    def sum(self, *cols: str) -> Result:
        """Sums of the columns, by default of all numeric ones, as ``GroupedData.sum``."""
        return self._of_each(F.sum, cols)

    def avg(self, *cols: str) -> Result:
        """Means of the columns, by default of all numeric ones, as ``GroupedData.avg``."""
        return self._of_each(F.avg, cols)

    def mean(self, *cols: str) -> Result:
        """Alias of :meth:`avg`."""
        return self.avg(*cols)

    def min(self, *cols: str) -> Result:
        """Least values of the columns, by default of all numeric ones, as ``GroupedData.min``."""
        return self._of_each(F.min, cols)

    def max(self, *cols: str) -> Result:
        """Greatest values of the columns, by default of all numeric ones, as ``GroupedData.max``."""
        return self._of_each(F.max, cols)

    def _check_keys(self) -> None:
        """Refuse results that Spark would return without their keys, by which operators and sinks distinguish them."""
        if str(self._feed.shape.sparkSession.conf.get(_RETAINED)).lower() == "false":
            message = (
                f"agg: {_RETAINED} is false, and results would have no grouping columns, by which they are told apart. "
                "Set it to true, and drop(…) columns of the result that you do not want."
            )
            raise AnalysisError(message)

    def _of_each(self, function: Callable[[Column], Column], names: Sequence[str]) -> Result:
        rows = self._feed.shape.drop(*HIDDEN)
        chosen = [_numeric(function.__name__, name, rows) for name in names]
        if not names:
            chosen = [quoted(each.name) for each in rows.schema if isinstance(each.dataType, NumericType)]
        return self.agg(*(function(F.col(name)) for name in chosen))


def _numeric(method: str, name: object, rows: DataFrame) -> str:
    """A numeric column, as named in SQL; others are refused."""
    if not isinstance(name, str):
        raise AnalysisError(f"{method}: {name!r} is not the name of a column. Give one, or use agg(…).")
    # Otherwise as in Spark: it may be a field of a struct, or spelled in another case.
    found = quoted(name) if name in rows.columns else name
    if not isinstance(rows.select(found).schema.fields[0].dataType, NumericType):
        raise AnalysisError(f"{method}: {name!r} is not a numeric column. Cast it first, or use agg(…).")
    return found
