"""Joins of two streams, and windows over one of the event times after a join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from typing_extensions import Self

from sparkjet.api.frame_methods import FrameMethods, check_how
from sparkjet.errors import AnalysisError
from sparkjet.plan import grouping
from sparkjet.plan.interval_join import TimedFeed, interval_join, retimed
from sparkjet.plan.stage import Feed
from sparkjet.plan.transformations import Transformations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.event_time import EventTime
    from sparkjet.plan.grouping import Grouping, GroupingColumn
    from sparkjet.plan.static_join import On
    from sparkjet.plan.static_tables import StaticTable


class StreamJoins(FrameMethods):
    """The joins of a stream.

    Attributes:
        _feed: Its rows.
        _times: Its event times: none without a watermark, several after a join.
    """

    _feed: Feed
    _times: tuple[EventTime, ...]

    def join(self, other: FrameMethods | DataFrame | StaticTable, on: On = None, how: str | None = None) -> Self:
        """Join with another stream or with a static table, as ``DataFrame.join``.

        Two streams are joined on rows whose keys are equal and whose event times are close. Each side is held until the
        watermark of the other one has passed the bound, so that a side that lags behind loses nothing. Windows and
        joins may use either event time afterwards. Rows of a static table have no time; rows of the stream that such a
        join drops still advance the watermark.

        Args:
            other: Another stream, or this one again. Or a batch DataFrame, which is read as Spark reads it in its own
                queries, unless it is given to :func:`sparkjet.read_once` or :func:`sparkjet.read_every_epoch`.
            on: A condition as a Column (``F.expr``) or a list of them, or names of columns that are equal in both. For
                two streams it must contain an equality, and bound how far the event times may be apart in both
                directions. An inner join need not: rows whose partners may come at any time are then held forever, as
                in Spark, and the result has no event time.
            how: ``inner`` (the default), ``left_outer``, ``left_semi`` or ``left_anti``; for two streams also
                ``right_outer`` and ``full_outer``; with a static table also ``cross``. A row without a partner is a
                result once the other side's watermark shows that it will have none.

        Raises:
            AnalysisError: No watermark on a side, no bound, no equality, or a condition that Spark cannot analyze.

        >>> import sparkjet as sj
        >>> letters = spark.sql("SELECT 7 AS letter, timestamp_seconds(60) AS sent")
        >>> answers = spark.sql("SELECT 7 AS answered, timestamp_seconds(id) AS at FROM range(50, 71, 10)")
        >>> sj.stream(letters).withWatermark("sent", "1 minute").join(
        ...     sj.stream(answers).withWatermark("at", "1 minute"),
        ...     F.expr("letter = answered AND at BETWEEN sent AND sent + INTERVAL 2 DAYS"),
        ... ).selectExpr("letter", "unix_seconds(at)").toDF().collect()
        [Row(letter=7, unix_seconds(at)=60), Row(letter=7, unix_seconds(at)=70)]
        """
        if isinstance(other, StreamJoins):
            check_how(how)
            return self._with_stream(other, on, how or "inner")
        return super().join(other, on, how)

    def _with_stream(self, other: StreamJoins, on: On, how: str) -> Self:
        sides = self._timed(), other._timed()
        for which, side in zip(("this", "the other"), sides, strict=True):
            if not side.times:
                message = (
                    f"join: {which} stream has no watermark, so its partners would have to be kept forever. Call "
                    'withWatermark("<event time>", "<lag>") on it first.'
                )
                raise AnalysisError(message)
        stage = interval_join(*sides, on, how)
        shape = stage.shape()
        make: Any = type(self)
        # Without an event time, the rows belong to no input: timers and windows after it would wait for a watermark
        # that never comes.
        inputs = stage.inputs if stage.times else ()
        joined: Self = make(Feed(Transformations(shape, shape), inputs, stage), *stage.times)
        return joined

    def _timed(self) -> TimedFeed:
        return TimedFeed(self._feed, self._times)


def grouped(feed: Feed, times: Sequence[EventTime], columns: Sequence[GroupingColumn]) -> tuple[Feed, Grouping]:
    """The rows to group, with the event time that the window names, and the grouping.

    Raises:
        AnalysisError: The error of :func:`sparkjet.plan.grouping.grouped` with the first event time, if no other one
            fits.
    """
    try:
        return _grouped_by(feed, times[0] if times else None, columns)
    except AnalysisError:
        for time in times[1:]:
            try:
                found, by = _grouped_by(feed, time, columns)
            except AnalysisError:
                continue
            if by.window is None:
                continue
            named = by.window.time_column
            column = F.col(named) if isinstance(named, str) else named
            return replace(found, transformations=retimed(found.transformations, column)), by
        raise


def _grouped_by(feed: Feed, time: EventTime | None, columns: Sequence[GroupingColumn]) -> tuple[Feed, Grouping]:
    found, chain = grouping.grouped(columns, feed.transformations, time)
    return replace(feed, transformations=chain), found
