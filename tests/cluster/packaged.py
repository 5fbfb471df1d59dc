"""The job of ``test_packaging``: windows from files, from Kafka and with an aggregate in Python, one after the other.

Run by ``spark-submit`` with sparkjet as its only library, so it imports nothing from the tests.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkjet as sj


def started(rows: Any, time: str, key: str, aggregate: Any, home: Path, **options: Any) -> Any:
    """The results of a window query, or the error that it ends with."""
    stream = sj.stream(rows).withWatermark(time, "5 seconds")
    result = stream.groupBy(sj.window(time, "1 minute"), key).agg(aggregate.alias("n"))
    writer = result.writeStream.format("files").option("path", home / "out").option("closeWindowsAtEnd", True)
    try:
        query = writer.options(**options or {"checkpointLocation": home / "home"}).trigger(availableNow=True).start()
        query.awaitTermination()
    except (sj.SparkjetError, PySparkException) as error:
        return f"{type(error).__name__}: {error}"
    return [row["n"] for row in sj.read_files(str(home / "out")).collect()]


def main(job: dict[str, Any]) -> None:
    spark = SparkSession.builder.getOrCreate()
    home, report = Path(job["home"]), Path(job["report"])
    (home / "in").mkdir()
    lines = [
        json.dumps({"ts": f"2026-01-01 12:{n // 10:02}:{n % 10 * 6:02}", "k": f"k{n % 2}", "n": 1}) for n in range(40)
    ]
    (home / "in" / "0.json").write_text("\n".join(lines))
    files = spark.readStream.schema("ts timestamp, k string, n int").json(str(home / "in"))
    total = sj.python_aggregate(
        "n", accumulatorType="long", returnType="long", create=lambda: 0, accumulate=lambda a, n: a + n,
        combine=lambda a, b: a + b, finish=lambda a: a,
    )  # fmt: skip
    if "grid" in job:
        found = in_grid(spark, job, files, home)
        report.write_text(json.dumps(found))
        spark.stop()
        return
    found = {
        "sparkjet": sj.__file__,
        "workers": in_workers(spark, "sparkjet", "msgspec", "confluent_kafka"),
        "files": started(files, "ts", "k", F.count("*"), home / "files"),
        "python": started(files, "ts", "k", total, home / "python"),
    }
    try:
        sj.register_sources(spark)
        source = spark.readStream.format("sparkjet-kafka").option("kafka.bootstrap.servers", job["servers"])
        records = source.option("subscribe", job["topic"]).option("startingOffsets", "earliest").load()
    except (sj.SparkjetError, PySparkException) as error:
        found["kafka"] = f"{type(error).__name__}: {error}"
    else:
        texts = records.select(F.col("value").cast("string").alias("k"), "timestamp", "topic", "partition")
        found["kafka"] = started(texts, "timestamp", "k", F.count("*"), home / "kafka")
    report.write_text(json.dumps(found))
    spark.stop()


def in_grid(spark: SparkSession, job: dict[str, Any], files: Any, home: Path) -> dict[str, Any]:
    """A query with its home in a grid, and what it goes on with at its next start; all paths that run our functions."""
    # Jobs without a grid have no such package.
    import sparkjet_grid

    spark.conf.set("spark.sparkjet.grid.tokenFile", job["token"])
    options = {"snapshotStore": job["grid"], "queryId": "counts", "closeWindowsAtEnd": False}
    found = {
        "workers": in_workers(spark, "sparkjet", "sparkjet_grid", "msgspec"),
        "grid": sparkjet_grid.__file__,
        "first": started(files, "ts", "k", F.count("*"), home / "grid", **options),
    }
    (home / "in" / "1.json").write_text(json.dumps({"ts": "2026-01-01 12:59:00", "k": "k0", "n": 1}))
    # State comes from the grid now.
    found["second"] = started(files, "ts", "k", F.count("*"), home / "grid", **options)
    return found


def in_workers(spark: SparkSession, *names: str) -> dict[str, bool]:
    """Whether each executor's Python finds some packages."""

    def look(_: int) -> dict[str, bool]:
        from importlib.util import find_spec

        return {name: find_spec(name) is not None for name in names}

    return spark.sparkContext.parallelize([0], 1).map(look).collect()[0]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
