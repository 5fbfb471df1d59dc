"""Window joins: the results of two stages, joined in the epoch in which both are final."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import ONLY_SUBSTREAM, SUBSTREAM, TIME, Once, quoted, visible
from sparkjet.catalyst.expressions import column_of, expression_of, function_name, has_columns
from sparkjet.catalyst.logical_plans import children, kind_of, selected
from sparkjet.errors import AnalysisError
from sparkjet.plan.stage import Feed, Stage
from sparkjet.windows import SessionWindow, Window

if TYPE_CHECKING:
    from sparkjet.plan.stage import Intake
    from sparkjet.plan.static_join import On

_OTHER_TIME = "_sparkjet_other_time"
_NEEDED = {
    **dict.fromkeys(("inner", "leftsemi", "semi"), (True, True)),
    **dict.fromkeys(("left", "leftouter", "leftanti", "anti"), (True, False)),
    **dict.fromkeys(("right", "rightouter"), (False, True)),
    **dict.fromkeys(("outer", "full", "fullouter"), (False, False)),
}
"""For each kind of join, whether there can only be rows if the left, and the right, side has some."""


@dataclass(frozen=True, eq=False)
class WindowJoin(Stage):
    """The join of two results by their window; without state, as matching rows are final in the same epoch.

    Attributes:
        left: The rows on the left, results of a stage.
        right: The rows on the right.
        on: Names of columns that both have, or a condition.
        how: As in ``DataFrame.join``.
        window: The window of its rows, by the name of its column; that of the left side unless only the right has one.
    """

    left: Feed
    right: Feed
    on: list[str] | Column
    how: str
    window: Window | SessionWindow
    _once: Once = field(default_factory=Once)

    @property
    def feeds(self) -> tuple[Feed, Feed]:
        """See :attr:`Stage.feeds`."""
        return self.left, self.right

    @property
    def intakes(self) -> tuple[Intake, ...]:
        """Empty: nothing is taken into a state."""
        return ()

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The rows that are joined, not how: the latter is not state, and may change."""
        return {"join": "windows"}

    @property
    def grid(self) -> tuple[int, int] | None:
        """See :attr:`Stage.grid`."""
        return None if self.left.parent is None else self.left.parent.grid

    def operator(self, partitions: int) -> None:
        """None, as there is no state."""
        del partitions

    def output(self, rows: DataFrame) -> DataFrame:
        """The rows, which have their names already."""
        return rows

    def joined(self, results: Sequence[DataFrame | None]) -> DataFrame | None:
        """The rows of an epoch, from the results of both sides; None if there are certainly none."""
        needed = _NEEDED[_kind(self.how)]
        absent = [rows is None for rows in results]
        if all(absent) or any(each and is_needed for each, is_needed in zip(absent, needed, strict=True)):
            return None
        session = next(rows.sparkSession for rows in results if rows is not None)
        frames = []
        for number, (feed, rows) in enumerate(zip(self.feeds, results, strict=True)):
            if rows is None:
                frames.append(feed.transformations.apply(self._empty(number, session)))
            else:
                frames.append(feed.transformations.apply(rows))
        return self._join(*frames)

    def shape(self) -> DataFrame:
        """See :meth:`Stage.shape`."""
        return self._join(self.left.transformations.shape, self.right.transformations.shape)

    def _join(self, left: DataFrame, right: DataFrame) -> DataFrame:
        other = right.withColumnRenamed(TIME, _OTHER_TIME).drop(SUBSTREAM)
        joined = left.join(other, self.on, self.how)
        if _OTHER_TIME not in joined.columns:
            return joined
        return joined.withColumns(self._hidden).drop(_OTHER_TIME)

    def _empty(self, number: int, session: Any) -> DataFrame:
        """Empty results of a side, which Spark's optimizer knows to be empty."""
        java, source = session._jsparkSession, self.feeds[number].transformations.source
        schema = self._once(number, build=lambda: java.parseDataType(source.schema.json()))
        return DataFrame(java.createDataFrame(session._jvm.java.util.ArrayList(), schema), session)

    @cached_property
    def _hidden(self) -> dict[str, Column]:
        # For matching rows they are equal: both are the last microsecond of the window.
        return {TIME: F.coalesce(F.col(TIME), F.col(_OTHER_TIME)), SUBSTREAM: F.lit(ONLY_SUBSTREAM)}


@dataclass(frozen=True)
class JoinedResults:
    """One side of a join of results: the rows, and the window whose column they have."""

    feed: Feed
    window: Window | SessionWindow

    @property
    def rows(self) -> DataFrame:
        """The rows, for analysis only."""
        return self.feed.transformations.shape

    def bound(self, column: Column | str) -> str | None:
        """The part of the window in a column: ``window``, ``start``, ``end``; None if there is none."""
        together = self.feed.transformations.together
        if together is None or not has_columns(self.rows, F.col(column) if isinstance(column, str) else column):
            return None
        return together.part(selected(self.rows, column), self.rows)


def window_join(left: JoinedResults, right: JoinedResults, on: On, how: str | None) -> WindowJoin:
    """The join of two results."""
    _check_sides(left, right, how)
    given: Sequence[object] = list(on) if isinstance(on, list | tuple) else [on]
    names = [each for each in given if isinstance(each, str)]
    conditions = [each for each in given if isinstance(each, Column)]
    if len(names) == len(given) and names:
        pairs: list[tuple[Column | str, Column | str]] = [(quoted(name), quoted(name)) for name in names]
    elif len(conditions) == len(given) and conditions:
        pairs = list(_equalities(reduce(and_, conditions), left.rows))
    else:
        message = (
            f"join: on={on!r} must name columns that both results have, the window among them, e.g. "
            f'on=["{left.window.name}", "key"], or be a condition over aliases.'
        )
        raise AnalysisError(message)
    _check_windows(left, right, pairs)
    kept = right if _kind(how or "inner") in {"right", "rightouter"} else left
    name = next((each for each in visible(kept.rows) if kept.bound(quoted(each)) == "window"), kept.window.name)
    return WindowJoin(
        left.feed,
        right.feed,
        names or reduce(and_, conditions),
        how or "inner",
        replace(kept.window, name=name),
    )


def _kind(how: str) -> str:
    return how.lower().replace("_", "")


def _check_sides(left: JoinedResults, right: JoinedResults, how: str | None) -> None:
    if _kind(how or "inner") not in _NEEDED:
        message = f"join: how={how!r}: results of windows are joined by their window. Known: {', '.join(_NEEDED)}."
        raise AnalysisError(message)
    for side, each in (("left", left), ("right", right)):
        if TIME not in each.rows.columns:
            message = (
                f"join: mapInPandas, mapInArrow and unpivot have rebuilt the rows on the {side}, without their event "
                "time. Join first."
            )
            raise AnalysisError(message)
    if left.feed.is_streaming != right.feed.is_streaming:
        message = "join: one side comes from a stream, the other one from a batch DataFrame. Compute that with toDF()."
        raise AnalysisError(message)
    if isinstance(left.window, SessionWindow) != isinstance(right.window, SessionWindow):
        message = (
            "join: one side has session windows, which are final at another time than the windows of the other side. "
            "Use windows of one kind."
        )
        raise AnalysisError(message)
    if left.feed.lag != right.feed.lag:
        message = (
            "join: windows over session windows are final later than other windows, and only one side has them. Join "
            "before the sessions, or let both sides have them."
        )
        raise AnalysisError(message)


def _check_windows(
    left: JoinedResults, right: JoinedResults, pairs: Sequence[tuple[Column | str, Column | str]]
) -> None:
    """Refuse a condition that does not make the ends of the windows equal, as the results come in order of these."""
    bounds = [(left.bound(one), right.bound(other)) for one, other in pairs]
    found = {one for one, other in bounds if one is not None and one == other}
    if not found or (found == {"start"} and isinstance(left.window, SessionWindow)):
        names = (left.window.name, right.window.name)
        message = (
            f"join: the windows of both sides must be equal, and {names[0]!r} is not compared with {names[1]!r}, or "
            f'has been replaced. Add it to the names, e.g. on=["{names[0]}", "key"], or compare them in the condition.'
        )
        raise AnalysisError(message)
    if (
        "end" not in found
        and isinstance(left.window, Window)
        and isinstance(right.window, Window)
        and left.window.grid != right.window.grid
    ):
        message = (
            f"join: the windows on the left are {left.window.grid}, those on the right {right.window.grid}: they are "
            "not the same. Use equal windows, or join by their ends: a.alias('a').join(b.alias('b'), "
            'F.expr("a.window.end = b.window.end")).'
        )
        raise AnalysisError(message)


def _equalities(condition: Column, rows: DataFrame) -> Iterator[tuple[Column, Column]]:
    """The expressions that a condition requires to be equal, each pair in both orders."""
    session = rows.sparkSession

    def found(expression: Any) -> Iterator[tuple[Column, Column]]:
        parts = children(expression)
        what = function_name(expression) or kind_of(expression)
        if what in {"And", "and"}:
            for part in parts:
                yield from found(part)
        elif what in {"EqualTo", "EqualNullSafe", "=", "==", "<=>"}:
            one, other = (column_of(part, session) for part in parts)
            yield from ((one, other), (other, one))

    return found(expression_of(condition, session))
