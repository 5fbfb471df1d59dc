"""Hidden columns of each event, column names quoted for expressions, and columns compiled once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

T = TypeVar("T")

TIME = "_sparkjet_time"
"""Event time in microseconds since the epoch; null if the event has none."""
SUBSTREAM = "_sparkjet_substream"
"""Name of the event's substream."""
SIDE = "_sparkjet_side"
"""Number of the side of a union whose sides are transformed batch by batch."""
KEPT = "_sparkjet_kept"
"""Whether the row passed the user's filters; rows that did not are kept, marked, for the watermark."""
FAILURE = "_sparkjet_failure"
"""Where an expression first raised for the row, after ``divert``; null if none has."""
ORIGINAL = "_sparkjet_original"
"""The row as it was at ``divert``."""
CARRIED = (TIME, SUBSTREAM)
"""Hidden columns of every row of a stream."""
TRIED = (KEPT, FAILURE, ORIGINAL)
"""Hidden columns of a row on its way from ``divert`` to where failed rows are split off."""
HIDDEN = (*CARRIED, *TRIED)
_OWN = "_sparkjet_"
IS_SHED = "is_shed"
"""Whether a result row is of a window that was closed early; a visible column, with ``option("isShed", True)`` only."""
IS_EARLY = "is_early"
"""Whether a result row is early; a visible column, with ``option("isEarly", True)`` only."""
MARKS = (IS_EARLY, IS_SHED)
"""Columns in which results describe themselves: a sink whose columns are fixed has a header for each."""
ONLY_SUBSTREAM = "all"
"""Name of the only substream of a stream without ``by``."""


class Once:
    """Columns that are built on first use and reused in every epoch.

    A rebuilt Column has new names for the variables of its lambdas, so Spark would compile it again; and the JVM calls
    that build one take too long for a small epoch.
    """

    def __init__(self) -> None:
        self._built: dict[tuple[Hashable, ...], Any] = {}

    def __call__(self, *name: Hashable, build: Callable[[], T]) -> T:
        """The result of ``build``, which is called only the first time for a name."""
        if name not in self._built:
            self._built[name] = build()
        return cast("T", self._built[name])

    def columns(self, *names: str) -> CompiledColumns:
        """Columns by name; Python needs three JVM calls to make one."""
        return self("columns", *names, build=partial(CompiledColumns, names))


class CompiledColumns:
    """Columns that every epoch selects or groups by, as the list that the JVM wants; on the driver.

    Python's own ``select`` makes that list again each time, with one JVM call for each column and another for each
    object that it releases: about half of all calls of a small epoch.
    """

    def __init__(self, columns: Iterable[Column | str]) -> None:
        self._columns = [F.col(column) if isinstance(column, str) else column for column in columns]
        self._made: Any = None

    def __iter__(self) -> Iterator[Column]:
        return iter(self._columns)

    def select(self, frame: DataFrame, *further: Column) -> DataFrame:
        """``frame.select`` of these columns, followed by ``further`` ones."""
        listed = self.listed(frame)
        for column in further:
            listed = listed.appended(column._jc)
        return _wrapped(frame._jdf.select(listed), frame)

    def agg(self, frame: DataFrame, by: CompiledColumns | None = None) -> DataFrame:
        """``frame.groupBy(by).agg`` of these columns; over all rows without ``by``."""
        listed = self.listed(frame)
        grouped = frame._jdf if by is None else frame._jdf.groupBy(by.listed(frame))
        return _wrapped(grouped.agg(listed.head(), listed.tail()), frame)

    def listed(self, frame: DataFrame) -> Any:
        """The columns as a list in the JVM of ``frame``."""
        if self._made is None:
            self._made = frame._jcols(*self._columns)  # type: ignore[operator]
        return self._made


def _wrapped(java: Any, beside: DataFrame) -> DataFrame:
    return type(beside)(java, beside.sparkSession)


def quoted(name: str) -> str:
    """A column name as an identifier, whatever characters it contains.

    >>> quoted("a.b")
    '`a.b`'
    """
    return "`" + name.replace("`", "``") + "`"


def is_own(name: str) -> bool:
    """Whether a name is one that sparkjet reserves for itself."""
    return name.strip("`").lower().startswith(_OWN)


def visible(frame: DataFrame) -> list[str]:
    """The user's columns of a DataFrame."""
    return [name for name in frame.columns if name not in HIDDEN]


def substream_id(by: Sequence[str]) -> Column:
    """The substream of a row as text: the columns of ``by`` joined by a slash."""
    if not by:
        return F.lit(ONLY_SUBSTREAM)
    parts = [F.coalesce(F.col(quoted(name)).cast("string"), F.lit("null")) for name in by]
    return parts[0] if len(parts) == 1 else F.concat_ws("/", *parts)


def is_star(column: Column | str) -> bool:
    """Whether a column of a ``select`` stands for all columns."""
    # SQL allows blanks around it.
    return str(column).removeprefix("Column<'").removesuffix("'>").strip() in {"*", "unresolvedstar()"}


def select_visible(frame: DataFrame, columns: Sequence[Column | str]) -> DataFrame:
    """``frame.select(columns)`` that keeps the hidden columns; ``*`` would include them."""
    return frame.select(*columns, *(name for name in HIDDEN if name in frame.columns))
