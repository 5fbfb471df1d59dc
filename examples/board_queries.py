"""The two queries of the board: one over the flights, and one over what that writes into a journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import sparkjet as sj
from examples.flights_feed import AIRPORTS
from examples.flights_query import LAG, flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.writer import StreamWriter

TEN_MINUTES, BOARD = "ten-minutes", "board"
"""Names of the journal and of the map."""


def per_ten_minutes(spark: SparkSession, feed: Path, grid: str, late: Path) -> StreamWriter:
    """Departures of each airport and ten minutes, into a journal; `ts` is the event time of a result."""
    windows = (
        sj.stream(flights(spark, feed))
        .withWatermark("scheduled", LAG, by="origin", substreams=AIRPORTS)
        .groupBy(sj.window("scheduled", "10 minutes"), "origin")
        .agg(F.count("*").alias("departures"), F.sum("delay").alias("delay"))
    )
    results = windows.select(F.expr("window.end - INTERVAL 1 MICROSECOND").alias("ts"), "origin", "departures", "delay")
    writer = results.writeStream.format("grid-journal").option("path", f"{grid}/{TEN_MINUTES}").option("keys", "origin")
    return writer.option("lateRowsPath", late)


def per_hour(spark: SparkSession, grid: str, token: Path) -> StreamWriter:
    """Departures of each airport in an hour, every ten minutes, into a map. The watermark comes with the rows."""
    journal = spark.readStream.format("sparkjet-grid-journal").option("tokenFile", str(token))
    windows = (
        sj.stream(journal.load(f"{grid}/{TEN_MINUTES}"))
        .withWatermark("ts", sj.carried())
        .groupBy(sj.window("ts", "1 hour", "10 minutes"), "origin")
        .agg(F.sum("departures").alias("departures"), F.sum("delay").alias("delay"))
    )
    results = windows.select(F.col("window.start").alias("since"), "origin", "departures", "delay")
    return results.writeStream.format("grid-map").option("path", f"{grid}/{BOARD}").option("keys", "origin, since")
