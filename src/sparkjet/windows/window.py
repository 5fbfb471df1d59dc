"""The window of a ``groupBy``: what ``sj.window`` returns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column

from sparkjet.errors import AnalysisError, refuse_connect
from sparkjet.time import MAX, WindowGrid, parse_duration
from sparkjet.time.durations import Duration, format_duration


@dataclass(frozen=True)
class Window:
    """A tumbling or sliding window over an event-time column; created by :func:`window`."""

    time_column: Column | str
    grid: WindowGrid
    name: str = "window"

    def alias(self, name: str) -> Window:
        """The same window under another column name in the result."""
        return replace(self, name=name)


def window(
    timeColumn: object,
    windowDuration: Duration,
    slideDuration: Duration | None = None,
    startTime: Duration | None = None,
) -> Window:
    """Group by sliding or, without ``slideDuration``, tumbling windows, like ``pyspark.sql.functions.window``.

    The result has a column ``window`` with the window's start (inclusive) and end (exclusive). Each event is
    aggregated once, into its frame, which is one slide long, or as long as the greatest common divisor of length and
    slide; windows are combined from frames, so the cost of a slide does not depend on the length of the window.

    Args:
        timeColumn: The event-time column, as passed to ``withWatermark``, or its name.
        windowDuration: Length, e.g. ``"1 hour"``.
        slideDuration: Distance between window starts, not longer than the window.
        startTime: Offset of the windows from 1970-01-01 00:00:00 UTC, shorter than the slide; may be negative.

    Raises:
        AnalysisError: If a duration is not a positive duration, the slide is longer than the window, or the offset is
            not shorter than the slide.

    >>> window("ts", "1 hour", "10 minutes").grid.frames
    6
    >>> window("ts", "5 minutes", "2 minutes", "-30 seconds").grid.frames
    5
    """
    refuse_connect("window", timeColumn)
    if not isinstance(timeColumn, str | Column):
        message = f"window: timeColumn must be the event-time column or its name, not {type(timeColumn).__name__}."
        raise AnalysisError(message)
    size = parse_duration(windowDuration, "windowDuration", minimum=1)
    step = size if slideDuration is None else parse_duration(slideDuration, "slideDuration", minimum=1)
    offset = 0 if startTime is None else parse_duration(startTime, "startTime", minimum=-MAX)
    if step > size:
        message = (
            f"slideDuration {slideDuration!r} is longer than windowDuration {windowDuration!r}: events between two "
            "windows would be in neither. Filter them out with where(…), and use windows as long as the slide."
        )
        raise AnalysisError(message)
    if abs(offset) >= step:
        message = (
            f"startTime {startTime!r} must be shorter than the slide {slideDuration or windowDuration!r}: "
            f'"{format_duration(offset % step)}" gives the same windows.'
        )
        raise AnalysisError(message)
    return Window(timeColumn, WindowGrid(size, step, offset % step))
