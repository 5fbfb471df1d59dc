"""A driver of two queries, one over the journal of the other, for :mod:`tests.crash.test_chained_queries`.

Started as ``python -m tests.crash.chained_driver <folder> <path of the journal> <token file>``; says each phase of each
epoch in a line, and at the end, as JSON, what the second query has written and what Spark's batch of both gives.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import sparkjet as sj
from sparkjet.errors import AnalysisError
from sparkjet_grid.journal_reader import Journal
from tests.connectors.grid.chained import SCHEMA, both_in_batch, per_hour, per_ten_minutes
from tests.crash.driver import session
from tests.faults.waiting import until


def say(query: str, phase: sj.EpochPhase, epoch: int) -> None:
    """A line for the test, which may kill this process now."""
    _say(f"{query} {phase.name} {epoch}")


def writer(rows: Any, folder: Path, name: str) -> Any:
    """A writer with a home and a voice of its own."""
    home = rows.writeStream.option("checkpointLocation", folder / name).option("statePartitions", 2)
    return home.onEpochPhase(partial(say, name))


def main(folder: Path, path: str, token: str) -> None:
    """Run both until nothing is left to read."""
    spark = session("local[2]")
    spark.conf.set("spark.sparkjet.grid.tokenFile", token)
    sj.register_sources(spark)
    feed = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "feed"))
    results = writer(per_ten_minutes(sj.stream(feed)), folder, "first").format("grid-journal").option("keys", "k")
    results = results.option("numPartitions", 4).option("closeWindowsAtEnd", True)
    first = results.trigger(availableNow=True).start(path)

    place, _, name = path.rpartition("/")
    with Journal(place, name, token_file=token) as journal:

        def has_begun() -> bool:
            try:
                return bool(journal.latest())
            except AnalysisError:
                return False

        until(has_begun, "the first epoch of the first query", 300)

    def rows_of() -> DataFrame:
        options = {"path": path, "tokenFile": token, "maxOffsetsPerTrigger": "20"}
        return spark.readStream.format("sparkjet-grid-journal").options(**options).load()

    second = writer(per_hour(rows_of()), folder, "second").format("files").option("path", folder / "out").start()
    first.awaitTermination()
    second.processAllAvailable()
    second.stop()
    last = writer(per_hour(rows_of()), folder, "second").format("files").option("path", folder / "out")
    last.option("closeWindowsAtEnd", True).trigger(availableNow=True).start().awaitTermination()
    found = sj.read_files(str(folder / "out")).select("hour", "k", "n", "v", "windows").collect()
    expected = both_in_batch(spark.read.schema(SCHEMA).json(str(folder / "feed")))
    answer = {
        "found": sorted(str(tuple(row)) for row in found),
        "expected": sorted(map(str, expected.elements())),
    }
    _say(json.dumps(answer))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
