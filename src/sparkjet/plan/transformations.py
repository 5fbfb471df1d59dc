"""Chains of row-by-row transformations, as the user wrote them and as they are run below the watermark."""

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
        plain: As the user wrote it.
        marked: The same where rows that a filter has dropped are still there, marked: nothing of the user's may be
            computed of them. None where that cannot be had.
        filters: Whether it may drop rows.
    """

    plain: Transformation
    marked: Transformation | None
    filters: bool = False


@dataclass(frozen=True)
class Transformations:
    """A DataFrame and the transformations that each batch of it goes through.

    Attributes:
        source: The streaming DataFrame, or the results of windows.
        shape: The same chain applied to ``source``: for its schema and for errors, never executed.
        links: The chain.
        keeps_rows: Whether no row is filtered out or multiplied on the way.
        markable: Whether the chain can be run by :meth:`marked`.
        passes: How often a batch is read by the chain.
        together: By what window functions may be partitioned, None if there may be none.
    """

    source: DataFrame
    shape: DataFrame
    links: tuple[Link, ...] = ()
    keeps_rows: bool = True
    markable: bool = True
    passes: int = 1
    together: Together | None = None

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
        # A row that is only marked would reach a Python function: Spark calls those before it looks at conditions.
        unsafe = filtered and (link.marked is None or calls_python(shape))
        return replace(
            self,
            shape=shape,
            links=(*self.links, replace(link, filters=link.filters or multiplies)),
            keeps_rows=self.keeps_rows and not link.filters and not multiplies,
            markable=self.markable and not unsafe and not multiplies,
        )

    def apply(self, frame: DataFrame, after: int = 0, upto: int | None = None) -> DataFrame:
        """Run the chain, or its links from number ``after`` up to number ``upto``, on a batch."""
        for link in self.links[after:upto]:
            frame = link.plain(frame)
        return frame

    def marked(self, frame: DataFrame) -> DataFrame:
        """Run the chain on a batch so that every row comes out, with ``KEPT`` saying which the filters let through."""
        frame = frame.withColumn(KEPT, F.lit(True))
        filtered = False
        for link in self.links:
            filtered = filtered or link.filters
            frame = link.marked(frame) if filtered and link.marked is not None else link.plain(frame)
        return frame


def where(condition: Column | str) -> Link:
    """Keep rows."""
    column = F.expr(condition) if isinstance(condition, str) else condition

    def marked(frame: DataFrame) -> DataFrame:
        # Asked only of rows that earlier filters let through: it may fail on the others.
        return frame.withColumn(KEPT, F.when(F.col(KEPT), F.coalesce(column, F.lit(False))).otherwise(False))

    return Link(lambda frame: frame.where(condition), marked, filters=True)


def with_column(name: str, column: Column) -> Link:
    """Add or replace a column."""
    return Link(
        lambda frame: frame.withColumn(name, column),
        lambda frame: frame.withColumn(name, F.when(F.col(KEPT), column)),
    )


def drop(columns: Sequence[Column | str]) -> Link:
    """Leave columns out."""
    return Link(lambda frame: frame.drop(*columns), lambda frame: frame.drop(*columns))


def select(shape: DataFrame, columns: Sequence[Column | str]) -> Link:
    """Keep or compute columns of rows shaped like ``shape``."""

    def plain(frame: DataFrame) -> DataFrame:
        return select_visible(frame, columns)

    names = visible(plain(shape))
    items: list[Column | str] = []
    for column in columns:
        items += [quoted(name) for name in visible(shape)] if is_star(column) else [column]
    if len(items) != len(names):
        # A column that stands for several (``struct.*``) has no single name to compute it under.
        return Link(plain, None)

    def marked(frame: DataFrame) -> DataFrame:
        pairs = zip(items, names, strict=True)
        chosen = [c if isinstance(c, str) else F.when(F.col(KEPT), c).alias(name) for c, name in pairs]
        return select_visible(frame, chosen)

    return Link(plain, marked)
