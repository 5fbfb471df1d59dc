"""The event time of a stream: a column that windows and watermark must mean alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.catalyst.columns import visible
from sparkjet.catalyst.logical_plans import attribute_ids, same_name
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class EventTime:
    """The column that windows are over, by name and by its identity in Spark's plan.

    The time of a row is taken where the watermark is, and travels in a hidden column from there. A window names the
    visible column; were that replaced in between, the query would say one thing and do another.

    Attributes:
        name: Name of the column.
        ids: Its identity as the watermark saw it, by Spark's exprId; none if the rows did not have it any more.
        since: What it must not be replaced after.
        remedy: The way out if it is.
    """

    name: str
    ids: Sequence[int]
    since: str
    remedy: str

    @staticmethod
    def of_watermark(name: str, rows: DataFrame) -> EventTime:
        """The event time of ``withWatermark`` or, by the first stream's name, of a union."""
        remedy = f"Compute {name!r} before withWatermark(…), or give the new column another name."
        return EventTime(name, attribute_ids(rows, name), "withWatermark", remedy)

    @staticmethod
    def of_results(name: str, rows: DataFrame) -> EventTime:
        """The time of results: their window column."""
        return EventTime(
            name, attribute_ids(rows, name), "its windows were computed", "Give the new column another name."
        )

    def check(self, rows: DataFrame, by: str) -> None:
        """Refuse rows whose column of this name is another one; rows without such a column are fine.

        Args:
            rows: What has become of the stream since.
            by: What names the column, for the message.

        Raises:
            AnalysisError: It was replaced.
        """
        found = attribute_ids(rows, self.name)
        if found and found != self.ids:
            message = (
                f"{by}: {self.name!r} was replaced after {self.since}, but windows and watermark go by the time that "
                f"it had then. {self.remedy}"
            )
            raise AnalysisError(message)


def check_union(times: tuple[EventTime, EventTime], rows: tuple[DataFrame, DataFrame]) -> None:
    """Refuse a union, column by column, in which the column of the first event time holds another time's rows.

    Raises:
        AnalysisError: Naming the column and the stream.
    """
    for which, time, side in zip(("first", "second"), times, rows, strict=True):
        time.check(side, f"union, {which} stream")
    names = [visible(side) for side in rows]
    for number, name in enumerate(names[0]):
        if same_name(rows[0], name, times[0].name) and not same_name(rows[1], names[1][number], times[1].name):
            message = (
                f"union: the event time {times[0].name!r} of the first stream faces {names[1][number]!r} of the "
                f"second, whose event time is {times[1].name!r}. Put the columns into the same order with select(…)."
            )
            raise AnalysisError(message)
