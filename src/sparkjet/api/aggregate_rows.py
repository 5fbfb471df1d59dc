"""What the results of aggregations share: complete ones can be sorted and limited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from sparkjet.api.frame_methods import one_by_one
from sparkjet.api.grouped_results import GroupedResults
from sparkjet.api.result_rows import ResultRows
from sparkjet.catalyst.columns import HIDDEN
from sparkjet.errors import refuse_connect
from sparkjet.plan import links
from sparkjet.plan.outputs import Rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData

    from sparkjet.aggregates.operation import AggregateOperation


class AggregateRows(ResultRows):
    """Rows of an aggregation, one for each group."""

    _kind = Rows.RESULTS

    def orderBy(self, *cols: int | str | Column | Sequence[int | str | Column], **kwargs: Any) -> Self:
        """Sort complete results, as ``DataFrame.orderBy``: only with ``outputMode("complete")``, as in Spark.

        The start refuses other modes: what an epoch changes is not in any order.
        """
        refuse_connect("orderBy", *cols)
        # Sinks write what one task has in its order; and sorted by ranges, every epoch would take a sample first.
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
