"""The event time of a stream: windows and watermark must refer to the same column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql.types import ArrayType, IntegralType, MapType, StructType

from sparkjet.catalyst.columns import visible
from sparkjet.catalyst.expressions import expression_of, label, without_alias
from sparkjet.catalyst.logical_plans import (
    aliases,
    analyzed,
    attribute_id,
    attribute_ids,
    attributes,
    kind_of,
    listed,
    origins,
    passed_nodes,
    same_name,
    selected,
)
from sparkjet.catalyst.window_calls import without_window_time
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


@dataclass(frozen=True)
class EventTime:
    """The column of the windows, by name and by its identity in Spark's plan.

    A row's time is read at the watermark, and from there carried in a hidden column. A window names the visible column;
    if that were replaced in between, the window would silently use times other than those that it names.

    Attributes:
        name: Name of the column.
        ids: Its identity at the watermark, by Spark's exprId; empty if the rows no longer had the column.
        since: The point after which it must not be replaced.
        remedy: The way out if it is.
    """

    name: str
    ids: Sequence[int]
    since: str
    remedy: str

    @staticmethod
    def of_watermark(name: str, rows: DataFrame) -> EventTime:
        """The event time of ``withWatermark``, or of a union, by the name in the first stream."""
        remedy = f"Compute {name!r} before withWatermark(…), or give the new column another name."
        return EventTime(name, attribute_ids(rows, name), "withWatermark", remedy)

    @staticmethod
    def of_results(name: str, rows: DataFrame) -> EventTime:
        """The event time of results: their window column."""
        return EventTime(
            name, attribute_ids(rows, name), "its windows were computed", "Give the new column another name."
        )

    def columns(self, rows: DataFrame) -> list[int]:
        """The numbers of the columns of some rows that hold the event time, under whatever name."""
        renamed = aliases(passed_nodes(analyzed(rows)))
        output = enumerate(listed(analyzed(rows).output()))
        return [number for number, each in output if not {*self.ids}.isdisjoint(origins(each, renamed))]

    def check(self, rows: DataFrame, by: str, column: Column | str | None = None) -> None:
        """Reject rows in which a different column has this name; rows without it are accepted."""
        if isinstance(column, Column):
            expression = without_alias(expression_of(without_window_time(column, rows.sparkSession), rows.sparkSession))
            column = str(expression.name()) if kind_of(expression) == "UnresolvedAttribute" else column
        if column is not None and not (isinstance(column, str) and same_name(rows, column, self.name)):
            self._check_other(rows, by, column)
        elif not all(self._is_origin(rows, found) for found in attributes(rows, self.name)):
            message = (
                f"{by}: {self.name!r} was replaced after {self.since}, but windows and watermark use its values from "
                f"that point. {self.remedy}"
            )
            raise AnalysisError(message)

    def kept_in(self, rows: DataFrame) -> EventTime:
        """The event time in results with the columns of some rows: their plan does not contain that of the rows."""
        holding = [each for each in listed(analyzed(rows).output()) if self._is_origin(rows, each)]
        return replace(self, ids=[attribute_id(each) for each in holding])

    def is_among(self, rows: DataFrame, names: Sequence[str], by: str) -> bool:
        """Whether one of some columns holds the event time, under whatever name."""
        if any(same_name(rows, name, self.name) for name in names):
            self.check(rows, by)
        return any(self._is_origin(rows, found) for name in names for found in attributes(rows, name))

    def _check_other(self, rows: DataFrame, by: str, column: Column | str) -> None:
        """Reject a column that does not hold the event time under another name."""
        known = isinstance(column, Column) or bool(attributes(rows, column))
        if not known or not self._is_origin(rows, selected(rows, column)):
            message = (
                f"{by}: the column {label(column)!r} has no watermark, which is on {self.name!r}. Use that column in "
                "both places."
            )
            raise AnalysisError(message)

    def _is_origin(self, rows: DataFrame, expression: Any) -> bool:
        return not {*self.ids}.isdisjoint(origins(expression, aliases(passed_nodes(analyzed(rows)))))


def check_union(times: tuple[EventTime, EventTime], rows: tuple[DataFrame, DataFrame]) -> None:
    """Reject a union in which one event time is aligned with a column that is not the other event time."""
    for which, time, side in zip(("first", "second"), times, rows, strict=True):
        time.check(side, f"union, {which} stream")
    names = [visible(side) for side in rows]
    for number, name in enumerate(names[0]):
        if same_name(rows[0], name, times[0].name) and not same_name(rows[1], names[1][number], times[1].name):
            message = (
                f"union: the event time {times[0].name!r} of the first stream is aligned with {names[1][number]!r} of "
                f"the second, whose event time is {times[1].name!r}. Put the columns in the same order with select(…)."
            )
            raise AnalysisError(message)


def as_timestamp(found: DataType, name: str) -> str:
    """How to convert a column of some type to a timestamp.

    >>> from pyspark.sql.types import DoubleType, LongType
    >>> as_timestamp(LongType(), "at"), as_timestamp(DoubleType(), "at")
    ('F.timestamp_millis("at"), or timestamp_micros or timestamp_seconds', 'F.col("at").cast("timestamp")')
    """
    if isinstance(found, IntegralType):
        return f'F.timestamp_millis("{name}"), or timestamp_micros or timestamp_seconds'
    if isinstance(found, ArrayType | MapType | StructType):
        return f'F.col("{name}.at"), if "at" is a field of it'
    return f'F.col("{name}").cast("timestamp")'
