"""The query of the flights job, and the same input under Spark's own watermark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import functions as F

import sparkjet as sj
from examples.flights_feed import AIRPORTS, SCHEMA
from sparkjet import functions as J

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from sparkjet.api.writer import StreamWriter

LAG = timedelta(minutes=30)
"""How far a flight may be out of order: delays above it may come too late."""


def p95(column: str) -> Column:
    """The 95th percentile by a sketch; exactly on Spark 4.0, which has no sketches of quantiles."""
    if pyspark.__version__.startswith("4.0."):
        return J.percentile_disc(column, 0.95)
    return F.percentile_approx(column, 0.95, accuracy=1000)


def build(spark: SparkSession, feed: Path, out: Path, checkpoint: Path, late: Path) -> StreamWriter:
    """Departures with their mean, worst and p95 delay: by airline and airport, of the last hour, every ten minutes."""
    return (
        sj.stream(flights(spark, feed))
        .withWatermark("scheduled", LAG, by="origin", substreams=AIRPORTS)
        .groupBy(sj.window("scheduled", "1 hour", "10 minutes"), "origin", "carrier")
        .agg(
            F.count("*").alias("departures"),
            F.avg("delay").alias("mean_delay"),
            F.max("delay").alias("worst_delay"),
            p95("delay").alias("p95_delay"),
        )
        .writeStream.format("files")
        .option("path", out)
        .option("lateRowsPath", late)
        .option("checkpointLocation", checkpoint)
        .option("closeWindowsAtEnd", True)
        .trigger(availableNow=True)
    )


def build_with_spark(spark: SparkSession, feed: Path, checkpoint: Path, name: str) -> DataStreamWriter:
    """Flights by airport and ten minutes, under Spark's own watermark with the same delay, into a table in memory.

    Ten minutes, because it loses a flight if and only if the first of the windows above that the flight belongs to has
    been closed; that is what `build` calls late. In update mode, so that what is still open at the end is in the
    table: of each group the row with the highest count is the last.
    """
    counts = (
        flights(spark, feed)
        .withWatermark("scheduled", f"{LAG // timedelta(minutes=1)} minutes")
        .groupBy(F.window("scheduled", "10 minutes"), "origin")
        .count()
    )
    writer = counts.writeStream.outputMode("update").format("memory").queryName(name)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)


def flights(spark: SparkSession, feed: Path) -> DataFrame:
    """The feed, a file at a time, in the order in which the files were written."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(feed))
