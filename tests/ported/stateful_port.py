"""Queries with state or several inputs as tests: the rows of each input, and what must come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    import sparkjet as sj

Rows = Sequence[Sequence[tuple[Any, ...]]]


@dataclass(frozen=True)
class Input:
    """A stream that a query reads.

    Attributes:
        schema: Its columns.
        batches: Rows of each micro-batch, as JSON has them.
        watermark: Event time and lag, where they belong to the input and not to the query: they go into the line that
            changes, ``sj.stream(df).withWatermark(…)``.
        by: Column of the substreams 0 and 1, of which the second one lags; they go into the same line.
        on_time: The batches without that lag, for Spark.
    """

    schema: str
    batches: Rows
    watermark: tuple[str, str] | None = None
    by: str = ""
    on_time: Rows | None = None

    def rows(self, batches: Rows | None = None) -> list[list[dict[str, Any]]]:
        """The batches, or others, each row by the names of its columns."""
        names = StructType.fromDDL(self.schema).fieldNames()
        found = self.batches if batches is None else batches
        return [[dict(zip(names, row, strict=True)) for row in batch] for batch in found]

    def watermarked(self, rows: DataFrame) -> DataFrame:
        """The input for Spark."""
        return rows if self.watermark is None else rows.withWatermark(*self.watermark)

    def ported(self, stream: sj.Stream) -> sj.Stream:
        """The input for sparkjet."""
        if self.watermark is None:
            return stream
        if not self.by:
            return stream.withWatermark(*self.watermark)
        return stream.withWatermark(*self.watermark, by=self.by, substreams=["0", "1"])


@dataclass(frozen=True)
class Table:
    """A table that a query reads.

    Attributes:
        schema: Its columns.
        rows: Its rows.
    """

    schema: str
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class StatefulPort:
    """A query that was written for Spark, over rows of ours.

    Attributes:
        query: From the inputs to the result. It is called with Spark's DataFrames and with streams.
        inputs: What it is called with.
        tables: What it is called with after them.
        mode: Its output mode.
        keys: In update mode, the columns by which the newest row counts.
        expected: What must come out, given the rows of each input as dicts. None: what Spark gives in a batch.
        closing: Whether it has windows, or rows of outer joins, that must be closed at the end of the input.
        spark: Compares with what Spark gives for the same micro-batches too, where that is more than its batch result:
            ``same``, or ``closed``, which is those results whose windows Spark closes at the end of the input.
    """

    query: Callable[..., Any]
    inputs: tuple[Input, ...]
    tables: tuple[Table, ...] = ()
    mode: Literal["append", "update", "complete"] = "append"
    keys: tuple[str, ...] = ()
    expected: Callable[..., list[tuple[Any, ...]]] | None = None
    closing: bool = False
    spark: Literal["same", "closed"] | None = None
