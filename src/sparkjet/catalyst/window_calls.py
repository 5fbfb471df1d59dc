"""Spark's own windows in ``groupBy``: calls of ``F.window``, ``F.session_window`` and ``F.window_time``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkjet.catalyst.expressions import column_of, expression_of, function_name, without_alias
from sparkjet.catalyst.logical_plans import (
    aliases,
    analyzed,
    attribute_ids,
    kind_of,
    listed,
    origins,
    passed_nodes,
    selected,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

WINDOWS = ("window", "session_window")


@dataclass(frozen=True)
class WindowCall:
    """A call of one of Spark's window functions, before analysis.

    Attributes:
        function: ``window`` or ``session_window``.
        time: The time column.
        durations: The other arguments: text or microseconds if they are constants, Columns otherwise.
        name: The name given by ``alias``, None without one.
    """

    function: str
    time: Column
    durations: tuple[str | int | Column, ...]
    name: str | None


@dataclass(frozen=True)
class WindowColumn:
    """A column of rows that is a window.

    Attributes:
        id: Its identity.
        call: The call that computes it.
        origins: Identities of the columns that hold its time.
    """

    id: int
    call: WindowCall
    origins: frozenset[int]


def window_of(rows: DataFrame, name: str, column: Column, before: DataFrame) -> WindowColumn:
    """The window from which a column is computed."""
    call = window_call(column, rows.sparkSession)
    assert call is not None  # noqa: S101 - asked for before
    held = origins(selected(before, call.time), aliases(passed_nodes(analyzed(before))))
    return WindowColumn(attribute_ids(rows, name)[-1], call, frozenset(held))


def is_window(column: Column) -> bool:
    """Whether a Column may be a call of a window function; without a JVM call for most."""
    # SQL allows capitals.
    return "window" in str(column._jc).lower()


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
    """The window column behind a call of ``F.window_time``; any other Column as it is."""
    expression = without_alias(expression_of(column, session))
    if function_name(expression) != "window_time":
        return column
    return column_of(listed(expression.arguments())[0], session)


def _duration(argument: Any, session: SparkSession) -> str | int | Column:
    if kind_of(argument) != "Literal":
        return column_of(argument, session)
    value = argument.value()
    # In the JVM, an interval literal is a number of microseconds, anything else text.
    return value if isinstance(value, int) else str(value)
