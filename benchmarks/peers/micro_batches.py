"""What the two engines on Spark share: the queries, waiting for epochs, and the rate of those after warm-up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks import feed
from benchmarks.work import STEP_SECONDS, Work

AGGREGATES: Mapping[str, Callable[[Any], Any]] = {
    "count": lambda functions: functions.count("*"),
    "sum": lambda functions: functions.sum("value"),
    "avg": lambda functions: functions.avg("price"),
    "max": lambda functions: functions.max("value"),
    "percentile": lambda functions: functions.percentile_approx("price", 0.9),
    "persons": lambda functions: functions.sum("person"),
    "auctions": lambda functions: functions.sum("auction"),
}


@dataclass(frozen=True)
class Dialect:
    """Where the two engines differ in how a query is written; all else is said with the same words.

    Args:
        watermarked: From a DataFrame to a stream whose watermark follows ``ts`` without a lag.
        window: ``(column, length)`` or ``(column, length, step)`` to a window.
        session_window: ``(column, gap)`` to a window.
        functions: The module of aggregate functions.
    """

    watermarked: Callable[[Any], Any]
    window: Callable[..., Any]
    session_window: Callable[..., Any]
    functions: Any


def results(session: SparkSession, work: Work, dialect: Dialect) -> Any:
    """The stream of a work's results: columns window, key and the aggregates."""
    step = f"{STEP_SECONDS} second"
    sliding = dialect.window("ts", f"{work.steps} seconds", step)
    window = dialect.session_window("ts", step) if work.shape == "sessions" else sliding
    if work.shape == "both":
        persons, auctions = map(dialect.watermarked, feed.sides(session, work))
        stream = persons.union(auctions)
    else:
        stream = dialect.watermarked(feed.rows(session, work))
    aggregates = [AGGREGATES[name](dialect.functions).alias(name) for name in work.aggregates]
    found = stream.groupBy(window.alias("window"), "key").agg(*aggregates)
    if work.shape == "both":
        return found.where("persons > 0 AND auctions > 0")
    if work.shape == "busiest":
        each_end = dialect.window("window", step).alias("window")
        ends = found.withColumn("all", F.lit(0)).groupBy(each_end, F.col("all").alias("key"))
        return ends.agg(dialect.functions.max("count").alias("count"))
    return found


class Query(Protocol):
    """What both queries have."""

    @property
    def lastProgress(self) -> Any:
        """The newest epoch's progress."""

    @property
    def recentProgress(self) -> Sequence[Any]:
        """Progress of the last epochs."""

    def exception(self) -> BaseException | None:
        """What the query failed with."""

    def stop(self) -> None:
        """End it."""


def run_epochs(query: Query, work: Work) -> tuple[int, float]:
    """Let a query run for so many epochs with input, stop it, and return rows and seconds of those after warm-up.

    The time is from the start of the first measured epoch to the start of the last, so that whatever a query does
    between two epochs counts too. With two inputs the rows of one count.
    """
    started: dict[int, datetime] = {}
    while len(started) <= work.warm_up + work.measured:
        if (failure := query.exception()) is not None:
            raise failure
        # Asking takes processor time that belongs to the query.
        time.sleep(1.0)
        for progress in query.recentProgress:
            if progress.get("numInputRows"):
                started[progress["batchId"]] = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
    query.stop()
    times = [started[number] for number in sorted(started)][work.warm_up :]
    return work.batch * (len(times) - 1), (times[-1] - times[0]).total_seconds()
