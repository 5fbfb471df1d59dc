"""Sessions whose gap is an expression over the row: which expressions can be a gap, and which rows have one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    CalendarIntervalType,
    DayTimeIntervalType,
    NullType,
    StringType,
    YearMonthIntervalType,
)

from sparkjet.catalyst.columns import TIME
from sparkjet.catalyst.expressions import label
from sparkjet.catalyst.plan_analysis import can_repeat
from sparkjet.catalyst.stars import starless
from sparkjet.errors import AnalysisError
from sparkjet.plan.links import where
from sparkjet.windows import SessionWindow
from sparkjet.windows.session_window import cover_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.transformations import Transformations
    from sparkjet.windows import Window

_INTERVALS = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)


def with_row_gaps(
    window: Window | SessionWindow, rows: Transformations
) -> tuple[Window | SessionWindow, Transformations]:
    """The window with its gaps as intervals, and the rows that have a gap; both unchanged if the gap is not a Column.

    A row without a gap is filtered out like one that the user's ``where`` drops: it still advances the watermark.
    """
    if not isinstance(window, SessionWindow) or not isinstance(window.gap, Column):
        return window, rows
    gap = _interval(starless(window.gap, rows.shape), rows.shape)
    time = F.col(TIME)
    # A row without an event time is dropped and counted as such.
    return replace(window, gap=gap), rows.then(where(time.isNull() | (cover_end(time, gap) > time)), reads_hidden=True)


def _interval(gap: Column, rows: DataFrame) -> Column:
    """A gap as an interval of any kind."""
    selected = rows.select(gap)
    if not can_repeat(selected):
        # Once to filter the rows, and once to aggregate them; dropped rows arrive as nulls.
        message = (
            f"session_window: the gap {label(gap)} calls a Python function or gives another value each time. "
            "Compute it with withColumn before, and name that column here."
        )
        raise AnalysisError(message)
    found = selected.schema.fields[0].dataType
    if isinstance(found, _INTERVALS):
        return gap
    if isinstance(found, StringType | NullType):
        return gap.cast("interval")
    message = (
        f"session_window: the gap {label(gap)} is of type {found.simpleString()}, not an interval or a text such as "
        f"'5 minutes'. A number of seconds becomes one with F.make_dt_interval(secs=…)."
    )
    raise AnalysisError(message)
