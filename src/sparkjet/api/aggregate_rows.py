"""What the results of aggregations share: complete ones can be sorted and limited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from sparkjet.api.result_rows import ResultRows
from sparkjet.plan import links
from sparkjet.plan.outputs import Rows

if TYPE_CHECKING:
    from pyspark.sql import Column


class AggregateRows(ResultRows):
    """Rows of an aggregation, one for each group."""

    _kind = Rows.RESULTS

    def orderBy(self, *cols: int | str | Column | Sequence[int | str | Column], **kwargs: Any) -> Self:
        """Sort complete results, as ``DataFrame.orderBy``: only with ``outputMode("complete")``, as in Spark.

        The start refuses other modes: what an epoch changes is not in any order.
        """
        # Sinks write what one task has in its order; and sorted by ranges, every epoch would take a sample first.
        return self._then(links.whole(lambda frame: frame.repartition(1).orderBy(*cols, **kwargs)))

    def sort(self, *cols: int | str | Column | Sequence[int | str | Column], **kwargs: Any) -> Self:
        """Alias of :meth:`orderBy`."""
        return self.orderBy(*cols, **kwargs)

    def limit(self, num: int) -> Self:
        """The first rows of complete results, as ``DataFrame.limit``; mostly after :meth:`orderBy`."""
        return self._then(links.whole(lambda frame: frame.limit(num)))
