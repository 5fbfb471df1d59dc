"""A driver of the flights job: the process that gets killed.

    python -m examples.flights_driver sparkjet <directory>
    python -m examples.flights_driver spark <directory>

It reports as JSON on its standard output, one line per phase; `flights_control.py` reads it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights_control import Places
from examples.flights_query import build, build_with_spark
from examples.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(query: str, root: Path) -> None:
    """Run one of the two queries in a directory that holds the feed, until the feed is used up."""
    run = {"sparkjet": run_sparkjet, "spark": run_spark}[query]
    spark = local_session(root, "flights")
    assert spark._jvm is not None  # noqa: S101 - it has just been started
    say(jvm=spark._jvm.java.lang.ProcessHandle.current().pid())
    run(spark, Places(root))
    spark.stop()


def run_sparkjet(spark: SparkSession, places: Places) -> None:
    """The query of this job, reporting its phases."""
    writer = build(spark, places.feed, places.out, places.checkpoint("sparkjet"), places.late)
    writer.onEpochPhase(lambda phase, epoch: say(phase=phase.value, epoch=epoch))
    writer.start().awaitTermination()


def run_spark(spark: SparkSession, places: Places) -> None:
    """Spark's own, which counts the flights of each airport that it does not lose."""
    query = build_with_spark(spark, places.feed, places.checkpoint("spark"), "counted").start()
    while not query.awaitTermination(timeout=1):
        progress = query.lastProgress
        say(phase="commit", epoch=progress.batchId + 1 if progress else 0)
    final = spark.table("counted").groupBy("window", "origin").max("count")
    rows = final.groupBy("origin").sum("max(count)").collect()
    say(counts=dict(rows))


def say(**message: object) -> None:
    """Report to the process that has started this one."""
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
