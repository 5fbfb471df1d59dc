"""Diverting: a row whose expression raises is marked with the place, and later expressions skip it."""

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
from sparkjet.catalyst.python_calls import CallSteps, has_calls, in_steps
from sparkjet.catalyst.tries import VALUE, always, never_raises, tried
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.catalyst.row_counter import RowCounter

STEP, PLACE, CAUSE = "step", "place", "cause"
"""Fields of ``FAILURE``: the number of the link, a text for what it computes, and the error of a Python function."""
OUTPUTS = "_outputs"
"""The column of a dead letter with the names of the outputs that lack the row."""
ADDED = {
    "_stage": "string",
    "_error": "string",
    "_message": "string",
    "_trace": "string",
    "_substream": "string",
    "_epoch": "bigint",
    OUTPUTS: "string",
}
"""Columns that are added to dead letters, with their types."""
_FAILURE = f"struct<{STEP}:int,{PLACE}:string,{CAUSE}:string>"
_TRY = "_sparkjet_try"


@dataclass(frozen=True, eq=False)
class Divert:
    """A point of a stream from which failed rows are diverted; identified by the object itself.

    Attributes:
        most: The number of rows of an epoch that may fail, None for any.
        share: The same as a share of all rows.
    """

    most: int | None = None
    share: float | None = None


@dataclass(frozen=True)
class _Attempt:
    """A column that is tried.

    Attributes:
        column: The column.
        place: Its description in a failure.
        calls: Its calls of Python functions, if any.
    """

    column: Column
    place: str
    calls: CallSteps | None = None

    @property
    def cause(self) -> Column:
        """The error that a Python function has raised, null if there is none."""
        return F.lit(None).cast("string") if self.calls is None else self.calls.cause


class Tries:
    """Columns that a link computes, each only for rows that are kept and have not failed.

    Args:
        columns: The columns, each with the text that precedes its own in a failure.
    """

    def __init__(self, columns: Iterable[tuple[str, Column]]) -> None:
        self._columns = tuple(columns)
        self._once = Once()

    def on(self, frame: DataFrame) -> DataFrame:
        """The rows with the attempted columns."""
        frame, session = self.prepared(frame), frame.sparkSession
        found = self._once(
            "tried",
            build=lambda: {
                name: tried(F.when(F.col(KEPT), each.column), session) for name, each in self._attempts.items()
            },
        )
        return frame.withColumns(found) if found else frame

    def prepared(self, frame: DataFrame) -> DataFrame:
        """The rows with the results, or errors, of the Python functions that the columns call."""
        # Built once: Spark would compile it again in each epoch.
        self._once("attempts", build=lambda: self._attempted(frame))
        # Calls of several columns are put together, so that they are computed in one pass.
        for steps in zip_longest(*(each.steps for each in self._calls), fillvalue={}):
            frame = frame.withColumns({name: column for step in steps for name, column in step.items()})
        return frame

    def raising(self, frame: DataFrame) -> DataFrame:
        """The columns over rows from :meth:`prepared`, computed where no error is caught."""
        # A call whose argument raises is not made, and so reports nothing.
        arguments = [column for each in self._calls for column in each.arguments]
        return frame.select(*arguments, *(each.column for each in self._attempts.values()))

    def value(self, number: int) -> Column:
        """A column from :meth:`on`, null in rows that are not kept."""
        name = f"{_TRY}{number}"
        return F.col(f"{name}.{VALUE}") if name in self._attempts else self._columns[number][1]

    def marks(self, step: int, passed: Column | None = None) -> dict[str, Column]:
        """New values of the hidden columns: whether a row is kept, and where it has failed."""
        raised = [(F.col(name).isNull(), each) for name, each in self._attempts.items()]
        # Spark moves filters below a projection whose expressions are all deterministic, and writes out its columns in
        # them: KEPT twice for each step, so that twenty steps had a million conditions.
        kept = [always(), F.col(KEPT), *(~each for each, _ in raised), *([] if passed is None else [passed])]
        marks = {KEPT: reduce(and_, kept)}
        if raised:
            places = (F.when(each, failure(step, attempt.place, attempt.cause)) for each, attempt in raised)
            marks[FAILURE] = F.coalesce(F.col(FAILURE), *places)
        return marks

    def without(self, frame: DataFrame) -> DataFrame:
        """The rows without the columns that :meth:`on` has added."""
        names = [*self._attempts, *(name for each in self._calls for name in each.names)]
        return frame.drop(*names) if names else frame

    @property
    def _attempts(self) -> dict[str, _Attempt]:
        """The attempts at the columns, by the names in :meth:`on`; columns that cannot raise are not among them."""
        return self._once("attempts", build=dict)

    @property
    def _calls(self) -> list[CallSteps]:
        return [each.calls for each in self._attempts.values() if each.calls is not None]

    def _attempted(self, frame: DataFrame) -> dict[str, _Attempt]:
        session, found = frame.sparkSession, {}
        for number, (begin, column) in enumerate(self._columns):
            name, expression = f"{_TRY}{number}", selected(frame, column)
            # A column that cannot raise is left as it is: a copied event time can still be read in a row that has
            # failed.
            if never_raises(expression, session):
                continue
            place = f"{begin} {redacted(column, session)}"
            if has_calls(expression):
                calls = in_steps(expression, frame, name)
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
    """Rows with event time and substream, which are known for a failed row only if all their columns are.

    Otherwise a substream that does not exist would hold back the watermark, or another substream's rows would advance
    it. A row that a filter has dropped has neither, just as without ``divert``: it is not among the rows with a
    watermark. Neither has a row that has ``violated`` an expectation, which may concern its time.
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
    """The rows that have failed, as they were at ``divert``, with event time and substream if they have them."""
    return frame.where(F.col(f"{FAILURE}.{STEP}") >= first).select(ORIGINAL, FAILURE, *carried(frame))


def carried(frame: DataFrame) -> list[Column]:
    """Event time and substream of rows, null if they have none."""
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
    """The number of leading elements of two sequences that are the same objects."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left is not right:
            break
        count += 1
    return count


def failure(step: int, place: str, cause: Column | None = None) -> Column:
    """The place where a row has failed: the number of the link, a text for it, and the error of a Python function."""
    said = F.lit(None).cast("string") if cause is None else cause
    return F.struct(F.lit(step).alias(STEP), F.lit(place).alias(PLACE), said.alias(CAUSE))
