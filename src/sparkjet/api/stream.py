"""Streams: what a user builds a query from, between ``sj.stream`` and ``writeStream``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType
from typing_extensions import Self

from sparkjet.api.frame_methods import FrameMethods, one_by_one
from sparkjet.api.grouped import GroupedStream
from sparkjet.api.output_settings import OutputSettings
from sparkjet.api.writer import StreamWriter
from sparkjet.catalyst import alternatives
from sparkjet.catalyst.columns import SUBSTREAM, TIME, quoted, substream_id
from sparkjet.catalyst.plan_analysis import check_source
from sparkjet.errors import AnalysisError, nearest
from sparkjet.plan import links
from sparkjet.plan.event_time import EventTime, check_union
from sparkjet.plan.grouping import grouping_of
from sparkjet.plan.inputs import Input, WatermarkSettings
from sparkjet.plan.outputs import Rows
from sparkjet.plan.spark_sources import partition_columns, streaming_sources
from sparkjet.plan.transformations import Transformation, Transformations
from sparkjet.plan.union import united
from sparkjet.time import limiting_lag, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.grouping import GroupingColumn
    from sparkjet.time import PolicySettings, Throttle
    from sparkjet.time.durations import Duration

logger = logging.getLogger("sparkjet")

PARTITION = ("topic", "partition")
"""Columns that name a Kafka partition."""


class Stream(FrameMethods):
    """Events, after :meth:`withWatermark` with a watermark per substream.

    Not a DataFrame: it has only the operations that mean the same batch by batch. All methods run on the driver,
    return a new object and only describe the query; nothing runs before ``writeStream…start()``.
    """

    _alternatives = alternatives.STREAMS

    def __init__(
        self,
        chain: Transformations,
        inputs: tuple[Input, ...] = (),
        event_time: EventTime | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(chain)
        self._inputs = inputs
        self._event_time = event_time
        self._name = name

    def _with(self, chain: Transformations) -> Self:
        return type(self)(chain, self._inputs, self._event_time, self._name)

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
        if not alias or "/" in alias:
            message = f"alias: {alias!r} must be a name without a slash."
            raise AnalysisError(message)
        return Stream(self._chain.then(links.alias(alias)), self._inputs, self._event_time, alias)

    def withWatermark(
        self,
        eventTime: str,
        policy: PolicySettings | Duration,
        *,
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
            by: Column or columns that name the substream, e.g. ``"partition"``; several are joined by ``/``.
                Without it all rows are one substream, except those of ``sparkjet-kafka`` with the columns topic and
                partition: each partition is a substream (``"clicks/0"``) and is waited for from the moment it
                exists, so it need not be listed or discovered.
            substreams: Names of substreams to wait for from the start. The first rows of one that is not listed and
                appears later may be late.
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
            message = f"withWatermark({eventTime!r}): this stream already has one, on {self._event_time.name!r}."
            raise AnalysisError(message)
        columns = (by,) if isinstance(by, str) else tuple(by)
        for option, name in [("eventTime", eventTime), *(("by", name) for name in columns)]:
            if name not in self.columns:
                message = f"withWatermark: {option}={name!r} is not a column; {nearest(str(name), self.columns)}"
                raise AnalysisError(message)
        found = self.schema[eventTime].dataType
        if not isinstance(found, TimestampType):
            message = (
                f"withWatermark: the event time {eventTime!r} is of type {found.simpleString()}, not timestamp. "
                f"Convert it first, e.g. withColumn({eventTime!r}, F.timestamp_millis({eventTime!r})) or a cast."
            )
            raise AnalysisError(message)
        if isinstance(substreams, str) or (substreams and not columns):
            message = f"withWatermark: substreams={substreams!r} must be a list of names, and needs by=…"
            raise AnalysisError(message)
        partitions = partition_columns(self._chain.shape)
        if not columns and partitions == PARTITION:
            columns = PARTITION
        elif not columns and partitions is not None:
            logger.warning(
                "withWatermark: without the columns topic and partition all Kafka partitions are one substream, and "
                "rows of a slow one may be late. Keep both columns, or name others with by=…"
            )
        settings = WatermarkSettings(
            event_time=eventTime,
            policy=limiting_lag(policy) if not hasattr(policy, "create") else policy,
            by=columns,
            substreams=tuple(str(name) for name in substreams),
            discover=_optional(discover, "discover"),
            idle_timeout=_optional(idleTimeout, "idleTimeout"),
            substream_timeout=_optional(substreamTimeout, "substreamTimeout"),
            throttle=throttle,
            partitions=columns in (PARTITION, PARTITION[1:]) and set(columns) <= set(partitions or ()),
        )
        hidden = {TIME: F.unix_micros(quoted(eventTime)), SUBSTREAM: substream_id(columns)}
        source = self._chain.shape.withColumns(hidden)
        each = Input("", settings, streaming_sources(source))
        chain = Transformations(source, source, below=self._chain)
        return Stream(chain, (each,), EventTime.of_watermark(eventTime, source), self._name)

    def union(self, other: Stream) -> Stream:
        """The rows of both streams, column by column, as ``DataFrame.union``; each keeps its own watermark policy.

        The watermark is the minimum over all substreams of all inputs. Their names are prefixed with ``1/`` and
        ``2/``, or with the streams' :meth:`alias`. Windows name this stream's event-time column. Two streams without a
        watermark become one, which may be given one for all its rows.

        Filter after the union rather than before: with a ``where`` before it, each batch is persisted in memory and
        read once for each side.

        Raises:
            AnalysisError: Not a stream, a watermark on one of them only, different columns, or an event time that was
                replaced or is not in the same place in both.
        """
        given: object = other
        if not isinstance(given, Stream):
            message = f"union: expected a stream, got {type(given).__name__}. Start it with sj.stream(…)."
            raise AnalysisError(message)
        if len(self.columns) != len(other.columns):
            message = f"union: the columns {self.columns} and {other.columns} do not match one by one."
            raise AnalysisError(message)
        if self._event_time is None and other._event_time is None:
            rows = self._chain.shape.union(other._chain.shape)
            return Stream(Transformations(rows, rows))
        if self._event_time is None or other._event_time is None:
            message = (
                "union: only one of the streams has a watermark. Call withWatermark(…) on the other one too, or once "
                "on the union of streams without."
            )
            raise AnalysisError(message)
        names = (self._name or "1", other._name or "2")
        if names[0] == names[1]:
            message = f"union: both streams are called {names[0]!r}. Give one of them another name with alias(…)."
            raise AnalysisError(message)
        pairs = [(names[0], each) for each in self._inputs] + [(names[1], each) for each in other._inputs]
        inputs = tuple(each.below(f"{name}/") for name, each in pairs)
        check_union((self._event_time, other._event_time), (self._chain.shape, other._chain.shape))
        chain = united(self._chain, other._chain, names)
        return Stream(chain, inputs, EventTime.of_watermark(self._event_time.name, chain.shape))

    def unionAll(self, other: Stream) -> Stream:
        """Alias of :meth:`union`."""
        return self.union(other)

    def unionByName(self, other: Stream, allowMissingColumns: bool = False) -> Stream:
        """The rows of both streams, column by name, as ``DataFrame.unionByName``; see :meth:`union`.

        Args:
            other: The other stream.
            allowMissingColumns: Whether a column that only one of them has is null in the rows of the other.
        """
        sides = (self._filled(other), other._filled(self)) if allowMissingColumns else (self, other)
        missing = sorted(set(sides[0].columns) ^ set(sides[1].columns))
        if missing:
            message = f"unionByName: only one of the two streams has a column {missing[0]!r}."
            raise AnalysisError(message)
        return sides[0].union(sides[1].select(*(quoted(name) for name in sides[0].columns)))

    def _filled(self, other: Stream) -> Stream:
        """The stream with nulls in the columns that only the other one has."""
        lacking = [field for field in other.schema if field.name not in self.columns]
        return self.withColumns({each.name: F.lit(None).cast(each.dataType) for each in lacking}) if lacking else self

    def groupBy(self, *cols: GroupingColumn | Sequence[GroupingColumn]) -> GroupedStream:
        """Group by one window and any number of key columns, as ``DataFrame.groupBy``.

        Args:
            cols: One of ``sj.window``, ``sj.session_window``, ``F.window`` and ``F.session_window``, and keys.

        Raises:
            AnalysisError: No watermark, not exactly one window, columns that cannot be keys, or an event time that was
                replaced after ``withWatermark``.
        """
        if self._event_time is None:
            message = 'groupBy: a window needs a watermark; call withWatermark("<event time>", "<lag>") first.'
            raise AnalysisError(message)
        grouping = grouping_of(one_by_one(cols), self._chain.shape, self._event_time)
        return GroupedStream(self._chain, self._inputs, None, grouping)

    def groupby(self, *cols: GroupingColumn | Sequence[GroupingColumn]) -> GroupedStream:
        """Alias of :meth:`groupBy`."""
        return self.groupBy(*cols)

    @property
    def isStreaming(self) -> bool:
        """Whether the rows come from a stream; otherwise :meth:`toDF` computes them."""
        return self._chain.source.isStreaming

    def _computed(self) -> DataFrame:
        return self._visible

    @property
    def writeStream(self) -> StreamWriter:
        """The way to a sink for the rows themselves, without windows, as ``DataFrame.writeStream``.

        Late rows and rows without an event time are among them: only windows drop rows.
        """
        return StreamWriter(OutputSettings(None, Rows.INPUT, self._chain))


def stream(df: DataFrame) -> Stream:
    """Start a query from a streaming DataFrame of any ``spark.readStream`` source.

    Args:
        df: The streaming DataFrame. Spark may have transformed it row by row (select, where, withColumn, explode,
            mapInPandas, unions, joins with batch DataFrames), but not with ``withWatermark``, with anything that keeps
            state, or with anything that treats each batch separately. A batch DataFrame is all rows of a stream at
            once, for tests: ``toDF()`` computes the result.

    Raises:
        AnalysisError: A DataFrame of Spark Connect, or one that Spark does not compute row by row.

    >>> import sparkjet as sj
    >>> from pyspark.sql import functions as F
    >>> def per_minute(events):
    ...     return events.withWatermark("ts", "1 minute").groupBy(F.window("ts", "1 minute")).count()
    >>> rows = spark.sql("SELECT timestamp_seconds(id) AS ts FROM range(0, 90)")
    >>> per_minute(sj.stream(rows)).select("count").toDF().collect()
    [Row(count=60), Row(count=30)]
    """
    check_source(df)
    return Stream(Transformations(df, df))


def _optional(duration: Duration | None, option: str) -> int | None:
    return None if duration is None else parse_duration(duration, option, minimum=1)
