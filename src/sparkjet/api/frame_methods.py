"""The DataFrame methods that streams and results share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from typing_extensions import Self

from sparkjet.catalyst import alternatives
from sparkjet.catalyst.columns import HIDDEN, visible
from sparkjet.errors import nearest
from sparkjet.plan import transformations

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


class FrameMethods:
    """The DataFrame methods that streams and results share, with Spark's names and arguments."""

    def __init__(self, chain: transformations.Transformations) -> None:
        self._steps = chain

    def _with(self, chain: transformations.Transformations) -> Self:
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
        return self._with(self._steps.then(transformations.select(self._steps.shape, cols)))

    def where(self, condition: Column | str) -> Self:
        """Keep rows, as ``DataFrame.where``; rows that are filtered out still move the watermark."""
        return self._with(self._steps.then(transformations.where(condition)))

    def filter(self, condition: Column | str) -> Self:
        """Same as :meth:`where`."""
        return self.where(condition)

    def withColumn(self, colName: str, col: Column) -> Self:
        """Add or replace a column, as ``DataFrame.withColumn``."""
        return self._with(self._steps.then(transformations.with_column(colName, col)))

    def drop(self, *cols: Column | str) -> Self:
        """Leave columns out, as ``DataFrame.drop``."""
        return self._with(self._steps.then(transformations.drop(cols)))

    def __getattr__(self, name: str) -> NoReturn:
        """Name the way to what is not offered, instead of failing with the bare name."""
        if name.startswith("_"):
            raise AttributeError(name)
        way_out = self._way_out(name)
        if way_out is None and name in self.columns:
            way_out = f'Name columns with F.col("{name}").'
        offered = [known for known in dir(type(self)) if not known.startswith("_")]
        hint = f". {way_out}" if way_out is not None else f"; {nearest(name, offered)}."
        message = f"{type(self).__name__} has no {name!r}{hint}"
        raise AttributeError(message)

    def _way_out(self, method: str) -> str | None:
        """What to do instead of a method of DataFrame that is not offered, None if it has none of that name."""
        return alternatives.of_results(method)
