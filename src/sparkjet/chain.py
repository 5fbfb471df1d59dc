"""Chains of row-by-row transformations, and the DataFrame methods that build them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from typing_extensions import Self

from sparkjet.columns import HIDDEN, select_visible, visible
from sparkjet.errors import nearest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

Transformation = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Steps:
    """A DataFrame and the transformations that each batch of it goes through.

    Attributes:
        source: The streaming DataFrame, or the results of windows.
        shape: The same chain applied to ``source``: for its schema and for errors, never executed.
        transformations: The chain.
        keeps_rows: Whether no row is filtered out on the way.
        passes: How often a batch is read by the chain.
    """

    source: DataFrame
    shape: DataFrame
    transformations: tuple[Transformation, ...] = ()
    keeps_rows: bool = True
    passes: int = 1

    def then(self, transformation: Transformation, *, keeps_rows: bool = True) -> Steps:
        """The chain with one more link; Spark's analysis errors are raised here."""
        return replace(
            self,
            shape=transformation(self.shape),
            transformations=(*self.transformations, transformation),
            keeps_rows=self.keeps_rows and keeps_rows,
        )

    def apply(self, frame: DataFrame, after: int = 0, upto: int | None = None) -> DataFrame:
        """Run the chain, or its links from number ``after`` up to number ``upto``, on a batch."""
        for transformation in self.transformations[after:upto]:
            frame = transformation(frame)
        return frame


class Selectable:
    """The DataFrame methods that streams and results share, with Spark's names and arguments."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def _with(self, steps: Steps) -> Self:
        raise NotImplementedError

    @property
    def schema(self) -> StructType:
        """Schema of the rows."""
        return self._steps.shape.drop(*HIDDEN).schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return visible(self._steps.shape)

    def printSchema(self) -> None:
        """Print the schema as a tree."""
        self._steps.shape.drop(*HIDDEN).printSchema()

    def select(self, *cols: Column | str) -> Self:
        """Keep or compute columns, as ``DataFrame.select``."""
        return self._with(self._steps.then(lambda frame: select_visible(frame, cols)))

    def where(self, condition: Column | str) -> Self:
        """Keep rows, as ``DataFrame.where``; rows that are filtered out still move the watermark."""
        return self._with(self._steps.then(lambda frame: frame.where(condition), keeps_rows=False))

    def filter(self, condition: Column | str) -> Self:
        """Same as :meth:`where`."""
        return self.where(condition)

    def withColumn(self, colName: str, col: Column) -> Self:
        """Add or replace a column, as ``DataFrame.withColumn``."""
        return self._with(self._steps.then(lambda frame: frame.withColumn(colName, col)))

    def drop(self, *cols: Column | str) -> Self:
        """Leave columns out, as ``DataFrame.drop``."""
        return self._with(self._steps.then(lambda frame: frame.drop(*cols)))

    def __getattr__(self, name: str) -> NoReturn:
        """Name the way to what is not offered, instead of failing with the bare name."""
        if name.startswith("_"):
            raise AttributeError(name)
        offered = [known for known in dir(type(self)) if not known.startswith("_")]
        message = (
            f"{type(self).__name__} has no {name!r}; {nearest(name, offered)}. Do the rest with Spark: before "
            "sj.stream(…) on the DataFrame, or on the results in writeStream.foreachBatch(…)."
        )
        raise AttributeError(message)
