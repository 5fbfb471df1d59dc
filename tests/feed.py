"""A feed of files, one micro-batch each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id long, ts timestamp, p string, k string, j int, v long"
START = 1_700_000_000


class Feed:
    """A directory of JSON files that Spark's file source reads one by one, in the order in which they were added."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._files = 0
        self._ids = 0

    def add(self, *rows: Mapping[str, Any]) -> None:
        """Add a batch; a row's ``t`` is its event time in seconds after the feed's start, None for none."""
        lines = []
        for row in rows:
            seconds = row["t"]
            values = {name: value for name, value in row.items() if name != "t"}
            if seconds is not None:
                values["ts"] = START + seconds
            lines.append(json.dumps({"id": self._ids, **values}))
            self._ids += 1
        hidden = self.directory / f".{self._files:05d}.json"
        hidden.write_text("\n".join(lines))
        os.utime(hidden, (START + self._files, START + self._files))
        hidden.rename(self.directory / f"{self._files:05d}.json")
        self._files += 1

    def read(self, spark: SparkSession) -> DataFrame:
        """The feed as a stream, one file a batch."""
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.directory))


def rows(times: Sequence[int | None], **columns: Any) -> list[dict[str, Any]]:
    """Rows that differ only in their time."""
    return [{"t": time, **columns} for time in times]
