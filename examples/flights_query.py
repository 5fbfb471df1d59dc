"""The query of the flights job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sparkjet as sj
from examples.flights_feed import AIRPORTS, SCHEMA
from sparkjet import functions as J

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.writer import StreamWriter

LAG = "1 hour"


def build(spark: SparkSession, feed: Path, out: Path, checkpoint: Path, late: Path) -> StreamWriter:
    """Departures, mean, worst and p95 delay of each airline at each airport, over the last hour, every ten minutes."""
    flights = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(feed))
    return (
        sj.stream(flights)
        .withWatermark("scheduled", LAG, by="origin", substreams=AIRPORTS)
        .groupBy(sj.window("scheduled", "1 hour", "10 minutes"), "origin", "carrier")
        .agg(
            J.count().alias("departures"),
            J.avg("delay").alias("mean_delay"),
            J.max("delay").alias("worst_delay"),
            J.percentile_approx("delay", 0.95).alias("p95_delay"),
        )
        .writeStream.format("files")
        .option("path", out)
        .option("lateRowsPath", late)
        .option("checkpointLocation", checkpoint)
        .option("closeWindowsAtEnd", True)
        .trigger(availableNow=True)
    )
