"""Grouped streams and their windowed results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from sparkjet.aggregates.operation import AggregateOperation, Inputs
from sparkjet.api.frame_methods import one_by_one
from sparkjet.api.guided import Guided
from sparkjet.api.result_rows import ResultRows
from sparkjet.catalyst import alternatives
from sparkjet.catalyst.columns import HIDDEN, TIME, quoted
from sparkjet.catalyst.logical_plans import attribute_ids
from sparkjet.catalyst.row_by_row import Together
from sparkjet.errors import AnalysisError
from sparkjet.plan.event_time import EventTime
from sparkjet.plan.grouping import Grouping, GroupingColumn, grouping_of
from sparkjet.plan.outputs import Rows
from sparkjet.plan.resolved_aggregates import resolved_aggregates
from sparkjet.plan.row_gaps import with_row_gaps
from sparkjet.plan.transformations import Transformations
from sparkjet.plan.windowed_aggregation import WindowedAggregation
from sparkjet.windows import SessionWindow

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.plan.inputs import Input


class GroupedStream(Guided):
    """A stream grouped by a window and keys, the result of ``groupBy``; :meth:`agg` aggregates it.

    Like ``GroupedData``; the rows of every result are final: each window is emitted once, when the watermark has
    reached its end.
    """

    _alternatives = alternatives.GROUPS_OF_STREAMS

    def __init__(
        self,
        transformations: Transformations,
        inputs: tuple[Input, ...],
        parent: WindowedAggregation | None,
        grouping: Grouping,
    ) -> None:
        window, self._chain = with_row_gaps(grouping.window, transformations)
        self._inputs = inputs
        self._parent = parent
        self._grouping = replace(grouping, window=window)

    def agg(self, *exprs: Column | AggregateOperation | Mapping[str, str]) -> WindowedStream:
        """Compute aggregates, as ``GroupedData.agg``.

        Args:
            exprs: Columns of aggregates, of ``pyspark.sql.functions`` or :mod:`sparkjet.functions`, and expressions
                over them such as ``F.sum("a") / F.count("b")``; operations of your own; or one dict from column to the
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
        if not exprs:
            message = 'agg: give at least one aggregate, e.g. pyspark.sql.functions.count("*").'
            raise AnalysisError(message)
        rows = self._chain.shape.drop(*HIDDEN[1:])
        keys = [key.column for key in self._grouping.keys]
        aggregates, columns = resolved_aggregates(exprs, Inputs(rows, F.col(TIME)), keys)
        names = [*self._grouping.order, *(column.name for column in columns)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            message = f"agg: two columns of the result are named {twice[0]!r}. Rename one with alias(…)."
            raise AnalysisError(message)
        aggregation = WindowedAggregation(
            transformations=self._chain,
            inputs=self._inputs,
            parent=self._parent,
            grouping=self._grouping,
            aggregates=aggregates,
            columns=columns,
        )
        shape = aggregation.shape()
        window = self._grouping.window
        # Sessions of one start can end, and so come, at different times.
        fields = ("end",) if isinstance(window, SessionWindow) else ("start", "end")
        together = Together(window.name, attribute_ids(shape, window.name), fields)
        return WindowedStream(aggregation, Transformations(shape, shape, together=together))

    def count(self) -> WindowedStream:
        """Number of rows in each window, in a column ``count``, as ``GroupedData.count``."""
        return self.agg(F.count(F.lit(1)).alias("count"))

    def sum(self, *cols: str) -> WindowedStream:
        """Sums of the columns, by default of all numeric ones, as ``GroupedData.sum``."""
        return self._of_each(F.sum, cols)

    def avg(self, *cols: str) -> WindowedStream:
        """Means of the columns, by default of all numeric ones, as ``GroupedData.avg``."""
        return self._of_each(F.avg, cols)

    def mean(self, *cols: str) -> WindowedStream:
        """Alias of :meth:`avg`."""
        return self.avg(*cols)

    def min(self, *cols: str) -> WindowedStream:
        """Least values of the columns, by default of all numeric ones, as ``GroupedData.min``."""
        return self._of_each(F.min, cols)

    def max(self, *cols: str) -> WindowedStream:
        """Greatest values of the columns, by default of all numeric ones, as ``GroupedData.max``."""
        return self._of_each(F.max, cols)

    def _of_each(self, function: Callable[[Column], Column], names: Sequence[str]) -> WindowedStream:
        fields = {field.name: field for field in self._chain.shape.drop(*HIDDEN).schema}
        numeric = [name for name, field in fields.items() if isinstance(field.dataType, NumericType)]
        chosen = names or numeric
        for name in chosen:
            if name in fields and name not in numeric:
                message = f"{function.__name__}: {name!r} is not a numeric column. Cast it first, or use agg(…)."
                raise AnalysisError(message)
        return self.agg(*(function(F.col(quoted(name))) for name in chosen))


class WindowedStream(ResultRows):
    """Final rows of windows: the window, the keys and the aggregates.

    ``select``, ``where``, ``withColumn`` and the like shape the rows; they do not change what is computed. Window
    functions (``F.rank().over(…)``) may compare results of the same window: partition them by the window column.
    """

    _kind = Rows.RESULTS

    def groupBy(self, *cols: GroupingColumn | Sequence[GroupingColumn]) -> GroupedStream:
        """Aggregate these rows again in longer windows, e.g. the count per minute to the highest count per hour.

        The new window is over this one's window column, as in Spark: ``F.window("window", "1 hour")``. The time of a
        row is the last microsecond of its window. No row is ever late here, as the watermark is the same.

        Raises:
            AnalysisError: Not exactly one window, columns that cannot be keys, or a window column that was replaced.
        """
        if TIME not in self._chain.shape.columns:
            message = (
                "groupBy: mapInPandas, mapInArrow and unpivot make new rows, which have no event time. Group first, "
                "and call them on what agg(…) returns."
            )
            raise AnalysisError(message)
        time = EventTime.of_results(self._aggregation.window.name, self._chain.source)
        grouping = grouping_of(one_by_one(cols), self._chain.shape, time)
        return GroupedStream(self._chain, self._aggregation.inputs, self._aggregation, grouping)

    def groupby(self, *cols: GroupingColumn | Sequence[GroupingColumn]) -> GroupedStream:
        """Alias of :meth:`groupBy`."""
        return self.groupBy(*cols)

    @property
    def lateRows(self) -> LateStream:
        """The rows that these windows dropped: late, or without an event time.

        Raises:
            AnalysisError: On windows over windows, where nothing can be late.
        """
        shape = self._aggregation.late_shape()
        return LateStream(self._aggregation, Transformations(shape, shape))


class LateStream(ResultRows):
    """Rows that a window dropped, as they arrived, with ``_substream``, ``_watermark`` and ``_reason``.

    ``_watermark`` is the watermark that made them late, ``_reason`` is ``late`` or ``null_timestamp``. Write them with
    ``sj.start(result.writeStream…, lateRows=result.lateRows.writeStream…)``.
    """

    _kind = Rows.LATE
