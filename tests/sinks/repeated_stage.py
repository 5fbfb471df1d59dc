"""A separate driver in which what tasks have shuffled is lost, and their stage is repeated.

Spark takes an executor whose shuffle files are missing for dead, and in local mode never learns again which blocks the
only one holds: afterwards, the session that tests share would neither checkpoint in one job nor lose a block.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparkjet.sinks.attempt import THREAD
from tests.servers.programs import SMALL
from tests.sinks import test_tasks

if TYPE_CHECKING:
    import pyarrow as pa


def loses(flag: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The body of tasks the first of which removes what the others have yet to fetch."""
    name = str(flag)

    def once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # All of them first: this task must not lose its own, or no attempt of the stage would be the first to succeed.
        found = list(batches)
        if not Path(name).exists():
            Path(name).touch()
            for directory in os.environ["SPARK_LOCAL_DIRS"].split(","):
                for file in Path(directory).glob("*/shuffle_*"):
                    file.unlink()
        yield from found

    return once


def main(flag: Path) -> None:
    """Print the answers of the tasks."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", " ".join(SMALL))
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    rows = session.range(60_000).repartition(6, F.col("id"))
    answers = test_tasks.pooled(rows.mapInArrow(loses(flag), rows.schema))
    sys.stdout.write(json.dumps([{**row.asDict(), "thread": row[THREAD]} for row in answers]))
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
