"""Grouped streams and their windowed results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import MapType, VariantType

from sparkjet.aggregates.operation import Aggregate, AggregateOperation, Inputs, as_aggregate
from sparkjet.api.frame_methods import one_by_one
from sparkjet.api.guided import Guided
from sparkjet.api.result_rows import ResultRows
from sparkjet.catalyst import alternatives
from sparkjet.catalyst.columns import HIDDEN, TIME
from sparkjet.catalyst.logical_plans import attribute_ids
from sparkjet.catalyst.row_by_row import Together
from sparkjet.errors import AnalysisError
from sparkjet.functions import count
from sparkjet.plan.event_time import EventTime
from sparkjet.plan.plan import Rows
from sparkjet.plan.transformations import Transformations
from sparkjet.plan.windowed_aggregation import Key, WindowedAggregation
from sparkjet.windows import SessionWindow, Window

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.plan.inputs import Input


class GroupedStream(Guided):
    """A stream grouped by a window and keys, the result of ``groupBy``; :meth:`agg` aggregates it."""

    _alternatives = alternatives.GROUPS_OF_STREAMS

    def __init__(
        self,
        transformations: Transformations,
        inputs: tuple[Input, ...],
        parent: WindowedAggregation | None,
        event_time: EventTime,
        columns: Sequence[Window | SessionWindow | Column | str],
    ) -> None:
        windows = [column for column in columns if isinstance(column, Window | SessionWindow)]
        if len(windows) != 1:
            message = (
                "groupBy: expected exactly one sj.window(…) or sj.session_window(…), "
                f"got {len(windows)}: without one no result is final."
            )
            raise AnalysisError(message)
        self._window = windows[0]
        if self._window.time_column != event_time.name:
            message = (
                f"{self._window.name}: the column {self._window.time_column!r} has no watermark, which is on "
                f"{event_time.name!r}. Use that column in both places."
            )
            raise AnalysisError(message)
        event_time.check(transformations.shape, self._window.name)
        self._chain = transformations
        self._inputs = inputs
        self._parent = parent
        columns_only = [column for column in columns if not isinstance(column, Window | SessionWindow)]
        fields = transformations.shape.select(*columns_only).schema.fields if columns_only else []
        if len(fields) != len(columns_only):
            message = "groupBy: name each key column separately; one of the columns stands for several."
            raise AnalysisError(message)
        for field in fields:
            if isinstance(field.dataType, MapType | VariantType):
                message = f"groupBy: {field.name!r} is of type {field.dataType.simpleString()}, which cannot be a key."
                raise AnalysisError(message)
        self._keys = tuple(
            Key(field.name, column if not isinstance(column, str) else F.col(column), field.dataType)
            for field, column in zip(fields, columns_only, strict=True)
        )
        names = iter(key.name for key in self._keys)
        order = (self._window.name if isinstance(c, Window | SessionWindow) else next(names) for c in columns)
        self._order = tuple(order)

    def agg(self, *exprs: Aggregate | AggregateOperation) -> WindowedStream:
        """Compute aggregates of :mod:`sparkjet.functions` or your own, as ``GroupedData.agg``.

        The rows are final: each window is emitted once, when the watermark has reached its end.

        Raises:
            AnalysisError: Not an aggregate, one of Spark's, or two columns of the same name.
        """
        if not exprs:
            message = "agg: give at least one aggregate, e.g. sparkjet.functions.count()."
            raise AnalysisError(message)
        aggregates = [as_aggregate(expression) for expression in exprs]
        names = [*self._order, *(aggregate.name for aggregate in aggregates)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            message = f"agg: two columns of the result are named {twice[0]!r}. Rename one with alias(…)."
            raise AnalysisError(message)
        inputs = Inputs(self._chain.shape.drop(*HIDDEN[1:]), F.col(TIME))
        aggregation = WindowedAggregation(
            transformations=self._chain,
            inputs=self._inputs,
            parent=self._parent,
            window=self._window,
            keys=self._keys,
            order=self._order,
            computes=tuple(aggregate.computes for aggregate in aggregates),
            results=tuple((aggregate.name, aggregate.resolve(inputs)) for aggregate in aggregates),
        )
        shape = aggregation.shape()
        # Sessions of one start can end, and so come, at different times.
        fields = ("end",) if isinstance(self._window, SessionWindow) else ("start", "end")
        together = Together(self._window.name, attribute_ids(shape, self._window.name), fields)
        return WindowedStream(aggregation, Transformations(shape, shape, together=together))

    def count(self) -> WindowedStream:
        """Number of rows in each window, in a column ``count``, as ``GroupedData.count``."""
        return self.agg(count().alias("count"))


class WindowedStream(ResultRows):
    """Final rows of windows: the window, the keys and the aggregates.

    ``select``, ``where``, ``withColumn`` and the like shape the rows; they do not change what is computed. Window
    functions (``F.rank().over(…)``) may compare results of the same window: partition them by the window column.
    """

    _kind = Rows.RESULTS

    def groupBy(self, *cols: Window | SessionWindow | Column | str) -> GroupedStream:
        """Aggregate these rows again in longer windows, e.g. the count per minute to the highest count per hour.

        The new window is over this one's window column, as in Spark: ``sj.window("window", "1 hour")``. The time of a
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
        return GroupedStream(self._chain, self._aggregation.inputs, self._aggregation, time, one_by_one(cols))

    def groupby(self, *cols: Window | SessionWindow | Column | str) -> GroupedStream:
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
