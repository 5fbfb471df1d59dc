"""Chains of row-by-row transformations, as written by the user and as run below the watermark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, KEPT
from sparkjet.catalyst.logical_plans import attribute_ids
from sparkjet.catalyst.plan_analysis import calls_python, reads_any
from sparkjet.catalyst.row_by_row import Together, check_step
from sparkjet.catalyst.window_calls import WindowColumn, window_of
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.plan.static_tables import StaticTable

Transformation = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Link:
    """One transformation.

    Attributes:
        plain: The transformation as the user wrote it.
        marked: The same on rows that include marked rows, which a filter has dropped: none of the user's expressions
            may be evaluated on them. None if this is impossible.
        filters: Whether it may drop rows.
        remakes: Whether its rows are new ones, without the hidden columns.
        multiplies: Whether it may make several rows of one.
        table: The static table that it joins the rows with, if any.
        analyzed: The same for analysis only, if that must not read anything.
        whole: Whether it needs all results at once, as sorting them does.
        windows: What columns that are windows are computed by, by their names.
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


@dataclass(frozen=True)
class Transformations:
    """A DataFrame and the transformations that are applied to each of its batches.

    Attributes:
        source: The streaming DataFrame, or the results of windows.
        shape: The chain applied to ``source``, for its schema and analysis errors; never executed.
        links: The chain.
        keeps_rows: Whether the chain neither drops nor multiplies rows.
        markable: Whether :meth:`marked` can run the chain.
        passes: How often the chain reads a batch.
        below: What ``source`` was made of by adding the hidden columns; None if it has none.
        covered: Number of links at the start that ``below`` stands for too.
        together: What window functions may be partitioned by, None if they are not allowed.
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
    together: Together | None = None
    windows: tuple[WindowColumn, ...] = field(default=(), compare=False)

    @property
    def bare(self) -> Transformations:
        """The same chain without event time, from the user's own DataFrame and without hidden columns."""
        if self.below is None:
            return self
        below = self.below.bare
        shape = self.outlined(below.shape, after=self.covered)
        return replace(below, shape=shape, links=(*below.links, *self.links[self.covered :]))

    @property
    def whole(self) -> bool:
        """Whether it needs all results at once."""
        return any(link.whole for link in self.links)

    @property
    def tables(self) -> list[StaticTable]:
        """The static tables that each epoch asks for."""
        return [link.table for link in self.links if link.table is not None and link.table.by_epoch]

    def check_fixed(self, method: str) -> None:
        """Refuse a join with a static table of its own time, where the chain becomes a part of Spark's query.

        Raises:
            AnalysisError: There is one.
        """
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
        """The chain with one more link; Spark's analysis errors are raised here.

        Args:
            link: The link.
            reads_hidden: Whether it may read the hidden columns, as those of sparkjet's own do.

        Raises:
            AnalysisError: The link adds, replaces, drops or reads a hidden column, or is not computed row by row.
        """
        shape = _outline(link)(self.shape)
        for name in HIDDEN:
            if attribute_ids(shape, name) != ([] if link.remakes else attribute_ids(self.shape, name)):
                message = f"the column name {name!r} is used by sparkjet. Give your column another name."
                raise AnalysisError(message)
        hidden = () if reads_hidden or self.together is not None else HIDDEN
        if reads_any(shape, {i for name in hidden for i in attribute_ids(self.shape, name)}):
            message = (
                f"the expression reads columns of sparkjet's own ({', '.join(hidden)}). The event time is in the "
                "column of withWatermark(…)."
            )
            raise AnalysisError(message)
        table = None if link.table is None else link.table.shape
        generates = not link.whole and check_step(self.shape, shape, self.together, table, filters=link.filters)
        filtered = any(each.filters for each in self.links)
        # Marked rows would reach Python functions, which Spark calls before it evaluates conditions.
        unsafe = ((filtered or link.filters) and link.marked is None) or (filtered and calls_python(shape))
        return replace(
            self,
            shape=shape,
            links=(*self.links, replace(link, filters=link.filters or generates)),
            keeps_rows=self.keeps_rows and not (link.filters or link.multiplies or generates),
            markable=self.markable and not unsafe and not generates,
            windows=(*self.windows, *(window_of(shape, *each, self.shape) for each in link.windows.items())),
        )

    def apply(self, frame: DataFrame, after: int = 0, upto: int | None = None) -> DataFrame:
        """Run the chain, or its links from ``after`` (inclusive) to ``upto`` (exclusive), on a batch."""
        for link in self.links[after:upto]:
            frame = link.plain(frame)
        return frame

    def outlined(self, frame: DataFrame, after: int = 0) -> DataFrame:
        """What :meth:`apply` gives, for analysis only: no static table is read."""
        for link in self.links[after:]:
            frame = _outline(link)(frame)
        return frame

    def marked(self, frame: DataFrame) -> DataFrame:
        """Run the chain on a batch without dropping rows; ``KEPT`` marks those that pass the filters."""
        frame = frame.withColumn(KEPT, F.lit(True))
        filtered = False
        for link in self.links:
            filtered = filtered or link.filters
            frame = link.marked(frame) if filtered and link.marked is not None else link.plain(frame)
        return frame


def _outline(link: Link) -> Transformation:
    return link.plain if link.analyzed is None else link.analyzed
