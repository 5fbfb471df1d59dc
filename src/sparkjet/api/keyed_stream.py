"""Streams grouped by keys alone, or by windows without a watermark, and their results, which are never final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import Self

from sparkjet.api.aggregate_rows import AggregateRows
from sparkjet.api.frame_methods import one_by_one
from sparkjet.api.grouped_methods import GroupedMethods
from sparkjet.api.stateful_methods import StatefulMethods
from sparkjet.catalyst import alternatives
from sparkjet.errors import AnalysisError
from sparkjet.plan.grouping import time_without_watermark
from sparkjet.plan.rolling_aggregation import RollingAggregation
from sparkjet.plan.transformations import Transformations

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.api.grouped import LateStream
    from sparkjet.api.grouped_results import GroupedResults
    from sparkjet.plan.grouping import Grouping, Key
    from sparkjet.plan.resolved_aggregates import Expression
    from sparkjet.plan.stage import Feed


class KeyedStream(StatefulMethods, GroupedMethods["RollingStream"]):
    """A stream grouped by keys, the result of ``groupBy`` without a window; :meth:`agg` aggregates it.

    Like ``GroupedData``; results are of all rows so far, and never final. Without a watermark, windows are keys too:
    they never close.
    """

    def __init__(self, feed: Feed, grouping: Grouping) -> None:
        time = time_without_watermark(grouping.window, feed.transformations.shape)
        super().__init__(feed if time is None else replace(feed, time=time), grouping)

    @property
    def _keys(self) -> tuple[Key, ...]:
        if self._grouping.window is not None:
            message = (
                f"groupBy: {self._grouping.window.name!r} is a window. Functions with state are called for keys: put "
                "the column of the window among them with withColumn(…) before groupBy(…)."
            )
            raise AnalysisError(message)
        return self._grouping.keys

    def _aggregated(self, exprs: Sequence[Expression]) -> RollingStream:
        aggregation = RollingAggregation(self._feed, self._grouping, *self._resolved(exprs, self._grouping))
        shape = aggregation.shape()
        return RollingStream(aggregation, Transformations(shape, shape))


class RollingStream(AggregateRows):
    """Results that are never final: the keys and the aggregates of all rows so far.

    ``select``, ``where``, ``withColumn`` and the like shape the rows; they do not change what is computed. Write them
    with ``outputMode("update")``, which emits the rows of the keys that had rows in the epoch, or with
    ``outputMode("complete")``, which emits all.
    """

    _alternatives = alternatives.ROLLING_RESULTS

    def groupBy(self, *cols: str | Column | Sequence[str | Column]) -> GroupedResults[Self]:
        """Aggregate all results once more, as ``DataFrame.groupBy``: only with ``outputMode("complete")``.

        E.g. the mean of the lowest offers: a lowest offer that falls takes the place of the earlier one. Each epoch
        computes these groups from all results, so it costs what ``complete`` costs.

        >>> import sparkjet as sj
        >>> from pyspark.sql import functions as F
        >>> offers = sj.stream(spark.sql("SELECT id % 3 AS load, id % 3 % 2 AS kind, id AS cents FROM range(9)"))
        >>> lowest = offers.groupBy("load", "kind").agg(F.min("cents").alias("lowest"))
        >>> lowest.groupBy("kind").agg(F.avg("lowest")).toDF().orderBy("kind").collect()
        [Row(kind=0, avg(lowest)=1.0), Row(kind=1, avg(lowest)=1.0)]
        """
        return self._regrouped(lambda frame: frame.groupBy(*one_by_one(cols)), cols)

    if TYPE_CHECKING:
        # A type checker cannot tell F.window(…) from a key: what groupBy of Columns returns may be either.
        @property
        def lateRows(self) -> LateStream:
            """Of windows only."""

    def groupby(self, *cols: str | Column | Sequence[str | Column]) -> GroupedResults[Self]:
        """Alias of :meth:`groupBy`."""
        return self.groupBy(*cols)
