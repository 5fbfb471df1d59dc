"""Streams: the objects from which a user builds a query, between ``sj.stream`` and ``writeStream``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from pyspark.sql import functions as F
from typing_extensions import Self

from sparkjet.api.deduplicated import Deduplicated
from sparkjet.api.diverted import Diverted
from sparkjet.api.expecting import Expecting
from sparkjet.api.frame_methods import one_by_one
from sparkjet.api.grouped import ComputedWindows, GroupedStream, KeyedStream, LateStream
from sparkjet.api.output_settings import OutputSettings, computed
from sparkjet.api.stream_joins import StreamJoins, grouped
from sparkjet.api.unions import Unions
from sparkjet.api.watermark_settings import watermark_settings
from sparkjet.api.writer import StreamWriter
from sparkjet.catalyst import alternatives
from sparkjet.catalyst.columns import HIDDEN, SUBSTREAM, TIME, TRIED, quoted, substream_id
from sparkjet.catalyst.doors import check_doors, check_one_release, named_if_locked
from sparkjet.catalyst.plan_analysis import check_source
from sparkjet.catalyst.python_sources import options_of
from sparkjet.connectors.grid.options import GRID_MAP
from sparkjet.engine.batch_run import check_expectations
from sparkjet.errors import AnalysisError
from sparkjet.executors import platform_of
from sparkjet.java import keep_classes
from sparkjet.plan import links
from sparkjet.plan.diverting import with_known_times
from sparkjet.plan.event_time import EventTime
from sparkjet.plan.expectations import Expected, expected, is_violation
from sparkjet.plan.inputs import Input
from sparkjet.plan.outputs import Rows
from sparkjet.plan.spark_sources import streaming_sources
from sparkjet.plan.stage import Feed
from sparkjet.plan.transformations import Transformation, Transformations
from sparkjet.spark_line import RELEASE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.aggregates.operation import AggregateOperation
    from sparkjet.api.grouped import RollingStream
    from sparkjet.plan.grouping import GroupingColumn
    from sparkjet.plan.stage import Stage
    from sparkjet.time import PolicySettings, Throttle
    from sparkjet.time.durations import Duration
    from sparkjet.windows import SessionWindow, Window


class Stream(Deduplicated, Diverted, Expecting, StreamJoins, Unions):
    """Events; after :meth:`withWatermark`, with a watermark per substream.

    This is not a DataFrame: it has only the operations that mean the same batch by batch. All methods run on the
    driver, return a new object and only describe the query; nothing runs before ``writeStream…start()``.
    """

    _alternatives = alternatives.STREAMS

    def __init__(self, feed: Feed, *times: EventTime) -> None:
        super().__init__(feed.transformations)
        self._feed = feed
        self._times = times

    @property
    def _event_time(self) -> EventTime | None:
        """The event time of the rows; after a join, the first one."""
        return self._times[0] if self._times else None

    def _with(self, chain: Transformations) -> Self:
        return type(self)(replace(self._feed, transformations=chain), *self._times)

    def _of(self, feed: Feed, event_time: EventTime | None = None) -> Self:
        return type(self)(feed) if event_time is None else type(self)(feed, event_time)

    def _after(self, stage: Stage) -> Self:
        shape = stage.shape()
        feed = Feed(Transformations(shape, shape), self._feed.inputs, stage, self._feed.name)
        return type(self)(feed, *(time.kept_in(self._chain.shape) for time in self._times))

    def _remade(self, method: str, step: Transformation) -> Self:
        if self._event_time is not None:
            message = (
                f"{method}: the rows that it makes would be without event time and substream. Call it before "
                "withWatermark(…)."
            )
            raise AnalysisError(message)
        return super()._remade(method, step)

    def alias(self, alias: str) -> Stream:
        """Name the stream, for columns such as ``<alias>.name``, as ``DataFrame.alias``.

        In a union its substreams are called ``<alias>/…``.
        """
        given: object = alias
        if not isinstance(given, str) or not alias or "/" in alias:
            raise AnalysisError(f"alias: {alias!r} must be a name without a slash.")
        chain = self._chain.then(links.alias(alias))
        return Stream(replace(self._feed, transformations=chain, name=alias), *self._times)

    def withWatermark(  # noqa: PLR0913 - as what Spark calls the second argument is one more
        self,
        eventTime: str,
        policy: PolicySettings | Duration | None = None,
        *,
        delayThreshold: Duration | None = None,
        by: str | Sequence[str] = (),
        substreams: Sequence[str] = (),
        discover: Duration | None = None,
        idleTimeout: Duration | None = None,
        substreamTimeout: Duration | None = None,
        throttle: Throttle | None = None,
    ) -> Stream:
        """Define the event time and how far it may be out of order, as ``DataFrame.withWatermark``.

        Unlike Spark's, the watermark is tracked per substream and the minimum wins, so a substream that lags behind
        the others loses nothing: it holds the windows open until it has caught up or is idle.

        Args:
            eventTime: Name of a timestamp column. Rows in which it is null are dropped, counted and reported.
            policy: A policy such as ``sj.limiting_lag("5 minutes")``; a bare duration means ``limiting_lag``.
                ``sj.carried()`` uses the watermark of the query that wrote the rows, if the source carries it.
            delayThreshold: Spark's name for the duration, if it is passed as a keyword.
            by: Column or columns that name the substream, e.g. ``"partition"``; several are joined by ``/``.
                Without it all rows are one substream, except those of ``sparkjet-kafka`` with the columns topic and
                partition, and of ``sparkjet-grid-journal`` with ``_partition``: each partition is a substream
                (``"clicks/0"``) and is waited for from the moment it exists, so it need not be listed or discovered.
            substreams: Names of substreams to wait for from the start. The first rows of a substream that is not listed
                and appears later may be late.
            discover: Processing time after the query's first start in which no window closes, so that unlisted
                substreams can appear first.
            idleTimeout: Processing time after which a substream without rows no longer holds back the watermark, unless
                its source has more to read. None: never.
            substreamTimeout: Processing time after which a substream without rows is removed for good; see also
                :meth:`StreamingQuery.retireSubstream`. None: never.
            throttle: When the watermark may advance; by default in steps of the windows' slides.

        Raises:
            AnalysisError: A wrong column, type, policy or duration; the message names it and what would be right.
        """
        if self._event_time is not None:
            message = (
                f"withWatermark({eventTime!r}): this stream already has one, on {self._event_time.name!r}. Call it "
                "once."
            )
            raise AnalysisError(message)
        if self._feed.parent is not None:
            message = f"withWatermark({eventTime!r}): these rows come from a stateful step. Call it before that step."
            raise AnalysisError(message)
        lag = policy if policy is not None else delayThreshold
        if lag is None or (policy is not None and delayThreshold is not None):
            message = f'withWatermark: give one duration or policy, as in withWatermark({eventTime!r}, "10 seconds").'
            raise AnalysisError(message)
        settings = watermark_settings(
            self._visible,
            eventTime,
            lag,
            by=(by,) if isinstance(by, str) else tuple(by),
            substreams=substreams,
            discover=discover,
            idleTimeout=idleTimeout,
            substreamTimeout=substreamTimeout,
            throttle=throttle,
        )
        self._chain.check_fixed("withWatermark")
        _check_counted(self._chain)
        name = settings.event_time
        hidden = {TIME: F.unix_micros(quoted(name)), SUBSTREAM: substream_id(settings.by)}
        if self._chain.divert is None:
            source = shape = self._chain.shape.withColumns(hidden)
            timing = None
        else:
            violated = is_violation(expected(self._chain.diverted_links))
            timing = links.timing(hidden, settings.by, violated, self._chain.all_links[-1].number)
            source = with_known_times(self._chain.tried(self._chain.source), hidden, settings.by, violated)
            shape = source.drop(*TRIED)
        each = Input("", settings, streaming_sources(source))
        chain = Transformations(source, shape, below=self._chain, timing=timing, windows=self._chain.windows)
        return Stream(Feed(chain, (each,), None, self._feed.name), EventTime.of_watermark(name, source))

    @overload
    def groupBy(self, *cols: str) -> KeyedStream: ...

    @overload
    def groupBy(self, window: Window | SessionWindow, /, *cols: GroupingColumn) -> GroupedStream: ...

    @overload
    def groupBy(self, *cols: GroupingColumn | Sequence[GroupingColumn]) -> GroupedStream | KeyedStream: ...

    def groupBy(self, *cols: GroupingColumn | Sequence[GroupingColumn]) -> Any:
        """Group by keys, and by a window for results that are final, as ``DataFrame.groupBy``.

        Without a window, or without a watermark, results are never final: they cover all rows so far, and are written
        with ``outputMode("update")`` or ``outputMode("complete")``.

        Args:
            cols: Keys, and at most one of ``sj.window``, ``sj.session_window``, ``F.window`` and ``F.session_window``.

        Raises:
            AnalysisError: Several windows, session windows without a watermark, columns that cannot be keys, or an
                event time that was replaced after ``withWatermark``.
        """
        columns = one_by_one(cols)
        feed, grouping = grouped(self._feed, self._times, columns)
        if grouping.by_key is not None:
            return ComputedWindows(feed, grouping, Stream)
        is_final = grouping.window is not None and self._times
        return GroupedStream(feed, grouping) if is_final else KeyedStream(feed, grouping, Stream)

    groupby = groupBy
    """Alias of :meth:`groupBy`."""

    def agg(self, *exprs: Column | AggregateOperation | Mapping[str, str]) -> RollingStream:
        """Aggregate all rows so far, as ``DataFrame.agg``: one row, which is never final.

        >>> import sparkjet as sj
        >>> sj.stream(spark.range(4)).agg({"id": "max"}).toDF().collect()
        [Row(max(id)=3)]
        """
        return self.groupBy().agg(*exprs)

    @property
    def lateRows(self) -> LateStream:
        """The rows that the preceding stateful step has dropped: late, or without an event time.

        Raises:
            AnalysisError: There is no such step, or nothing can be late there.
        """
        stage = self._feed.parent
        if stage is None:
            message = (
                "lateRows: no row of a stream is late by itself. Take lateRows of the result of a window or a stateful "
                "step."
            )
            raise AnalysisError(message)
        shape = stage.late_shape()
        return LateStream(stage, Transformations(shape, shape))

    @property
    def isStreaming(self) -> bool:
        """Whether the rows come from a stream; otherwise :meth:`toDF` computes them."""
        return self._feed.is_streaming

    def _computed(self) -> DataFrame:
        if self._feed.parent is not None:
            return computed(self._written)
        chain = self._chain
        if expected(chain.all_links):
            check_expectations(self._written.nowhere)
        return self._visible if chain.divert is None else chain.apply(chain.source).drop(*HIDDEN)

    @property
    def writeStream(self) -> StreamWriter:
        """The way to a sink for the rows themselves, without windows, as ``DataFrame.writeStream``.

        They include late rows and rows without an event time: only windows drop rows.
        """
        return StreamWriter(self._written)

    @property
    def _written(self) -> OutputSettings:
        parent = self._feed.parent
        return OutputSettings(parent, Rows.INPUT if parent is None else Rows.RESULTS, self._chain)


def _check_counted(chain: Transformations) -> None:
    """Refuse expectations in what becomes part of Spark's own query, where they would not be counted."""
    uncounted = Expected.of(chain).plain
    if uncounted:
        name = next(iter(uncounted.values())).name
        message = (
            f"withWatermark: what comes before is a part of the query that Spark runs, where rows that do not meet the "
            f"expectation {name!r} could not be counted. Call expect(…) after withWatermark(…), or divert(errors=True) "
            "before it."
        )
        raise AnalysisError(message)


def stream(df: DataFrame) -> Stream:
    """Start a query from a streaming DataFrame of any ``spark.readStream`` source.

    Args:
        df: The streaming DataFrame. Spark may have transformed it row by row (select, where, withColumn, explode,
            mapInPandas, unions, joins with batch DataFrames), but not with ``withWatermark``, with anything that keeps
            state, or with anything that treats each batch separately. A batch DataFrame is all rows of a stream at
            once, for tests: ``toDF()`` computes the result.

    Raises:
        AnalysisError: A DataFrame of Spark Connect, one that Spark does not compute row by row, or a newer Spark that
            lacks what sparkjet needs.

    >>> import sparkjet as sj
    >>> from pyspark.sql import functions as F
    >>> def per_minute(events):
    ...     return events.withWatermark("ts", "1 minute").groupBy(F.window("ts", "1 minute")).count()
    >>> rows = spark.sql("SELECT timestamp_seconds(id) AS ts FROM range(0, 90)")
    >>> per_minute(sj.stream(rows)).select("count").toDF().collect()
    [Row(count=60), Row(count=30)]
    """
    with named_if_locked():
        check_source(df)
        check_one_release(RELEASE, platform_of(df.sparkSession).release)
        check_doors(df.sparkSession)
    keep_classes(df.sparkSession)
    if df.isStreaming and options_of(df, GRID_MAP):
        message = (
            "stream: the DataFrame is joined with a map of a grid, and Spark would read it once and for all. "
            "Join with it after stream(…): each epoch reads the newest version then."
        )
        raise AnalysisError(message)
    return Stream(Feed(Transformations(df, df)))
