"""A query whose state outgrows its driver's memory: a program for tests/engine/test_large_state.py.

``python -m tests.engine.large_state HOME ROWS KEY=OPTION…`` counts ROWS new keys in each of some batches, with the
heap that the environment's PYSPARK_SUBMIT_ARGS gives, and writes a line of JSON after each epoch.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkjet as sj


def _tell(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(home: str, most: int, *options: str) -> None:
    """Count, and tell what the state is after each epoch."""
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 200_000).load()
    keyed = sj.stream(rows.where(F.col("value") < most)).groupBy("value")
    counts = keyed.agg(F.count("*").alias("rows"), F.max(F.repeat(F.lit("x"), 100)).alias("text"))
    total = counts.select("value", "rows")
    writer = total.writeStream.outputMode("update").format("noop").option("checkpointLocation", home)
    writer = writer.options(**dict(option.split("=") for option in options))
    query = writer.start()
    reached = -1
    while query.isActive:
        query.awaitTermination(1)
        progress = query.lastProgress
        if progress is not None and progress["epoch"]["number"] > reached:
            reached = progress["epoch"]["number"]
            _tell({"epoch": reached, **progress["operators"]["stage0"]})
            if progress["operators"]["stage0"]["entries"] >= most:
                query.stop()
    if query.exception() is not None:
        _tell({"error": str(query.exception())})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
