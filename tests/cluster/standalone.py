"""A driver of a standalone cluster that tells each phase of its epochs and waits to be allowed to go on.

Started as ``python -m tests.cluster.standalone <job>``, a JSON object as :class:`tests.cluster.runs.Run` makes it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from tests.faults.waiting import until
from tests.feed import START, Feed

NOTICED = "noticed"
"""Allows the driver to go on once Spark knows that an executor is gone."""


def main(job: dict[str, Any]) -> None:
    builder = SparkSession.builder.master(job["master"])
    for name, value in job["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def tell(*what: object) -> None:
        print(json.dumps(what), flush=True)  # noqa: T201 - what the test reads

    known = spark.sparkContext._jsc.sc().getExecutorMemoryStatus

    def told(phase: EpochPhase, epoch: int) -> None:
        before = known().keySet()
        # The results of the epoch before are in by then, and no test waits for this one's.
        tell(phase.value, epoch)
        if sys.stdin.readline().strip() == NOTICED:
            until(lambda: not before.subsetOf(known().keySet()), "Spark to notice")

    stream = sj.stream(Feed(Path(job["feed"])).read(spark)).withWatermark("ts", "5 seconds")
    windows = stream.groupBy(sj.window("ts", "30 seconds", "10 seconds"), "k").agg(F.count("*").alias("n"), F.sum("v"))
    writer = windows.writeStream.format("files").option("path", job["out"])
    writer = writer.option("checkpointLocation", job["home"]).option("closeWindowsAtEnd", True)
    query = writer.trigger(availableNow=True).onEpochPhase(told).start()
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None
    tell("snapshot", progress["snapshot"])
    tell("beaten", beaten(spark))
    # As any reader would that knows nothing of sparkjet.
    found = spark.read.parquet(job["out"]).select(F.unix_seconds("window.start") - START, "k", "n", "sum(v)")
    tell("windows", [list(row) for row in found.collect()])
    tell("late", progress["lateRows"]["total"])
    spark.stop()


def beaten(spark: SparkSession) -> int:
    """The number of tasks that were ended because another attempt was faster."""
    context: Any = spark.sparkContext
    none = context._gateway.new_array(context._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, none, None)
    return sum(stages.apply(number).numKilledTasks() for number in range(stages.size()))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
