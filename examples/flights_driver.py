"""A driver of the flights job: the process that gets killed.

    python -m examples.flights_driver sparkjet <directory>
    python -m examples.flights_driver spark <directory>

It tells what it does as JSON on its standard output, a line a step; `flights_control.py` listens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from examples.flights_control import Places
from examples.flights_query import build, build_with_spark

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for two minutes on two cores: compiling thoroughly took 40 % of its time."""


def main(query: str, root: Path) -> None:
    """Run one of the two queries in a directory that holds the feed, until the feed is used up."""
    run = {"sparkjet": run_sparkjet, "spark": run_spark}[query]
    spark = session(root)
    run(spark, Places(root))
    spark.stop()


def run_sparkjet(spark: SparkSession, places: Places) -> None:
    """The query of this job."""
    writer = build(spark, places.feed, places.out, places.checkpoint("sparkjet"), places.late)
    writer.onEpochStep(lambda step, epoch: say(step=step.value, epoch=epoch))
    writer.start().awaitTermination()


def run_spark(spark: SparkSession, places: Places) -> None:
    """Spark's own, which counts the flights of each airport that it does not lose."""
    query = build_with_spark(spark, places.feed, places.checkpoint("spark"), "counted").start()
    while not query.awaitTermination(timeout=1):
        progress = query.lastProgress
        say(step="committed", epoch=progress.batchId + 1 if progress else 0)
    final = spark.table("counted").groupBy("window", "origin").max("count")
    rows = final.groupBy("origin").sum("max(count)").collect()
    say(counts=dict(rows))


def session(root: Path) -> SparkSession:
    """A small Spark on this machine that writes to no place but its own."""
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(root / "spark-local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master("local[2]").appName("flights").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    assert spark._jvm is not None  # noqa: S101 - it has just been started
    say(jvm=spark._jvm.java.lang.ProcessHandle.current().pid())
    return spark


def say(**message: object) -> None:
    """A line to whoever has started this process."""
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
