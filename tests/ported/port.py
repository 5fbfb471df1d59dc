"""Queries as tests: what is written for Spark, the rows that it gets here, and the one line that changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    import sparkjet as sj


@dataclass(frozen=True)
class Port:
    """A query that was written for Spark, over rows of ours.

    Attributes:
        query: From the input to the result. It is called with Spark's DataFrame and with a stream.
        schema: Columns of the input.
        batches: Rows of each micro-batch, as JSON has them.
        watermark: Column and lag, where the query has none: Spark needs none to keep windows forever. It goes into the
            line that changes, ``sj.stream(df).withWatermark(…)``.
        mode: The output mode in which the results are compared.
        write: From the result to ``start()``, where the sink belongs to the query; called with the result and a
            directory of its own.
        delivered: Rows in the sink of ``write``; called with the session and the directory. None: the console.
    """

    query: Callable[[Any], Any]
    schema: str
    batches: Sequence[Sequence[tuple[Any, ...]]]
    watermark: tuple[str, str] | None = None
    mode: str = "append"
    write: Callable[[Any, Path], Any] | None = None
    delivered: Callable[[SparkSession, Path], DataFrame] | None = None

    def rows(self) -> list[list[dict[str, Any]]]:
        """The batches, each row by the names of its columns."""
        names = StructType.fromDDL(self.schema).fieldNames()
        return [[dict(zip(names, row, strict=True)) for row in batch] for batch in self.batches]

    def ported(self, stream: sj.Stream) -> Any:
        """The query's result for a stream."""
        return self.query(stream if self.watermark is None else stream.withWatermark(*self.watermark))
