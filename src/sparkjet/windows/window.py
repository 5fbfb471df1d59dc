"""The window of a ``groupBy``: what ``sj.window`` returns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column

from sparkjet.errors import AnalysisError
from sparkjet.time import WindowGrid, parse_duration
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
    aggregated once, into its frame, which is one slide long; windows are combined from frames, so the cost of a slide
    does not depend on the length of the window.

    Args:
        timeColumn: The event-time column, as passed to ``withWatermark``, or its name.
        windowDuration: Length, e.g. ``"1 hour"``; a multiple of the slide.
        slideDuration: Distance between window starts.
        startTime: Offset of the windows from 1970-01-01 00:00:00 UTC, less than the slide.

    Raises:
        AnalysisError: If a duration is not a positive duration, or the length is not a multiple of the slide; the
            message names the nearest multiples.

    >>> window("ts", "1 hour", "10 minutes").grid.frames
    6
    """
    if not isinstance(timeColumn, str | Column):
        message = f"window: timeColumn must be the event-time column or its name, not {type(timeColumn).__name__}."
        raise AnalysisError(message)
    size = parse_duration(windowDuration, "windowDuration", minimum=1)
    step = size if slideDuration is None else parse_duration(slideDuration, "slideDuration", minimum=1)
    offset = 0 if startTime is None else parse_duration(startTime, "startTime")
    if size % step:
        below, above = size - size % step, size - size % step + step
        lengths = " or ".join(f'"{format_duration(length)}"' for length in (below, above) if length > 0)
        message = (
            f"windowDuration {windowDuration!r} is not a multiple of slideDuration {slideDuration!r}: windows consist "
            f"of frames of one slide. The nearest valid lengths are {lengths}."
        )
        raise AnalysisError(message)
    if offset >= step:
        message = f"startTime {startTime!r} must be shorter than the slide {slideDuration or windowDuration!r}."
        raise AnalysisError(message)
    return Window(timeColumn, WindowGrid(size, step, offset))
