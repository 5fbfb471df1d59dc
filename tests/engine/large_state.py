"""A query whose state outgrows its memory: a program for tests/engine/test_large_state.py.

``python -m tests.engine.large_state HOME BATCH KEYS DIGESTS OPTION=VALUE…`` counts KEYS keys that come in batches of
BATCH new ones, each with a text of 100 letters, or of so many digests of 128 that no codec makes much smaller. It
writes a line of JSON after each epoch; at last what its state has, or the error with which it ended.
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


def main(home: str, batch: int, keys: int, digests: int, *options: str) -> None:
    """Count, and tell what the state is after each epoch."""
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", batch).load()
    counted = sj.stream(rows.where(F.col("value") < keys)).groupBy("value")
    parts = [F.sha2(F.concat_ws("-", "value", F.lit(number)), 512) for number in range(digests)]
    text = F.concat(*parts) if parts else F.repeat(F.lit("x"), 100)
    counts = counted.agg(F.count("*").alias("rows"), F.max(text).alias("text"))
    writer = counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", home)
    query = writer.options(**dict(option.split("=") for option in options)).start()
    epoch, entries = -1, 0
    while entries < keys:
        try:
            query.awaitTermination(1)
        except sj.SparkjetError as error:
            _tell({"error": str(error)})
            return
        # Not only the last: on a busy machine several epochs end between two looks.
        for progress in query.recentProgress:
            if progress["epoch"]["number"] > epoch:
                epoch, entries = progress["epoch"]["number"], progress["snapshot"]["entries"]
                _tell({"epoch": epoch, **progress["operators"]["stage0"]})
    query.stop()
    total = sj.read_state(home, session=session).agg(F.count("*"), F.sum("rows")).collect()[0]
    _tell({"keys": total[0], "rows": total[1]})


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), *sys.argv[5:])
