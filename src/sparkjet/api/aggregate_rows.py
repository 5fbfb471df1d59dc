"""The common part of the results of aggregations: complete results can be sorted and limited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark.sql import Column
from typing_extensions import Self

from sparkjet.api.frame_methods import one_by_one
from sparkjet.api.guided import Guided
from sparkjet.api.result_rows import ResultRows
from sparkjet.catalyst import alternatives
from sparkjet.catalyst.columns import HIDDEN
from sparkjet.catalyst.placeholders import has_placeholder
from sparkjet.errors import AnalysisError, refuse_connect
from sparkjet.plan import links
from sparkjet.plan.outputs import Rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData

    from sparkjet.aggregates.operation import AggregateOperation
    from sparkjet.plan.transformations import Link


Results = TypeVar("Results", bound="AggregateRows")


class GroupedResults(Guided, Generic[Results]):
    """Results that are never final, grouped again; like ``GroupedData``.

    Nothing is stored for these groups: each epoch computes them from all results, which ``outputMode("complete")``
    emits. Any of Spark's aggregates can be used, including those that cannot be combined.
    """

    _alternatives = alternatives.GROUPS_OF_RESULTS

    def __init__(
        self, then: Callable[[Link], Results], group: Callable[[DataFrame], GroupedData], shape: DataFrame
    ) -> None:
        self._then = then
        self._group = group
        self._shape = shape

    def __repr__(self) -> str:
        return repr(self._group(self._shape)).replace("GroupedData", type(self).__name__, 1)

    def pivot(self, pivot_col: str, values: Sequence[Any] | None = None) -> GroupedResults[Results]:
        """Make a column for each of some values, as ``GroupedData.pivot``.

        Raises:
            AnalysisError: There are no values: when the query starts, it is not known which ones will come.
        """
        if not values:
            raise AnalysisError(f'pivot: give the values of {pivot_col!r}, e.g. pivot("{pivot_col}", ["a", "b"]).')
        return GroupedResults(self._then, lambda frame: self._group(frame).pivot(pivot_col, [*values]), self._shape)

    def agg(self, *exprs: Column | Mapping[str, str] | AggregateOperation) -> Results:
        """Compute aggregates of all results, as ``GroupedData.agg``.

        Raises:
            AnalysisError: Not one of Spark's aggregates.
            AnalysisException: Spark cannot analyze a Column, e.g. because it names a column that does not exist.
        """
        refuse_connect("agg", *exprs)
        if any(has_placeholder(each) if isinstance(each, Column) else not isinstance(each, Mapping) for each in exprs):
            message = (
                "agg: complete results are aggregated by Spark, which does not have the aggregates of sparkjet. Use "
                "those of pyspark.sql.functions."
            )
            raise AnalysisError(message)
        return self._aggregated(lambda grouped: grouped.agg(*exprs))  # type: ignore[arg-type]

    def count(self) -> Results:
        """Number of results, in a column ``count``, as ``GroupedData.count``."""
        return self._aggregated(lambda grouped: grouped.count())

    def sum(self, *cols: str) -> Results:
        """Sums of the columns, by default of all numeric ones, as ``GroupedData.sum``."""
        return self._aggregated(lambda grouped: grouped.sum(*cols))

    def avg(self, *cols: str) -> Results:
        """Means of the columns, by default of all numeric ones, as ``GroupedData.avg``."""
        return self._aggregated(lambda grouped: grouped.avg(*cols))

    def mean(self, *cols: str) -> Results:
        """Alias of :meth:`avg`."""
        return self.avg(*cols)

    def min(self, *cols: str) -> Results:
        """Least values of the columns, by default of all numeric ones, as ``GroupedData.min``."""
        return self._aggregated(lambda grouped: grouped.min(*cols))

    def max(self, *cols: str) -> Results:
        """Greatest values of the columns, by default of all numeric ones, as ``GroupedData.max``."""
        return self._aggregated(lambda grouped: grouped.max(*cols))

    def _aggregated(self, aggregated: Callable[[GroupedData], DataFrame]) -> Results:
        return self._then(links.regrouped(lambda frame: aggregated(self._group(frame))))


class AggregateRows(ResultRows):
    """Rows of an aggregation, one for each group."""

    _kind = Rows.RESULTS

    def orderBy(self, *cols: int | str | Column | Sequence[int | str | Column], **kwargs: Any) -> Self:
        """Sort complete results, as ``DataFrame.orderBy``: only with ``outputMode("complete")``, as in Spark.

        The start refuses other modes: the rows that an epoch changes are not in any order.
        """
        refuse_connect("orderBy", *cols)
        # Sinks write the rows of one task in its order; and with range sorting, every epoch would first take a sample.
        return self._then(links.whole(lambda frame: frame.repartition(1).orderBy(*cols, **kwargs)))

    def sort(self, *cols: int | str | Column | Sequence[int | str | Column], **kwargs: Any) -> Self:
        """Alias of :meth:`orderBy`."""
        return self.orderBy(*cols, **kwargs)

    def agg(self, *exprs: Column | Mapping[str, str] | AggregateOperation) -> Self:
        """Aggregate complete results to one row, as ``DataFrame.agg``: only with ``outputMode("complete")``."""
        return self._regrouped(lambda frame: frame.groupBy()).agg(*exprs)

    def rollup(self, *cols: str | Column | Sequence[str | Column]) -> GroupedResults[Self]:
        """Aggregate complete results with their totals, as ``DataFrame.rollup``; see :meth:`RollingStream.groupBy`."""
        return self._regrouped(lambda frame: frame.rollup(*one_by_one(cols)), cols)

    def cube(self, *cols: str | Column | Sequence[str | Column]) -> GroupedResults[Self]:
        """Aggregate complete results by all combinations of columns, as ``DataFrame.cube``."""
        return self._regrouped(lambda frame: frame.cube(*one_by_one(cols)), cols)

    def groupingSets(self, groupingSets: Sequence[Sequence[str | Column]], *cols: str | Column) -> GroupedResults[Self]:
        """Aggregate complete results by several sets of columns, as ``DataFrame.groupingSets``."""
        return self._regrouped(lambda frame: frame.groupingSets(groupingSets, *cols), (groupingSets, cols))

    def _regrouped(self, group: Callable[[DataFrame], GroupedData], cols: Sequence[Any] = ()) -> GroupedResults[Self]:
        refuse_connect("groupBy", cols)
        return GroupedResults(self._then, group, self._chain.shape.drop(*HIDDEN))

    def limit(self, num: int) -> Self:
        """The first rows of complete results, as ``DataFrame.limit``; mostly after :meth:`orderBy`."""
        return self._then(links.whole(lambda frame: frame.limit(num)))
