"""Streams: what a user builds a query from, between ``sj.stream`` and ``writeStream``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType
from typing_extensions import Self

from sparkjet.chain import Selectable, Steps
from sparkjet.columns import SUBSTREAM, TIME, quoted, substream_id
from sparkjet.engine.inspection import check_source
from sparkjet.engine.pipeline import Watermark
from sparkjet.errors import AnalysisError, nearest
from sparkjet.grouping import GroupedStream
from sparkjet.time import limiting_lag, parse_duration
from sparkjet.windows.window import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.time import PolicySettings, Throttle
    from sparkjet.time.durations import Duration


class Stream(Selectable):
    """Events with a watermark per substream.

    Not a DataFrame: it has the operations that mean the same batch by batch. All methods run on the driver, return
    a new object and only describe the query; nothing runs before ``writeStream…start()``.
    """

    def __init__(self, steps: Steps, watermark: Watermark | None = None) -> None:
        super().__init__(steps)
        self._watermark = watermark

    def _with(self, steps: Steps) -> Self:
        return type(self)(steps, self._watermark)

    def withWatermark(
        self,
        eventTime: str,
        policy: PolicySettings | Duration,
        *,
        by: str | Sequence[str] = (),
        substreams: Sequence[str] = (),
        idleTimeout: Duration | None = None,
        throttle: Throttle | None = None,
    ) -> Stream:
        """Say which column is the event time and how far it may be out of order, as ``DataFrame.withWatermark``.

        Unlike Spark's, the watermark follows each substream by itself and is the least of them, so a substream that
        lags behind the others loses nothing; it holds the windows open until it has caught up or is idle.

        Args:
            eventTime: Name of a timestamp column. Rows in which it is null are dropped, counted and reported.
            policy: A policy such as ``sj.limiting_lag("5 minutes")``; a bare duration means ``limiting_lag``.
            by: Column or columns that name the substream, e.g. ``"partition"``; their text joined by ``/`` is its
                name. Without it all rows are one substream.
            substreams: Names of substreams to wait for from the start. One that is not listed and appears late may
                find its first rows late.
            idleTimeout: Processing time after which a substream without rows no longer holds the watermark. None:
                never.
            throttle: When the watermark may move; by default in steps of the window's slide.

        Raises:
            AnalysisError: Wrong column, type, policy or duration, naming it and what would be right.
        """
        if self._watermark is not None:
            message = f"withWatermark({eventTime!r}): this stream already has one, on {self._watermark.event_time!r}."
            raise AnalysisError(message)
        columns = (by,) if isinstance(by, str) else tuple(by)
        for option, name in [("eventTime", eventTime), *(("by", name) for name in columns)]:
            if name not in self.columns:
                message = f"withWatermark: {option}={name!r} is no column; {nearest(str(name), self.columns)}"
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
        settings = Watermark(
            event_time=eventTime,
            policy=limiting_lag(policy) if not hasattr(policy, "create") else policy,
            by=columns,
            substreams=tuple(str(name) for name in substreams),
            idle_timeout=None if idleTimeout is None else parse_duration(idleTimeout, "idleTimeout", minimum=1),
            throttle=throttle,
        )
        hidden = {TIME: F.unix_micros(quoted(eventTime)), SUBSTREAM: substream_id(columns)}
        source = self._steps.shape.withColumns(hidden)
        return Stream(Steps(source, source), settings)

    def groupBy(self, *cols: Window | Column | str) -> GroupedStream:
        """Group by one ``sj.window`` and any number of key columns, as ``DataFrame.groupBy``.

        Raises:
            AnalysisError: Without a watermark, without exactly one window, or with columns that cannot be keys.
        """
        if self._watermark is None:
            message = 'groupBy: a window needs a watermark; call withWatermark("<event time>", "<lag>") first.'
            raise AnalysisError(message)
        return GroupedStream(self._steps, self._watermark, cols)


def stream(df: DataFrame) -> Stream:
    """Start a query from a streaming DataFrame, whatever ``spark.readStream`` source it comes from.

    Args:
        df: The streaming DataFrame; it may have been transformed by Spark before (select, where, withColumn, joins
            with batch DataFrames), but not by ``withWatermark`` or anything that keeps state.

    Raises:
        AnalysisError: A batch DataFrame, one of Spark Connect, or one with Spark's own watermark or state.
    """
    check_source(df)
    return Stream(Steps(df, df))
