"""Chains of row-by-row transformations, as written by the user and as run below the watermark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, KEPT, is_star, quoted, select_visible, visible
from sparkjet.catalyst.logical_plans import attribute_ids
from sparkjet.catalyst.plan_analysis import calls_python
from sparkjet.catalyst.row_by_row import Together, check_step
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Transformation = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Link:
    """One transformation.

    Attributes:
        plain: The transformation as the user wrote it.
        marked: The same on rows that include marked rows, which a filter has dropped: none of the user's expressions
            may be evaluated on them. None if this is impossible.
        filters: Whether it may drop rows.
    """

    plain: Transformation
    marked: Transformation | None
    filters: bool = False


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

    @property
    def bare(self) -> Transformations:
        """The same chain without event time, from the user's own DataFrame and without hidden columns."""
        if self.below is None:
            return self
        below = self.below.bare
        shape = self.apply(below.shape, after=self.covered)
        return replace(below, shape=shape, links=(*below.links, *self.links[self.covered :]))

    def after(self, count: int) -> Transformations:
        """The chain without its first links, for rows that have gone through them."""
        return replace(self, source=self.apply(self.source, upto=count), links=self.links[count:])

    def then(self, link: Link) -> Transformations:
        """The chain with one more link; Spark's analysis errors are raised here.

        Raises:
            AnalysisError: The link adds, replaces or drops a hidden column, or is not computed row by row.
        """
        shape = link.plain(self.shape)
        for name in HIDDEN:
            if attribute_ids(shape, name) != attribute_ids(self.shape, name):
                message = f"the column name {name!r} is used by sparkjet. Give your column another name."
                raise AnalysisError(message)
        multiplies = check_step(self.shape, shape, self.together)
        filtered = any(each.filters for each in self.links)
        # Marked rows would reach Python functions, which Spark calls before it evaluates conditions.
        unsafe = filtered and (link.marked is None or calls_python(shape))
        return replace(
            self,
            shape=shape,
            links=(*self.links, replace(link, filters=link.filters or multiplies)),
            keeps_rows=self.keeps_rows and not link.filters and not multiplies,
            markable=self.markable and not unsafe and not multiplies,
        )

    def apply(self, frame: DataFrame, after: int = 0, upto: int | None = None) -> DataFrame:
        """Run the chain, or its links from ``after`` (inclusive) to ``upto`` (exclusive), on a batch."""
        for link in self.links[after:upto]:
            frame = link.plain(frame)
        return frame

    def marked(self, frame: DataFrame) -> DataFrame:
        """Run the chain on a batch without dropping rows; ``KEPT`` marks those that pass the filters."""
        frame = frame.withColumn(KEPT, F.lit(True))
        filtered = False
        for link in self.links:
            filtered = filtered or link.filters
            frame = link.marked(frame) if filtered and link.marked is not None else link.plain(frame)
        return frame


def where(condition: Column | str) -> Link:
    """Filter rows."""
    column = F.expr(condition) if isinstance(condition, str) else condition

    def marked(frame: DataFrame) -> DataFrame:
        # Evaluated only on rows that pass the earlier filters: it may fail on the others.
        return frame.withColumn(KEPT, F.when(F.col(KEPT), F.coalesce(column, F.lit(False))).otherwise(False))

    return Link(lambda frame: frame.where(condition), marked, filters=True)


def with_column(name: str, column: Column) -> Link:
    """Add or replace a column."""
    return Link(
        lambda frame: frame.withColumn(name, column),
        lambda frame: frame.withColumn(name, F.when(F.col(KEPT), column)),
    )


def drop(columns: Sequence[Column | str]) -> Link:
    """Drop columns."""
    return Link(lambda frame: frame.drop(*columns), lambda frame: frame.drop(*columns))


def select(shape: DataFrame, columns: Sequence[Column | str]) -> Link:
    """Select or compute columns of rows with the schema of ``shape``."""

    def plain(frame: DataFrame) -> DataFrame:
        return select_visible(frame, columns)

    names = visible(plain(shape))
    items: list[Column | str] = []
    for column in columns:
        items += [quoted(name) for name in visible(shape)] if is_star(column) else [column]
    if len(items) != len(names):
        # A column that expands to several (``struct.*``) has no single name.
        return Link(plain, None)

    def marked(frame: DataFrame) -> DataFrame:
        pairs = zip(items, names, strict=True)
        chosen = [c if isinstance(c, str) else F.when(F.col(KEPT), c).alias(name) for c, name in pairs]
        return select_visible(frame, chosen)

    return Link(plain, marked)
