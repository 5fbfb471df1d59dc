"""A driver of a standalone cluster that tells each phase of its epochs and waits to be allowed to go on.

Started as ``python -m tests.cluster.standalone <job>``, a JSON object as :class:`tests.cluster.runs.Run` makes it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet import functions as J
from tests.feed import Feed


def main(job: dict[str, Any]) -> None:
    builder = SparkSession.builder.master(job["master"])
    for name, value in job["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def told(phase: EpochPhase, epoch: int) -> None:
        # The results of the epoch before are in by then, and no test waits for this one's.
        print(json.dumps([phase.value, epoch]), flush=True)  # noqa: T201 - what the test reads
        sys.stdin.readline()

    stream = sj.stream(Feed(Path(job["feed"])).read(spark)).withWatermark("ts", "5 seconds")
    windows = stream.groupBy(sj.window("ts", "30 seconds", "10 seconds"), "k").agg(J.count().alias("n"), J.sum("v"))
    writer = windows.writeStream.format("files").option("path", job["out"]).option("lateRowsPath", job["late"])
    writer = writer.option("checkpointLocation", job["home"]).option("closeWindowsAtEnd", True)
    query = writer.trigger(availableNow=True).onEpochPhase(told).start()
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None
    print(json.dumps(["partitions", progress["snapshot"]["partitions"]]), flush=True)  # noqa: T201 - as above
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
