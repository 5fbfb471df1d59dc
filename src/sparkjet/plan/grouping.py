"""The grouping of a stream: its one window and its keys, from the Columns of ``groupBy``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, VariantType

from sparkjet.catalyst.window_calls import WindowCall, window_call
from sparkjet.errors import AnalysisError
from sparkjet.windows import SessionWindow, Window, session_window, window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from sparkjet.plan.event_time import EventTime

GroupingColumn: TypeAlias = "Window | SessionWindow | Column | str"


@dataclass(frozen=True)
class Key:
    """A grouping column: its name in the result, how it is computed, its type."""

    name: str
    column: Column
    type: DataType


@dataclass(frozen=True)
class Grouping:
    """What rows are grouped by.

    Attributes:
        window: The window.
        keys: The other columns.
        order: Names of all in the order of the result.
    """

    window: Window | SessionWindow
    keys: tuple[Key, ...]
    order: tuple[str, ...]


def grouping_of(columns: Sequence[GroupingColumn], rows: DataFrame, event_time: EventTime) -> Grouping:
    """The grouping that the columns of ``groupBy`` describe.

    Args:
        columns: A window, as sparkjet's or as Spark's, and any keys.
        rows: What is grouped, for analysis only.
        event_time: Of these rows.

    Raises:
        AnalysisError: Not exactly one window, a window over another time, or columns that cannot be keys.
    """
    found = [_understood(column, rows) for column in columns]
    windows = [column for column in found if isinstance(column, Window | SessionWindow)]
    if len(windows) != 1:
        message = (
            f"groupBy: expected exactly one window, sj.window(…) or F.window(…), got {len(windows)}. Results without a "
            "window, which are never final, are not supported yet; group by a window that is as long as you need. A "
            "window that is a column already is not recognized: put the call into groupBy(…) itself."
        )
        raise AnalysisError(message)
    event_time.check(rows, windows[0].name, windows[0].time_column)
    keys = _keys([column for column in found if not isinstance(column, Window | SessionWindow)], rows)
    names = iter(key.name for key in keys)
    order = (column.name if isinstance(column, Window | SessionWindow) else next(names) for column in found)
    return Grouping(windows[0], keys, tuple(order))


def _understood(column: GroupingColumn, rows: DataFrame) -> GroupingColumn:
    """Spark's windows as sparkjet's, anything else as it is."""
    if not isinstance(column, Column):
        return column
    call = window_call(column, rows.sparkSession)
    return column if call is None else _window(call)


def _window(call: WindowCall) -> Window | SessionWindow:
    durations: tuple[Any, ...] = call.durations
    made = window(call.time, *durations) if call.function == "window" else session_window(call.time, *durations)
    return made if call.name is None else made.alias(call.name)


def _keys(columns: Sequence[Any], rows: DataFrame) -> tuple[Key, ...]:
    fields = rows.select(*columns).schema.fields if columns else []
    if len(fields) != len(columns):
        message = "groupBy: name each key column separately; one of the columns stands for several."
        raise AnalysisError(message)
    for field in fields:
        if isinstance(field.dataType, MapType | VariantType):
            message = f"groupBy: {field.name!r} is of type {field.dataType.simpleString()}, which cannot be a key."
            raise AnalysisError(message)
    return tuple(
        Key(field.name, F.col(column) if isinstance(column, str) else column, field.dataType)
        for field, column in zip(fields, columns, strict=True)
    )
