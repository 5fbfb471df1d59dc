"""The DataFrame methods that streams and results share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import Self

from sparkjet.api.guided import Guided
from sparkjet.catalyst.columns import HIDDEN, visible
from sparkjet.plan import transformations

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


class FrameMethods(Guided):
    """The DataFrame methods that streams and results share, with Spark's names and arguments."""

    def __init__(self, chain: transformations.Transformations) -> None:
        self._chain = chain

    def _with(self, chain: transformations.Transformations) -> Self:
        raise NotImplementedError

    @property
    def schema(self) -> StructType:
        """Schema of the rows."""
        return self._chain.shape.drop(*HIDDEN).schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return visible(self._chain.shape)

    def printSchema(self) -> None:
        """Print the schema as a tree."""
        self._chain.shape.drop(*HIDDEN).printSchema()

    def select(self, *cols: Column | str) -> Self:
        """Select or compute columns, as ``DataFrame.select``."""
        return self._with(self._chain.then(transformations.select(self._chain.shape, cols)))

    def where(self, condition: Column | str) -> Self:
        """Filter rows, as ``DataFrame.where``; rows that are filtered out still advance the watermark."""
        return self._with(self._chain.then(transformations.where(condition)))

    def filter(self, condition: Column | str) -> Self:
        """Alias of :meth:`where`."""
        return self.where(condition)

    def withColumn(self, colName: str, col: Column) -> Self:
        """Add or replace a column, as ``DataFrame.withColumn``."""
        return self._with(self._chain.then(transformations.with_column(colName, col)))

    def drop(self, *cols: Column | str) -> Self:
        """Drop columns, as ``DataFrame.drop``."""
        return self._with(self._chain.then(transformations.drop(cols)))

    def _way_out(self, name: str) -> str | None:
        found = super()._way_out(name)
        if found is None and name in self.columns:
            return f'Name columns with F.col("{name}").'
        return found
