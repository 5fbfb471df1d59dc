"""The source of a driven query: rows sent by a test, in batches that are read again after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Record: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""A row as accepted by ``createDataFrame``: a tuple, a list, a ``Row`` or a dict."""


class DrivenSource:
    """Rows in the order in which they were sent, by input, and the batches that have read them.

    Like Spark's sources, it returns the same rows for the same batch, and after a restart again the rows of every batch
    without a record, together with what has been sent since.

    Args:
        spark: The session whose types and conversions are used.
        schemas: The schema of each input.
    """

    def __init__(self, spark: SparkSession, schemas: Sequence[str | StructType]) -> None:
        self._spark = spark
        # The JVM parses text, so it is Spark that complains about a wrong type.
        self._schemas = [spark.createDataFrame([], schema).schema for schema in schemas]
        self._sent: list[list[tuple[Any, ...]]] = [[] for _ in schemas]
        self._ends: dict[int, list[int]] = {-1: [0] * len(schemas)}
        self._carried: int | None = None

    def streams(self) -> list[DataFrame]:
        """A streaming DataFrame for each input, to build the query from; never started."""
        empty = self._spark.readStream.format("rate").load()
        return [
            empty.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in schema))
            for schema in self._schemas
        ]

    def send(self, inputs: Sequence[Iterable[Record]]) -> None:
        """Take rows for the next batch to read.

        Raises:
            AnalysisError: There are more inputs than the query has, or a row does not fit.
        """
        if len(inputs) > len(self._schemas):
            message = (
                f"process: rows of {len(inputs)} inputs, but the query has {len(self._schemas)}. Give one sequence of "
                "rows for each input: process([row, row]), not process(row, row)."
            )
            raise AnalysisError(message)
        # All are converted first: a row that does not fit must not leave half of the others behind.
        converted = [[_row(row, schema) for row in rows] for rows, schema in zip(inputs, self._schemas, strict=False)]
        for sent, rows in zip(self._sent, converted, strict=False):
            sent.extend(rows)

    def carry(self, watermark: datetime | str) -> None:
        """Have the offsets of batches carry a watermark from now on."""
        at = datetime.fromisoformat(watermark) if isinstance(watermark, str) else watermark
        self._carried = TimestampType().toInternal(at)

    def plan(self, batch: int, checkpoint: Path) -> None:
        """End a batch after everything that has been sent, and log that, as Spark does before it runs one."""
        self._ends[batch] = ends = [len(sent) for sent in self._sent]
        offsets: list[object] = [[end] for end in ends]
        if self._carried is not None:
            offsets = [
                {"source": "driven", "offsets": {"rows": end}, "watermarks": {"rows": self._carried}} for end in ends
            ]
        _log(checkpoint / "offsets" / str(batch), *map(json.dumps, offsets))

    def done(self, batch: int, checkpoint: Path) -> None:
        """Log that a batch has been run, as Spark does when ``foreachBatch`` has returned."""
        _log(checkpoint / "commits" / str(batch))

    def rewind(self, next_batch: int) -> None:
        """Forget the batches from a number on: their rows are still to be read."""
        self._ends = {batch: ends for batch, ends in self._ends.items() if batch < next_batch}

    def read(self, session: SparkSession, batch: int) -> list[DataFrame]:
        """Rows of a batch by input; none for a batch that another driver has run."""
        ends = self._ends.get(batch, self._ends[-1])
        starts = self._ends[max((each for each in self._ends if each < batch), default=-1)]
        return [
            session.createDataFrame(sent[start:end], schema)
            for sent, start, end, schema in zip(self._sent, starts, ends, self._schemas, strict=True)
        ]


def _row(row: Record, schema: StructType) -> tuple[Any, ...]:
    """The values of a row in the order of the schema, with timestamps parsed from text."""
    names = schema.fieldNames()
    if isinstance(row, str) or len(row) > len(names) or (isinstance(row, Mapping) and set(row) - set(names)):
        raise AnalysisError(f"process: the row {row!r} does not have the columns {', '.join(names)}.")
    values = [row.get(name) for name in names] if isinstance(row, Mapping) else list(row)
    if len(values) < len(names):
        message = f"process: the row {row!r} lacks {names[len(values)]!r}; give None where there is no value."
        raise AnalysisError(message)
    return tuple(
        datetime.fromisoformat(value) if isinstance(field.dataType, TimestampType) and isinstance(value, str) else value
        for value, field in zip(values, schema, strict=True)
    )


def _log(path: Path, *lines: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["v1", "{}", *lines]))
