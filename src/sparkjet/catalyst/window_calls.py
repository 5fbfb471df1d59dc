"""Spark's own windows in ``groupBy``: calls of ``F.window``, ``F.session_window`` and ``F.window_time``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkjet.catalyst.expressions import column_of, expression_of, function_name, without_alias
from sparkjet.catalyst.logical_plans import kind_of, listed

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

WINDOWS = ("window", "session_window")


@dataclass(frozen=True)
class WindowCall:
    """A call of one of Spark's window functions, before analysis.

    Attributes:
        function: ``window`` or ``session_window``.
        time: The time column.
        durations: The other arguments: text or microseconds where they are constants, Columns otherwise.
        name: What the call is named by ``alias``, None if it is not.
    """

    function: str
    time: Column
    durations: tuple[str | int | Column, ...]
    name: str | None


def window_call(column: Column, session: SparkSession) -> WindowCall | None:
    """The window that a Column of ``groupBy`` stands for, None if it is an ordinary key."""
    named = expression_of(column, session)
    expression = without_alias(named)
    function = function_name(expression)
    if function not in WINDOWS:
        return None
    time, *durations = listed(expression.arguments())
    return WindowCall(
        function,
        column_of(time, session),
        tuple(_duration(each, session) for each in durations),
        str(named.name()) if kind_of(named) == "Alias" else None,
    )


def without_window_time(column: Column, session: SparkSession) -> Column:
    """The window column that ``F.window_time`` of it is computed from; any other Column as it is."""
    expression = without_alias(expression_of(column, session))
    if function_name(expression) != "window_time":
        return column
    return column_of(listed(expression.arguments())[0], session)


def _duration(argument: Any, session: SparkSession) -> str | int | Column:
    if kind_of(argument) != "Literal":
        return column_of(argument, session)
    value = argument.value()
    # An interval literal is a number of microseconds in the JVM, text anything else.
    return value if isinstance(value, int) else str(value)
