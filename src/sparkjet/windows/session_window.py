"""The session window of a ``groupBy``: what ``sj.session_window`` returns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from sparkjet.errors import AnalysisError, refuse_connect
from sparkjet.time import parse_duration
from sparkjet.time.durations import Duration


@dataclass(frozen=True)
class SessionWindow:
    """Session windows over an event-time column; created by :func:`session_window`.

    Attributes:
        time_column: The event-time column or its name.
        gap: Gap of inactivity that ends a session, in microseconds; or a Column with a gap for each row.
        max_duration: Length at which sessions are cut, None if they are not.
        name: Name of the result column.
    """

    time_column: Column | str
    gap: int | Column
    max_duration: int | None = None
    name: str = "session_window"

    def alias(self, name: str) -> SessionWindow:
        """The same window under another column name in the result."""
        return replace(self, name=name)


def session_window(
    timeColumn: object, gapDuration: Duration | Column, maxDuration: Duration | None = None
) -> SessionWindow:
    """Group by session windows: events of a key with gaps shorter than ``gapDuration``, like ``F.session_window``.

    The result has a column ``session_window`` with the time of the first event (inclusive) and of the last event plus
    the gap (exclusive). Two events exactly one gap apart are in two sessions (in Spark they share one). A session is
    final once the watermark is above its end; an event older than the watermark is late.

    With a Column, each event has its own gap and covers the time from its event time until that gap has passed. Events
    whose times overlap are in one session, which ends where the last of them does. An event whose gap is null, zero or
    negative is in no session, as in Spark, but it advances the watermark.

    Args:
        timeColumn: The event-time column, as passed to ``withWatermark``, or its name.
        gapDuration: Gap of inactivity that ends a session, e.g. ``"10 minutes"``; or a Column of such strings or of
            intervals. As in Spark, a string that is not an interval counts as null.
        maxDuration: A session longer than this is cut into pieces of this length, counted from its first event; each
            piece with an event yields a row. Sessions are cut after merging, so the result does not depend on the
            order of arrival. May be shorter than the gap.

    Raises:
        AnalysisError: If a duration is not a positive duration.

    >>> session_window("ts", "10 minutes").gap
    600000000
    >>> clicks = spark.sql("SELECT now() AS ts, '5 minutes' AS gap_of_device")
    >>> session_window("ts", clicks.gap_of_device).gap
    Column<'gap_of_device'>
    """
    refuse_connect("session_window", timeColumn, gapDuration)
    if not isinstance(timeColumn, str | Column):
        message = (
            f"session_window: timeColumn must be the event-time column or its name, not {type(timeColumn).__name__}."
        )
        raise AnalysisError(message)
    gap = gapDuration if isinstance(gapDuration, Column) else parse_duration(gapDuration, "gapDuration", minimum=1)
    longest = None if maxDuration is None else parse_duration(maxDuration, "maxDuration", minimum=1)
    return SessionWindow(timeColumn, gap, longest)


def cover_end(time: Column, gap: Column) -> Column:
    """End of the time that a row covers: its time (microseconds) plus its own gap, an interval; null without a gap."""
    return F.unix_micros(F.timestamp_micros(time) + gap)
