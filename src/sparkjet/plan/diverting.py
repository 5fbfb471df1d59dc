"""Diverting: a row whose expression raises is marked with where, and later expressions are not computed for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import FAILURE, KEPT, ORIGINAL, SUBSTREAM, TIME, TRIED, Once, quoted, visible
from sparkjet.catalyst.expressions import label
from sparkjet.catalyst.logical_plans import selected
from sparkjet.catalyst.tries import VALUE, always, never_raises, tried
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STEP, PLACE = "step", "place"
"""Fields of ``FAILURE``: the number of the link, and what it computes, in words."""
OUTPUTS = "_outputs"
"""The column of a dead letter that names the outputs that lack the row."""
ADDED = {
    "_stage": "string",
    "_error": "string",
    "_message": "string",
    "_trace": "string",
    "_substream": "string",
    "_epoch": "bigint",
    OUTPUTS: "string",
}
"""What a dead letter is delivered with, and the types."""
_FAILURE = f"struct<{STEP}:int,{PLACE}:string>"
_TRY = "_sparkjet_try"


@dataclass(frozen=True, eq=False)
class Divert:
    """A point of a stream from which failed rows are diverted; told from others by its identity.

    Attributes:
        most: How many rows of an epoch may fail, None for any.
        share: The same as a share of all rows.
    """

    most: int | None = None
    share: float | None = None


class Tries:
    """Columns that a link computes, each only of rows that are kept and have not failed.

    Args:
        columns: The columns, each with what its text is preceded by where a failure is named.
    """

    def __init__(self, columns: Iterable[tuple[str, Column]]) -> None:
        self._columns = tuple(columns)
        self._once = Once()

    def on(self, frame: DataFrame) -> DataFrame:
        """The rows with what is tried."""
        found = {f"{_TRY}{number}": column for number, column in enumerate(self._made(frame)) if column is not None}
        return frame.withColumns(found) if found else frame

    def value(self, number: int) -> Column:
        """A column of :meth:`on`, null in rows that are not kept."""
        if self._known[number] is None:
            return self._columns[number][1]
        return F.col(f"{_TRY}{number}.{VALUE}")

    def marks(self, step: int, passed: Column | None = None) -> dict[str, Column]:
        """What the hidden columns become: whether a row goes on, and where it failed.

        Args:
            step: The number of the link.
            passed: What a filter says of rows of which it did not raise.
        """
        # Their texts only now: without divert(…) nobody asks for them.
        raised = [
            (F.col(f"{_TRY}{number}").isNull(), f"{begin} {label(column)}")
            for number, ((begin, column), made) in enumerate(zip(self._columns, self._known, strict=True))
            if made is not None
        ]
        kept = [F.col(KEPT), *(~each for each, _ in raised), *([] if passed is None else [passed])]
        marks = {KEPT: reduce(and_, kept)}
        if raised:
            places = (F.when(each, failure(step, place)) for each, place in raised)
            marks[FAILURE] = F.coalesce(F.col(FAILURE), *places)
        return marks

    def without(self, frame: DataFrame) -> DataFrame:
        """The rows without what :meth:`on` added."""
        names = [f"{_TRY}{number}" for number, made in enumerate(self._known) if made is not None]
        return frame.drop(*names) if names else frame

    @property
    def _known(self) -> list[Column | None]:
        """Of each column what is tried, None if it cannot raise; after :meth:`on`."""
        return self._once("made", build=list)

    def _made(self, frame: DataFrame) -> list[Column | None]:
        session = frame.sparkSession

        def attempt(column: Column) -> Column | None:
            # What cannot raise is left as it is: a copied event time can still be read in a row that has failed.
            if never_raises(selected(frame, column), session):
                return None
            return tried(F.when(F.col(KEPT), column), session)

        # Built once: Spark would compile another one anew in each epoch.
        return self._once("made", build=lambda: [attempt(each) for _, each in self._columns])


def begun(frame: DataFrame) -> DataFrame:
    """Rows at the point from which failed ones are diverted; those that a filter has marked before stay marked."""
    kept = always() & F.col(KEPT) if KEPT in frame.columns else always()
    original = F.struct(*(F.col(quoted(name)) for name in visible(frame)))
    return frame.withColumns({KEPT: kept, FAILURE: F.lit(None).cast(_FAILURE), ORIGINAL: original})


def with_known_times(frame: DataFrame, hidden: Mapping[str, Column], by: Sequence[str], violated: Column) -> DataFrame:
    """Rows with event time and substream, which in a failed row are known only if all columns of them are.

    Otherwise a substream that does not exist would hold back the watermark, or be advanced by another one's rows. A row
    that a filter has dropped has neither, as where nothing is diverted: it is not among the rows with a watermark. Nor
    is one that has ``violated`` an expectation, which may be one of its time.
    """
    lacking = reduce(or_, (F.col(quoted(name)).isNull() for name in by), F.lit(False))
    is_known = F.col(KEPT) | (F.col(FAILURE).isNotNull() & ~violated & ~lacking)
    return frame.withColumns({name: F.when(is_known, column) for name, column in hidden.items()})


def passed(frame: DataFrame) -> DataFrame:
    """The rows that have neither failed nor been dropped by a filter."""
    return frame.where(KEPT).drop(*TRIED)


def failed(frame: DataFrame, first: int) -> DataFrame:
    """The rows that have failed, as they were at ``divert``, with event time and substream where there are any.

    Args:
        frame: Rows at the end of a chain.
        first: The number of the first link whose failures count.
    """
    absent = {TIME: F.lit(None).cast("bigint"), SUBSTREAM: F.lit(None).cast("string")}
    hidden = [F.col(name) if name in frame.columns else column.alias(name) for name, column in absent.items()]
    return frame.where(F.col(f"{FAILURE}.{STEP}") >= first).select(ORIGINAL, FAILURE, *hidden)


def letters_shape(rows: DataFrame) -> DataFrame:
    """A DataFrame with the schema of the dead letters of some rows, for analysis only.

    Raises:
        AnalysisError: A column of the user's has the name of an added one.
    """
    taken = [name for name in rows.columns if name.lower() in ADDED]
    if taken:
        message = f"divert: the column {taken[0]!r} exists already and is added to dead letters. Rename yours before."
        raise AnalysisError(message)
    return rows.withColumns({name: F.lit(None).cast(each) for name, each in ADDED.items()})


def common(one: Sequence[object], other: Sequence[object]) -> int:
    """How many elements two sequences begin with that are the same objects."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left is not right:
            break
        count += 1
    return count


def failure(step: int, place: str) -> Column:
    """Where a row has failed: the number of the link, and what it computes."""
    return F.struct(F.lit(step).alias(STEP), F.lit(place).alias(PLACE))
