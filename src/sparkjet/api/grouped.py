"""Grouped streams and their results: final ones for windows, results so far for keys alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from typing_extensions import Self

from sparkjet.api.aggregate_rows import AggregateRows
from sparkjet.api.frame_methods import FrameMethods, check_how, one_by_one
from sparkjet.api.grouped_methods import GroupedMethods
from sparkjet.api.result_rows import ResultRows
from sparkjet.api.stateful_methods import StatefulMethods
from sparkjet.catalyst import alternatives
from sparkjet.catalyst.columns import TIME
from sparkjet.catalyst.logical_plans import attribute_ids
from sparkjet.catalyst.row_by_row import Together
from sparkjet.errors import AnalysisError
from sparkjet.plan.event_time import EventTime
from sparkjet.plan.grouping import GroupingColumn, grouped, keys_of, time_without_watermark
from sparkjet.plan.outputs import Rows
from sparkjet.plan.rolling_aggregation import RollingAggregation
from sparkjet.plan.row_gaps import with_row_gaps
from sparkjet.plan.stage import Feed
from sparkjet.plan.transformations import Transformations
from sparkjet.plan.window_join import JoinedResults, WindowJoin, window_join
from sparkjet.plan.windowed_aggregation import WindowedAggregation
from sparkjet.windows import SessionWindow, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.api.aggregate_rows import GroupedResults
    from sparkjet.api.stream import Stream
    from sparkjet.plan.grouping import Grouping, Key
    from sparkjet.plan.resolved_aggregates import Expression
    from sparkjet.plan.static_join import On
    from sparkjet.plan.static_tables import StaticTable


class GroupedStream(GroupedMethods["WindowedStream"]):
    """A stream grouped by a window and keys, the result of ``groupBy``; :meth:`agg` aggregates it.

    Like ``GroupedData``; the rows of every result are final: each window is emitted once, when the watermark has
    reached its end.
    """

    def __init__(self, feed: Feed, grouping: Grouping) -> None:
        assert grouping.window is not None  # noqa: S101 - else it is a KeyedStream
        window, chain = with_row_gaps(grouping.window, feed.transformations)
        super().__init__(replace(feed, transformations=chain), replace(grouping, window=window))

    def _aggregated(self, exprs: Sequence[Expression]) -> WindowedStream:
        feed, grouping, by_key = self._feed, self._grouping, self._grouping.by_key
        kept = None if by_key is None else RollingAggregation(feed, by_key, *self._resolved(exprs, by_key))
        return WindowedStream.of(WindowedAggregation(feed, grouping, *self._resolved(exprs, grouping), by_key=kept))


class ComputedWindows(StatefulMethods, GroupedStream):
    """The same if the window is a column of the rows: for functions with state, it is a key like any other."""

    def __init__(self, feed: Feed, grouping: Grouping, stream: type[Stream]) -> None:
        super().__init__(feed, grouping)
        self._stream = stream

    @property
    def _keys(self) -> tuple[Key, ...]:
        assert self._grouping.by_key is not None  # noqa: S101 - else it is a GroupedStream
        return self._grouping.by_key.keys


class WindowedStream(AggregateRows):
    """Final rows of windows: the window, the keys and the aggregates.

    ``select``, ``where``, ``withColumn`` and the like shape the rows; they do not change what is computed. Window
    functions (``F.rank().over(…)``) may compare results of the same window: partition them by the window column.
    """

    _stage: WindowedAggregation | WindowJoin

    @classmethod
    def of(cls, stage: WindowedAggregation | WindowJoin) -> Self:
        """The results of a stage."""
        shape, window = stage.shape(), stage.window
        # Sessions with the same start can end, and so arrive, at different times.
        fields = ("end",) if isinstance(window, SessionWindow) else ("start", "end")
        together = Together(window.name, attribute_ids(shape, window.name), fields)
        return cls(stage, Transformations(shape, shape, together=together))

    @property
    def _feed(self) -> Feed:
        return Feed(self._chain, self._stage.inputs, self._stage)

    def join(self, other: FrameMethods | DataFrame | StaticTable, on: On = None, how: str | None = None) -> Self:
        """Join with other results by their window, or with a static table; as ``DataFrame.join``.

        Results of windows with the same end are final in the same epoch, so that the join needs no state, and its rows
        are final. Both sides wait for the watermark of the query: the minimum over all substreams of both.

        Args:
            other: Results of equal windows, of the same stream or another one; or any other argument of
                :meth:`Stream.join`.
            on: Names of columns that both have, including the window; or a condition that requires equal windows, or
                equal ends of windows, and possibly more. In a condition, aliases distinguish the columns of the two
                sides.
            how: ``inner`` (the default), ``left``, ``right``, ``outer``, ``left_semi``, ``left_anti``.

        Raises:
            AnalysisError: Windows are not compared, or those of the two sides differ.

        >>> import sparkjet as sj
        >>> from pyspark.sql import functions as F
        >>> rows = "SELECT timestamp_seconds(id) AS ts, id % 2 AS k FROM range({}, {})"
        >>> def counted(first, last, name):
        ...     events = sj.stream(spark.sql(rows.format(first, last))).withWatermark("ts", "1 minute")
        ...     return events.groupBy(F.window("ts", "1 minute"), "k").agg(F.count("*").alias(name))
        >>> joined = counted(0, 90, "sent").join(counted(1, 31, "seen"), ["window", "k"], "left")
        >>> joined.select("k", "sent", "seen").toDF().orderBy("k", "sent").collect()
        [Row(k=0, sent=15, seen=None), Row(k=0, sent=30, seen=15),
         Row(k=1, sent=15, seen=None), Row(k=1, sent=30, seen=15)]
        """
        if not isinstance(other, WindowedStream):
            return super().join(other, on, how)
        check_how(how)
        return self._joined(other, on, how)

    def _joined(self, other: WindowedStream, on: On, how: str | None) -> Self:
        sides = JoinedResults(self._feed, self._stage.window), JoinedResults(other._feed, other._stage.window)
        return type(self).of(window_join(*sides, on, how))

    @overload
    def groupBy(self, window: Window | SessionWindow, /, *cols: GroupingColumn) -> GroupedStream: ...

    @overload
    def groupBy(self, *cols: GroupingColumn | Sequence[GroupingColumn]) -> GroupedStream | GroupedResults[Self]: ...

    def groupBy(self, *cols: GroupingColumn | Sequence[GroupingColumn]) -> Any:
        """Aggregate these rows again in longer windows, e.g. the count per minute to the highest count per hour.

        The new window is over this one's window column, as in Spark: ``F.window("window", "1 hour")``. The time of a
        row is the last microsecond of its window. No row is ever late here, as the watermark is the same.

        Without a window, all results are aggregated once more, as by :meth:`RollingStream.groupBy`: only with
        ``outputMode("complete")``, which keeps windows of fixed length.

        Raises:
            AnalysisError: Several windows, columns that cannot be keys, a window column that was replaced, or no window
                although results cannot be complete: over sessions and joins.
        """
        columns = one_by_one(cols)
        if self._can_be_complete and keys_of(columns, self._chain.shape) is not None:
            return self._regrouped(lambda frame: frame.groupBy(*columns))
        if TIME not in self._chain.shape.columns:
            message = (
                "groupBy: mapInPandas, mapInArrow and unpivot make new rows, which have no event time. Group first, "
                "and call them on what agg(…) returns."
            )
            raise AnalysisError(message)
        if self._chain.whole:
            message = "groupBy: orderBy and limit are for results as they are written. Leave them out before groupBy."
            raise AnalysisError(message)
        time = EventTime.of_results(self._stage.window.name, self._chain.source)
        grouping, chain = grouped(columns, self._chain, time)
        if grouping.window is None:
            message = (
                f'groupBy: results are aggregated again by a window: F.window("{self._stage.window.name}", '
                '"1 hour"), as long as you need.'
            )
            raise AnalysisError(message)
        return GroupedStream(replace(self._feed, transformations=chain), grouping)

    groupby = groupBy
    """Alias of :meth:`groupBy`."""

    @property
    def _can_be_complete(self) -> bool:
        return isinstance(self._stage, WindowedAggregation) and isinstance(self._stage.window, Window)

    @property
    def lateRows(self) -> LateStream:
        """The rows that these windows dropped: late, or without an event time.

        Raises:
            AnalysisError: On windows over windows and on joins, where nothing can be late.
        """
        if isinstance(self._stage, WindowJoin):
            message = "late rows: rows are late for the windows on each side of a join. Take lateRows of those."
            raise AnalysisError(message)
        shape = self._stage.late_shape()
        return LateStream(self._stage, Transformations(shape, shape))


class LateStream(ResultRows):
    """Rows that a stateful step dropped, as they arrived, with ``_substream``, ``_watermark`` and ``_reason``.

    ``_watermark`` is the watermark that made them late, ``_reason`` is ``late`` or ``null_timestamp``. Write them with
    ``sj.start(result.writeStream…, lateRows=result.lateRows.writeStream…)``.
    """

    _kind = Rows.LATE


class KeyedStream(StatefulMethods, GroupedMethods["RollingStream"]):
    """A stream grouped by keys, the result of ``groupBy`` without a window; :meth:`agg` aggregates it.

    Like ``GroupedData``; results cover all rows so far, and are never final. Without a watermark, windows are keys too:
    they never close.
    """

    def __init__(self, feed: Feed, grouping: Grouping, stream: type[Stream]) -> None:
        time = time_without_watermark(grouping.window, feed.transformations.shape)
        super().__init__(feed if time is None else replace(feed, time=time), grouping)
        self._stream = stream

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
    ``outputMode("complete")``, which emits all rows.
    """

    _alternatives = alternatives.ROLLING_RESULTS

    def groupBy(self, *cols: str | Column | Sequence[str | Column]) -> GroupedResults[Self]:
        """Aggregate all results once more, as ``DataFrame.groupBy``: only with ``outputMode("complete")``.

        For example, the mean of the lowest offers: a lowest offer that falls replaces the earlier one. Each epoch
        computes these groups from all results, so it costs as much as ``complete``.

        >>> import sparkjet as sj
        >>> from pyspark.sql import functions as F
        >>> offers = sj.stream(spark.sql("SELECT id % 3 AS load, id % 3 % 2 AS kind, id AS cents FROM range(9)"))
        >>> lowest = offers.groupBy("load", "kind").agg(F.min("cents").alias("lowest"))
        >>> lowest.groupBy("kind").agg(F.avg("lowest")).toDF().orderBy("kind").collect()
        [Row(kind=0, avg(lowest)=1.0), Row(kind=1, avg(lowest)=1.0)]
        """
        return self._regrouped(lambda frame: frame.groupBy(*one_by_one(cols)), cols)

    if TYPE_CHECKING:
        # A type checker cannot tell F.window(…) from a key: the result of groupBy with Columns may be either.
        @property
        def lateRows(self) -> LateStream:
            """Only for windows."""

    def groupby(self, *cols: str | Column | Sequence[str | Column]) -> GroupedResults[Self]:
        """Alias of :meth:`groupBy`."""
        return self.groupBy(*cols)
