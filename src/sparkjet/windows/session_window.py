"""The session window of a ``groupBy``: what ``sj.session_window`` returns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column

from sparkjet.errors import AnalysisError
from sparkjet.time import parse_duration
from sparkjet.time.durations import Duration


@dataclass(frozen=True)
class SessionWindow:
    """Session windows over an event-time column; created by :func:`session_window`.

    Attributes:
        time_column: The event-time column or its name.
        gap: Gap of inactivity that ends a session, in microseconds.
        max_duration: Length at which sessions are cut, None if they are not.
        name: Name of the result's column.
    """

    time_column: Column | str
    gap: int
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

    Args:
        timeColumn: The event-time column, as passed to ``withWatermark``, or its name.
        gapDuration: Gap of inactivity that ends a session, e.g. ``"10 minutes"``.
        maxDuration: A session longer than this is cut into pieces of this length, counted from its first event; each
            piece with an event yields a row. Sessions are cut after merging, so the result does not depend on the
            order of arrival. May be shorter than the gap.

    Raises:
        AnalysisError: If a duration is not a positive duration, or the gap is a column.

    >>> session_window("ts", "10 minutes").gap
    600000000
    """
    if not isinstance(timeColumn, str | Column):
        message = (
            f"session_window: timeColumn must be the event-time column or its name, not {type(timeColumn).__name__}."
        )
        raise AnalysisError(message)
    if isinstance(gapDuration, Column):
        message = (
            f"session_window: gapDuration must be a duration, not the column {gapDuration}: the gap decides which "
            "events are aggregated together before the state is read. Run one query per gap, or use the longest gap."
        )
        raise AnalysisError(message)
    gap = parse_duration(gapDuration, "gapDuration", minimum=1)
    longest = None if maxDuration is None else parse_duration(maxDuration, "maxDuration", minimum=1)
    return SessionWindow(timeColumn, gap, longest)
