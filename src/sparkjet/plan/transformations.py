"""Chains of row-by-row transformations, as written by the user and as run below the watermark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import FAILURE, HIDDEN, KEPT, ORIGINAL, is_own, visible
from sparkjet.catalyst.expressions import parts_of
from sparkjet.catalyst.logical_plans import attribute_ids, kind_of, listed
from sparkjet.catalyst.plan_analysis import calls_python, reads_any
from sparkjet.catalyst.python_calls import check_calls, has_calls
from sparkjet.catalyst.row_by_row import Together, added, check_step
from sparkjet.catalyst.tries import never_raises
from sparkjet.catalyst.window_calls import WindowColumn, window_of
from sparkjet.errors import AnalysisError
from sparkjet.plan.diverting import passed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sparkjet.catalyst.row_counter import RowCounter
    from sparkjet.plan.diverting import Divert, Tries
    from sparkjet.plan.expectations import Expectation
    from sparkjet.plan.static_tables import StaticTable

_SUBQUERIES = frozenset({"ScalarSubquery", "Exists", "LateralSubquery"})
Transformation = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Link:
    """One transformation.

    Attributes:
        plain: The transformation as the user wrote it.
        marked: The same on rows that include marked ones, which a filter has dropped: none of the user's expressions
            may be evaluated on them. None if this is impossible.
        filters: Whether it may drop rows.
        remakes: Whether its rows are new, without the hidden columns.
        multiplies: Whether it may turn one row into several.
        table: The static table that it joins the rows with, if any.
        analyzed: The same for analysis only, if that must not read anything.
        whole: Whether it needs all results at once, as sorting them does.
        windows: The calls that compute columns that are windows, by the columns' names.
        tried: The same after ``divert``, on rows with the columns ``TRIED`` and with the number of the link: none of
            the user's expressions may be evaluated on rows that are not kept, or fail the query. None if this is
            impossible.
        divert: The point from which failed rows are diverted, if this link is one.
        alone: The same for a single row on the driver, if that differs.
        tries: Its attempts for rows after ``divert``, if any.
        expectation: The expectation by which it filters and which it counts, if any.
        number: Number of links before it, including those below a watermark.
        calls: Whether it calls Python functions.
        repeats: Whether it returns the same if computed once more; after ``divert``, as ``calls``.
    """

    plain: Transformation
    marked: Transformation | None
    filters: bool = False
    remakes: bool = False
    multiplies: bool = False
    table: StaticTable | None = None
    analyzed: Transformation | None = None
    whole: bool = False
    windows: Mapping[str, Column] = field(default_factory=dict, compare=False)
    tried: Callable[[DataFrame, int], DataFrame] | None = None
    divert: Divert | None = None
    alone: Transformation | None = None
    tries: Callable[[], Tries] | None = None
    expectation: Expectation | None = None
    number: int = 0
    calls: bool = False
    repeats: bool = True


@dataclass(frozen=True)
class Transformations:
    """A DataFrame and the transformations that are applied to each of its batches.

    Attributes:
        source: The streaming DataFrame, or the results of windows.
        shape: The chain applied to ``source``, for its schema and analysis errors; never executed.
        links: The chain.
        keeps_rows: Whether the chain neither drops nor multiplies rows.
        markable: Whether :meth:`marked` can run the chain.
        passes: How many times the chain reads a batch.
        below: The chain from which ``source`` was made by adding the hidden columns; None if it has none.
        covered: Number of links at the start that ``below`` also covers.
        timing: The link that made ``source`` from ``below``; None if that is not known.
        together: The columns by which window functions may be partitioned, None if they are not allowed.
        windows: The columns that are windows.
    """

    source: DataFrame
    shape: DataFrame
    links: tuple[Link, ...] = ()
    keeps_rows: bool = True
    markable: bool = True
    passes: int = 1
    below: Transformations | None = None
    covered: int = 0
    timing: Link | None = field(default=None, compare=False)
    together: Together | None = None
    windows: tuple[WindowColumn, ...] = field(default=(), compare=False)

    @property
    def root(self) -> Transformations:
        """The chain that begins with the user's own DataFrame."""
        return self if self.below is None else self.below.root

    @property
    def bare(self) -> Transformations:
        """The same chain without event time, from the user's own DataFrame and without hidden columns."""
        if self.below is None:
            return self
        below = self.below.bare
        shape = self.outlined(below.shape, after=self.covered)
        return replace(below, shape=shape, links=(*below.links, *self.links[self.covered :]))

    @property
    def divert(self) -> Divert | None:
        """The point from which failed rows are diverted, None if there is none."""
        found = next((link.divert for link in self.links if link.divert is not None), None)
        return self.below.divert if found is None and self.below is not None else found

    @property
    def diverted_shape(self) -> DataFrame:
        """The rows at ``divert``, for analysis only."""
        root, before = self.root, len(self.all_links) - len(self.diverted_links) - 1
        return replace(root, links=self.all_links[:before]).outlined(root.source).drop(*HIDDEN)

    @property
    def all_links(self) -> tuple[Link, ...]:
        """All links from the user's own DataFrame, including those below a watermark."""
        return self.links if self.below is None else (*self.below.all_links, *self.links[self.covered :])

    @property
    def diverted_links(self) -> tuple[Link, ...]:
        """The links after ``divert``; none without it."""
        found = self.all_links
        return next((found[number:] for number, link in enumerate(found, 1) if link.divert is not None), ())

    @cached_property
    def tried_from(self) -> int | None:
        """The number in this chain of the first link whose rows have the columns ``TRIED``, None if none has."""
        if FAILURE in self.source.columns:
            return 0
        return next((number for number, link in enumerate(self.links) if link.divert is not None), None)

    def is_tried_once(self, after: int) -> bool:
        """Whether its links from ``after`` may treat a row differently if they are tried once more."""
        return self.tried_from is not None and not all(link.repeats for link in self.links[after:])

    def drops(self, number: int) -> bool:
        """Whether a link of this chain removes rows, instead of only marking them."""
        is_tried = self.tried_from is not None and number >= self.tried_from
        return self.links[number].filters and not is_tried

    @property
    def whole(self) -> bool:
        """Whether it needs all results at once."""
        return any(link.whole for link in self.links)

    @property
    def tables(self) -> list[StaticTable]:
        """The static tables that each epoch needs."""
        return [link.table for link in self.links if link.table is not None and link.table.by_epoch]

    def check_fixed(self, method: str) -> None:
        """Refuse a join with a static table that is read at its own time, where the chain is part of Spark's query."""
        if self.tables:
            message = (
                f"{method}: what comes before is a part of the query that Spark runs, and Spark decides when a static "
                f"table in it is read. Join with read_once(…), read_every_epoch(…) or a map after {method}(…)."
            )
            raise AnalysisError(message)

    def after(self, count: int) -> Transformations:
        """The chain without its first links, for rows that have gone through them."""
        return replace(self, source=self.apply(self.source, upto=count), links=self.links[count:])

    def then(self, link: Link, *, reads_hidden: bool = False) -> Transformations:
        """The chain with one more link; Spark's analysis errors are raised here."""
        shape = _outline(link)(self.shape)
        for name in HIDDEN:
            if attribute_ids(shape, name) != ([] if link.remakes else attribute_ids(self.shape, name)):
                raise AnalysisError(f"the column name {name!r} is used by sparkjet. Give your column another name.")
        hidden = () if reads_hidden or self.together is not None else HIDDEN
        if reads_any(shape, {i for name in hidden for i in attribute_ids(self.shape, name)}):
            message = (
                f"the expression reads columns of sparkjet's own ({', '.join(hidden)}). The event time is in the "
                "column of withWatermark(…)."
            )
            raise AnalysisError(message)
        table = None if link.table is None else link.table.shape
        # Needed only after divert.
        expressions = [] if self.divert is None else added(self.shape, shape)
        generates = not link.whole and check_step(self.shape, shape, self.together, table, filters=link.filters)
        filtered = any(each.filters for each in self.links)
        if self.divert is not None:
            check_tried(link, shape, expressions, generates=generates)
        # Marked rows would reach Python functions, which Spark calls before it evaluates conditions.
        unsafe = ((filtered or link.filters) and link.marked is None) or (filtered and calls_python(shape))
        # After divert, steps that cannot be tried are refused above.
        unsafe = unsafe and self.divert is None
        known = replace(
            link,
            filters=link.filters or generates,
            number=len(self.all_links),
            calls=any(map(has_calls, expressions)),
            repeats=not any(has_calls(each) or not each.deterministic() for each in expressions),
        )
        return replace(
            self,
            shape=shape,
            links=(*self.links, known),
            keeps_rows=self.keeps_rows and not (link.filters or link.multiplies or generates),
            markable=self.markable and not unsafe and not generates,
            windows=(*self.windows, *(window_of(shape, *each, self.shape) for each in link.windows.items())),
        )

    def apply(self, frame: DataFrame, after: int = 0, upto: int | None = None) -> DataFrame:
        """Run the chain, or its links from ``after`` (inclusive) to ``upto`` (exclusive), on a batch.

        Without ``upto``, rows that have failed after ``divert`` are left out of the outcome; with it, they are
        included, marked.
        """
        if self.tried_from is not None:
            frame = self.tried(frame, after, upto)
            return passed(frame) if upto is None else frame
        for link in self.links[after:upto]:
            frame = link.plain(frame)
        return frame

    def tried(self, frame: DataFrame, after: int = 0, upto: int | None = None) -> DataFrame:
        """Run a chain that diverts, or some of its links, on a batch; from ``divert`` on, rows are only marked."""
        for number, link in enumerate(self.links[after:upto], after):
            if self.tried_from is None or number < self.tried_from:
                frame = link.plain(frame)
            else:
                assert link.tried is not None  # noqa: S101 - others are refused after divert
                frame = link.tried(frame, link.number)
        return frame

    def outlined(self, frame: DataFrame, after: int = 0) -> DataFrame:
        """The outcome of :meth:`apply`, for analysis only: no static table is read."""
        for link in self.links[after:]:
            frame = _outline(link)(frame)
        return frame

    def marked(self, frame: DataFrame, failures: RowCounter | None = None) -> DataFrame:
        """Run the chain on a batch without dropping rows; ``KEPT`` marks those that pass the filters."""
        first = self.tried_from
        if first != 0:
            frame = frame.withColumn(KEPT, F.lit(True))
        filtered = False
        for link in self.links[:first]:
            filtered = filtered or link.filters
            frame = link.marked(frame) if filtered and link.marked is not None else link.plain(frame)
        if first is None:
            return frame
        frame = self.tried(frame, first)
        return (frame if failures is None else failures.counted(frame)).drop(FAILURE, ORIGINAL)


def check_tried(link: Link, shape: DataFrame, expressions: Sequence[Any], *, generates: bool) -> None:
    """Refuse a transformation after ``divert`` that would still fail the query if it raises for a row."""
    if link.divert is not None:
        message = "divert: the rows of this stream are diverted already. Call it once, before the steps that may raise."
        raise AnalysisError(message)
    if link.table is not None:
        found = "a join with a static table"
    elif link.whole:
        found = "orderBy, limit or an aggregation of results"
    elif link.remakes:
        found = "mapInPandas, mapInArrow or unpivot"
    elif generates:
        found = "explode and its like, or a window as a column"
    elif any(kind_of(part) == "WindowExpression" for each in expressions for part in parts_of(each)):
        found = "a window function (over)"
    elif any(_is_joined(part, shape.sparkSession) for each in expressions for part in parts_of(each)):
        found = "a subquery that Spark makes a join of (IN with what may raise, or one that reads the row)"
    elif link.tried is None:
        found = "repartition by an expression"
    elif link.tries is None and any(map(has_calls, expressions)):
        found = "a Python function"
    else:
        check_calls(expressions)
        _check_names(shape)
        return
    message = (
        f"divert: {found} is not tried row by row after it, and would end the query where it raises. Call divert(…) "
        "after it; or have the function return an error as a value."
    )
    raise AnalysisError(message)


def _is_joined(part: Any, session: SparkSession) -> bool:
    """Whether a part of an expression becomes the condition of a join, where no error can be caught."""
    if kind_of(part) == "InSubquery":
        return not all(never_raises(value, session) for value in listed(part.values()))
    return kind_of(part) in _SUBQUERIES and bool(part.isCorrelated())


def _check_names(shape: DataFrame) -> None:
    taken = next((name for name in visible(shape) if is_own(name)), None)
    if taken is not None:
        message = f"divert: the column name {taken!r} is one of those that sparkjet uses after it. Take another name."
        raise AnalysisError(message)


def _outline(link: Link) -> Transformation:
    return link.plain if link.analyzed is None else link.analyzed
