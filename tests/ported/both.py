"""One query run by Spark alone and by sparkjet, over the same files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sparkjet as sj

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_numbers = count()


class Both:
    """Runs a query with and without sparkjet, one micro-batch for each file.

    Args:
        spark: The session.
        directory: An empty directory for the files.
        schema: Of the rows.
    """

    def __init__(self, spark: SparkSession, directory: Path, schema: str) -> None:
        self._spark = spark
        self.directory = directory
        self._schema = schema

    def arrive(self, *batches: Sequence[dict[str, Any]]) -> Both:
        """Write the files of some micro-batches."""
        for number, rows in enumerate(batches, start=1):
            file = self.directory / f"{number}.json"
            file.write_text("\n".join(json.dumps(row) for row in rows))
            # Spark reads files in the order of their times.
            os.utime(file, (number, number))
        return self

    def spark(self, query: Callable[[Any], Any], mode: str = "append") -> list[Row]:
        """The result of Spark's own query."""
        return self._run(query(self.source()).writeStream.outputMode(mode))

    def sparkjet(self, query: Callable[[Any], Any], mode: str = "append", **options: object) -> list[Row]:
        """The result of the same query with sparkjet."""
        return self._run(query(sj.stream(self.source())).writeStream.outputMode(mode).options(**options))

    def batch(self, query: Callable[[Any], Any]) -> list[Row]:
        """Spark's result for all rows at once."""
        found: DataFrame = query(self.whole())
        return found.collect()

    def whole(self) -> DataFrame:
        """All rows at once."""
        return self._spark.read.schema(self._schema).json(str(self.directory))

    def source(self) -> DataFrame:
        source = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return source.json(str(self.directory))

    def _run(self, writer: Any) -> list[Row]:
        table = f"both{next(_numbers)}"
        query = writer.format("memory").queryName(table).trigger(availableNow=True).start()
        query.awaitTermination()
        return self._spark.table(table).collect()
