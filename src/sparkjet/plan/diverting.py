"""Diverting: a row whose expression raises is marked with where, and later expressions are not computed for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, zip_longest
from operator import and_, or_
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import FAILURE, KEPT, ORIGINAL, SUBSTREAM, TIME, TRIED, Once, is_own, quoted, visible
from sparkjet.catalyst.expressions import redacted
from sparkjet.catalyst.logical_plans import same_name, selected
from sparkjet.catalyst.python_calls import StagedCalls, has_calls, staged
from sparkjet.catalyst.tries import VALUE, always, never_raises, tried
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.catalyst.row_counter import RowCounter

STEP, PLACE, CAUSE = "step", "place", "cause"
"""Fields of ``FAILURE``: the number of the link, what it computes, in words, and what a Python function raised."""
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
_FAILURE = f"struct<{STEP}:int,{PLACE}:string,{CAUSE}:string>"
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


@dataclass(frozen=True)
class _Attempt:
    """A column that is tried.

    Attributes:
        column: What is tried.
        place: What it is, where a failure is named.
        calls: Its calls of Python functions, if there are any.
    """

    column: Column
    place: str
    calls: StagedCalls | None = None

    @property
    def cause(self) -> Column:
        """What a Python function raised, null where none did."""
        return F.lit(None).cast("string") if self.calls is None else self.calls.cause


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
        frame, session = self.prepared(frame), frame.sparkSession
        found = self._once(
            "tried",
            build=lambda: {
                name: tried(F.when(F.col(KEPT), each.column), session) for name, each in self._attempts.items()
            },
        )
        return frame.withColumns(found) if found else frame

    def prepared(self, frame: DataFrame) -> DataFrame:
        """The rows with what Python functions return, or raise, that the columns call."""
        # Built once: Spark would compile another one anew in each epoch.
        self._once("attempts", build=lambda: self._attempted(frame))
        # Those of several columns together, so that they are computed in one go.
        for stages in zip_longest(*(each.stages for each in self._calls), fillvalue={}):
            frame = frame.withColumns({name: column for stage in stages for name, column in stage.items()})
        return frame

    def raising(self, frame: DataFrame) -> DataFrame:
        """The columns of rows that :meth:`prepared` has made, computed where nothing catches what raises."""
        # A call whose argument raises is not made, and says nothing of it.
        arguments = [column for each in self._calls for column in each.arguments]
        return frame.select(*arguments, *(each.column for each in self._attempts.values()))

    def value(self, number: int) -> Column:
        """A column of :meth:`on`, null in rows that are not kept."""
        name = f"{_TRY}{number}"
        return F.col(f"{name}.{VALUE}") if name in self._attempts else self._columns[number][1]

    def marks(self, step: int, passed: Column | None = None) -> dict[str, Column]:
        """What the hidden columns become: whether a row goes on, and where it failed."""
        raised = [(F.col(name).isNull(), each) for name, each in self._attempts.items()]
        # Spark moves filters below a projection in which all is deterministic, and writes out in them what its columns
        # are: KEPT twice for each step, so that twenty steps had a million conditions.
        kept = [always(), F.col(KEPT), *(~each for each, _ in raised), *([] if passed is None else [passed])]
        marks = {KEPT: reduce(and_, kept)}
        if raised:
            places = (F.when(each, failure(step, attempt.place, attempt.cause)) for each, attempt in raised)
            marks[FAILURE] = F.coalesce(F.col(FAILURE), *places)
        return marks

    def without(self, frame: DataFrame) -> DataFrame:
        """The rows without what :meth:`on` added."""
        names = [*self._attempts, *(name for each in self._calls for name in each.names)]
        return frame.drop(*names) if names else frame

    @property
    def _attempts(self) -> dict[str, _Attempt]:
        """What is tried of the columns, by the names of :meth:`on`; what cannot raise is not among them."""
        return self._once("attempts", build=dict)

    @property
    def _calls(self) -> list[StagedCalls]:
        return [each.calls for each in self._attempts.values() if each.calls is not None]

    def _attempted(self, frame: DataFrame) -> dict[str, _Attempt]:
        session, found = frame.sparkSession, {}
        for number, (begin, column) in enumerate(self._columns):
            name, expression = f"{_TRY}{number}", selected(frame, column)
            # What cannot raise is left as it is: a copied event time can still be read in a row that has failed.
            if never_raises(expression, session):
                continue
            place = f"{begin} {redacted(column, session)}"
            if has_calls(expression):
                calls = staged(expression, frame, name)
                found[name] = _Attempt(calls.column, place, calls)
            else:
                found[name] = _Attempt(column, place)
        return found


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


def passed(frame: DataFrame, failures: RowCounter | None = None) -> DataFrame:
    """The rows that have neither failed nor been dropped by a filter."""
    rows = frame.where(KEPT) if failures is None else failures.passed(frame, KEPT)
    return rows.drop(*TRIED)


def has_failed() -> Column:
    """Whether a row has failed."""
    return F.col(f"{FAILURE}.{STEP}").isNotNull()


def failed(frame: DataFrame, first: int) -> DataFrame:
    """The rows that have failed, as they were at ``divert``, with event time and substream where there are any."""
    return frame.where(F.col(f"{FAILURE}.{STEP}") >= first).select(ORIGINAL, FAILURE, *carried(frame))


def carried(frame: DataFrame) -> list[Column]:
    """Event time and substream of rows, null where these have none."""
    return [F.col(name) if name in frame.columns else column.alias(name) for name, column in untimed().items()]


def untimed() -> dict[str, Column]:
    """Event time and substream of a row that has neither."""
    return {TIME: F.lit(None).cast("bigint"), SUBSTREAM: F.lit(None).cast("string")}


def letters_shape(rows: DataFrame) -> DataFrame:
    """A DataFrame with the schema of the dead letters of some rows, for analysis only."""
    taken = [name for name in rows.columns if name.lower() in ADDED]
    if taken:
        message = f"divert: the column {taken[0]!r} exists already and is added to dead letters. Rename yours before."
        raise AnalysisError(message)
    twice = next((one for one, other in combinations(rows.columns, 2) if same_name(rows, one, other)), None)
    if twice is not None:
        message = f"divert: there are several columns {twice!r}, and dead letters name each. Rename one before."
        raise AnalysisError(message)
    own = [name for name in rows.columns if is_own(name)]
    if own:
        message = f"divert: the column name {own[0]!r} is one of those that sparkjet uses. Rename yours before."
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


def failure(step: int, place: str, cause: Column | None = None) -> Column:
    """Where a row has failed: the number of the link, what it computes, and what a Python function raised."""
    said = F.lit(None).cast("string") if cause is None else cause
    return F.struct(F.lit(step).alias(STEP), F.lit(place).alias(PLACE), said.alias(CAUSE))
