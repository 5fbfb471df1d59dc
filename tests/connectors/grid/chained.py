"""Two queries, one over what the other writes into a journal, and the same as Spark's batch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import sparkjet as sj

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "ts timestamp, k string, v long"


def at(minute: float) -> str:
    return f"2026-01-01 {int(minute) // 60:02}:{int(minute) % 60:02}:{int(minute * 60) % 60:02}"


def per_ten_minutes(rows: sj.Stream) -> Any:
    """The results that the first query writes."""
    windows = rows.withWatermark("ts", "5 minutes").groupBy(sj.window("ts", "10 minutes"), "k")
    sums = windows.agg(F.count("*").alias("n"), F.sum("v").alias("v"))
    return sums.where("k <> 'nobody'").select(F.expr("window.end - INTERVAL 1 MICROSECOND AS ts"), "k", "n", "v")


def per_hour(journal: DataFrame, policy: Any = None) -> Any:
    """The second."""
    windows = sj.stream(journal).withWatermark("ts", policy or sj.carried()).groupBy(sj.window("ts", "1 hour"), "k")
    sums = windows.agg(F.sum("n").alias("n"), F.sum("v").alias("v"), F.count("*").alias("windows"))
    return sums.select(F.col("window.start").alias("hour"), "k", "n", "v", "windows")


def both_in_batch(rows: DataFrame) -> Counter[tuple[Any, ...]]:
    """Spark's batch of one after the other."""
    first = rows.where("k <> 'nobody'").groupBy(F.window("ts", "10 minutes"), "k")
    sums = first.agg(F.count("*").alias("n"), F.sum("v").alias("v"))
    second = sums.groupBy(F.window(F.expr("window.end - INTERVAL 1 MICROSECOND"), "1 hour"), "k")
    found = second.agg(F.sum("n").alias("n"), F.sum("v").alias("v"), F.count("*").alias("windows"))
    return Counter(map(tuple, found.select("window.start", "k", "n", "v", "windows").collect()))
