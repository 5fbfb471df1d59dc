"""The grouping of a stream: its keys and its window, if any, from the Columns of ``groupBy``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, TimestampType, VariantType

from sparkjet.catalyst.columns import quoted, visible
from sparkjet.catalyst.expressions import by_name, column_of, expression_of, function_name, label, rebuilt
from sparkjet.catalyst.logical_plans import (
    aliases,
    analyzed,
    attribute_id,
    listed,
    origins,
    passed_nodes,
    same_name,
    selected,
)
from sparkjet.catalyst.stars import starless
from sparkjet.catalyst.window_calls import WINDOWS, WindowCall, WindowColumn, is_window, window_call
from sparkjet.errors import AnalysisError
from sparkjet.plan import links
from sparkjet.plan.event_time import as_timestamp
from sparkjet.windows import SessionWindow, Window, session_window, window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from sparkjet.plan.event_time import EventTime
    from sparkjet.plan.transformations import Transformations

GroupingColumn: TypeAlias = "Window | SessionWindow | Column | str | int"


@dataclass(frozen=True)
class Key:
    """A grouping column: its name in the result, how it is computed, its type, and Spark's metadata of it."""

    name: str
    column: Column
    type: DataType
    metadata: Mapping[str, Any]

    def named(self, column: Column) -> Column:
        """A column of state, under the name and with the metadata of this key."""
        # State has no metadata. Without Spark's mark of a window column, F.window_time would refuse it after a restart.
        return column.alias(self.name, metadata=dict(self.metadata)) if self.metadata else column.alias(self.name)


@dataclass(frozen=True)
class Grouping:
    """The columns by which rows are grouped.

    Attributes:
        window: The window, None without one.
        keys: The other columns.
        order: Names of all columns, in the order of the result.
        by_key: The same grouping with the window as a key, if the window is a column of the rows.
    """

    window: Window | SessionWindow | None
    keys: tuple[Key, ...]
    order: tuple[str, ...]
    by_key: Grouping | None = None


def grouped(
    columns: Sequence[GroupingColumn], rows: Transformations, event_time: EventTime | None
) -> tuple[Grouping, Transformations]:
    """The grouping that the columns of ``groupBy`` describe, and the rows for it.

    Columns of the same name, as a join by a condition leaves them, cannot be aggregated, but do not prevent the
    aggregation of others.
    """
    # Before columns are dropped, which would renumber others.
    columns = [_by_name(column, rows.shape) for column in columns]
    grouping = grouping_of(columns, rows.shape, event_time, rows.windows)
    names = visible(rows.shape)
    twice = [name for name in names if sum(same_name(rows.shape, name, other) for other in names) > 1]
    if not twice:
        return grouping, rows
    told_apart = rows.then(links.everywhere(lambda frame: frame.drop(*twice)))
    try:
        return grouping_of(columns, told_apart.shape, event_time, rows.windows), told_apart
    except AnalysisException as error:
        message = (
            f"groupBy: two columns are named {twice[0]!r}, and one of them is asked for. Drop the other one before, "
            f"e.g. drop(table.{twice[0]}), or join by a list of names."
        )
        raise AnalysisError(message) from error


def grouping_of(
    columns: Sequence[GroupingColumn],
    rows: DataFrame,
    event_time: EventTime | None,
    computed: Sequence[WindowColumn] = (),
) -> Grouping:
    """The grouping that the columns of ``groupBy`` describe."""
    found = [_understood(column, rows) for column in columns]
    before = _computed(found, rows, event_time, computed)
    if before is not None:
        as_keys = _grouping(found, rows)
        found[before[0]] = before[1]
        return replace(_grouping(found, rows), by_key=as_keys)
    window = next((each for each in found if isinstance(each, Window | SessionWindow)), None)
    if window is not None and event_time is not None:
        event_time.check(rows, window.name, window.time_column)
    return _grouping(found, rows)


def _grouping(found: Sequence[GroupingColumn], rows: DataFrame) -> Grouping:
    windows = [column for column in found if isinstance(column, Window | SessionWindow)]
    if len(windows) > 1:
        message = (
            f"groupBy: expected one window, sj.window(…) or F.window(…), or none, got {len(windows)}. Aggregate twice, "
            "with two outputs of one query: sj.start(…)."
        )
        raise AnalysisError(message)
    window = windows[0] if windows else None
    keys = _keys([column for column in found if not isinstance(column, Window | SessionWindow)], rows)
    _check_names([*(key.name for key in keys), *([] if window is None else [window.name])])
    names = iter(key.name for key in keys)
    order = (column.name if isinstance(column, Window | SessionWindow) else next(names) for column in found)
    return Grouping(window, keys, tuple(order))


def _computed(
    columns: Sequence[GroupingColumn],
    rows: DataFrame,
    event_time: EventTime | None,
    computed: Sequence[WindowColumn],
) -> tuple[int, Window] | None:
    """The first column that is a window of the event time, by its position, and the window; None if there is none.

    Of sliding windows, each row occurs once per window, so that such a column is a key like any other.
    """
    if not computed or any(isinstance(each, Window | SessionWindow) for each in columns):
        return None
    renamed = aliases(passed_nodes(analyzed(rows)))
    for number, column in enumerate(columns):
        assert not isinstance(column, Window | SessionWindow | int)  # noqa: S101 - seen above, and known by name
        named = selected(rows, column)
        found = next((each for each in computed if each.id in origins(named, renamed)), None)
        if found is None:
            continue
        name = str(named.name())
        if found.call.function == "session_window":
            message = (
                f"groupBy: {name!r} is the session of each row by itself. Give groupBy the call itself, "
                "F.session_window(…), and not a column that was computed by it before."
            )
            raise AnalysisError(message)
        window = replace(_window(found.call), name=name)
        assert isinstance(window, Window)  # noqa: S101 - seen above
        if event_time is not None and window.grid.tumbling and not found.origins.isdisjoint(event_time.ids):
            return number, window
    return None


def _check_names(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        message = (
            f"groupBy: {twice!r} is there twice, and no later step could name one of them. Leave one out, or give "
            f'it another name, e.g. F.col("{twice}").alias("{twice}_2").'
        )
        raise AnalysisError(message)


def time_without_watermark(window: Window | SessionWindow | None, rows: DataFrame) -> Column | None:
    """The time (microseconds) of windows that never close, as there is no watermark; None without windows."""
    if window is None:
        return None
    if isinstance(window, SessionWindow):
        message = (
            'groupBy: session windows need a watermark; call withWatermark("<event time>", "<lag>") first. Without one '
            "only windows of fixed length can be kept, which never close."
        )
        raise AnalysisError(message)
    time = window.time_column
    found = rows.select(time).schema.fields[0].dataType
    if not isinstance(found, TimestampType):
        message = (
            f"groupBy: {label(time)!r}, the time of {window.name!r}, is of type {found.simpleString()}, not timestamp. "
            f"Convert it first: {as_timestamp(found, label(time))}."
        )
        raise AnalysisError(message)
    return F.unix_micros(F.col(time) if isinstance(time, str) else time)


def with_group_window(column: Column, grouping: Grouping, rows: DataFrame) -> Column:
    """A Column of ``agg`` with each call of the window by which rows are grouped replaced by the window's column."""
    window, session = grouping.window, rows.sparkSession
    if window is None or not is_window(column):
        return column

    def held(part: Any) -> Any:
        if function_name(part) not in WINDOWS:
            return None
        call = window_call(column_of(part, session), session)
        assert call is not None  # noqa: S101 - as it is one
        if _as_text(_window(call)) != _as_text(window):
            message = (
                f"agg: {label(column)}: rows are grouped by another window, {window.name!r}. Name that one by its "
                f'column, as in F.col("{window.name}.start"), or aggregate twice, with two outputs of one query.'
            )
            raise AnalysisError(message)
        if grouping.by_key is None and any(same_name(rows, name, window.name) for name in visible(rows)):
            # By its name, it would be that column, with other values.
            message = (
                f"agg: {label(column)}: the rows have a column {window.name!r} of their own. Name the window in "
                f'groupBy, as in F.{call.function}(…).alias("w").'
            )
            raise AnalysisError(message)
        return expression_of(F.col(quoted(window.name)), session)

    expression = expression_of(column, session)
    found = rebuilt(expression, session, held)
    return column if found is expression else column_of(found, session)


def _as_text(window: Window | SessionWindow) -> tuple[str, ...]:
    """The parts from which a window is computed, as text: Columns cannot be compared."""
    durations = (window.grid,) if isinstance(window, Window) else (window.gap, window.max_duration)
    given = (window.time_column, *durations)
    return tuple(label(each) if isinstance(each, Column | str) else repr(each) for each in given)


def keys_of(columns: Sequence[GroupingColumn], rows: DataFrame) -> tuple[Key, ...] | None:
    """The keys that the columns of ``groupBy`` describe, None if there is a window among them."""
    found = [_understood(_by_name(column, rows), rows) for column in columns]
    return None if any(isinstance(each, Window | SessionWindow) for each in found) else _keys(found, rows)


def _by_name(column: GroupingColumn, rows: DataFrame) -> GroupingColumn:
    """A column that is given by its number, from 1 as in Spark, as its name; anything else as it is."""
    if isinstance(column, bool) or not isinstance(column, int):
        return column
    names = visible(rows)
    if not 1 <= column <= len(names):
        message = f"groupBy: there is no column {column}; the columns are {', '.join(names)}, numbered from 1 on."
        raise AnalysisError(message)
    return F.col(quoted(names[column - 1]))


def _understood(column: GroupingColumn, rows: DataFrame) -> GroupingColumn:
    """Spark's windows as sparkjet's; anything else as it is."""
    if not isinstance(column, Column):
        return column
    call = window_call(column, rows.sparkSession)
    return starless(column, rows) if call is None else _window(call)


def _window(call: WindowCall) -> Window | SessionWindow:
    durations: tuple[Any, ...] = call.durations
    made = window(call.time, *durations) if call.function == "window" else session_window(call.time, *durations)
    return made if call.name is None else made.alias(call.name)


def _keys(columns: Sequence[Any], rows: DataFrame) -> tuple[Key, ...]:
    selected = rows.select(*columns)
    fields = selected.schema.fields
    if len(fields) != len(columns):
        raise AnalysisError("groupBy: name each key column separately; one of the columns stands for several.")
    for field in fields:
        if isinstance(field.dataType, MapType | VariantType):
            instead = "F.array_sort(F.map_entries(…))" if isinstance(field.dataType, MapType) else "F.to_json(…)"
            message = (
                f"groupBy: {field.name!r} is of type {field.dataType.simpleString()}, which cannot be a key. Group by "
                f"a part of it, or by {instead}."
            )
            raise AnalysisError(message)
    names = {attribute_id(each): name for each, name in zip(listed(analyzed(rows).output()), rows.columns, strict=True)}

    def column_by_name(column: Column | str, attribute: Any) -> Column:
        # A plain column. By then, an alias that names its side of a join is gone.
        if (name := names.get(attribute_id(attribute))) is not None:
            return F.col(quoted(name))
        if isinstance(column, str):
            return F.col(column)
        # A column of a joined table is bound to that table, but rows are grouped after they have been recomputed.
        return column_of(by_name(expression_of(column, rows.sparkSession), rows.sparkSession, names), rows.sparkSession)

    found = zip(fields, columns, listed(analyzed(selected).output()), strict=True)
    return tuple(
        Key(field.name, column_by_name(column, attribute), field.dataType, field.metadata)
        for field, column, attribute in found
    )
