"""The query from queues whose homes are kept, since format 5: directories as queues, row by row into files.

Every version must be able to go on from homes of older ones, so this query must never change.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import sparkjet as sj
from tests.sources.acknowledging.directory_queue import DirectoryQueueSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.writer import StreamWriter

QUEUES = "orders", "returns"
MESSAGES = 3
"""In each queue, of a batch."""


def messages(batch: int) -> list[str]:
    """Ids of the messages of a batch."""
    return [f"{queue}-{batch}-{number}" for queue in QUEUES for number in range(MESSAGES)]


def arrive(root: Path, batches: range) -> None:
    """Send the messages of some batches."""
    for queue in QUEUES:
        (root / "feed" / queue).mkdir(parents=True, exist_ok=True)
    for batch in batches:
        for message in messages(batch):
            (root / "feed" / message.partition("-")[0] / message).write_text(f"body of {message}")


def outputs(spark: SparkSession, root: Path, clock: sj.Clock) -> list[StreamWriter]:
    """The rows on their way to files, up to the trigger."""
    spark.dataSource.register(DirectoryQueueSource)
    paths = ",".join(str(root / "feed" / queue) for queue in QUEUES)
    rows = spark.readStream.format("directories").option("paths", paths).load()
    writer = sj.stream(rows).writeStream.format("files").option("fileFormat", "json").option("path", root / "out")
    return [writer.option("checkpointLocation", root / "home").clock(clock)]


def found(root: Path) -> Counter[str]:
    """The ids of the rows, as readers find them."""
    return Counter(row["id"] for row in sj.read_files(str(root / "out")).collect())
