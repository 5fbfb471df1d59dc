"""Shared by the two engines on Spark: the queries, and measuring stretches of epochs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from benchmarks import feed
from benchmarks.report import Stretch, emit
from benchmarks.work import STEP_SECONDS, Work

AGGREGATES: Mapping[str, Callable[[], Column]] = {
    "count": lambda: F.count("*"),
    "sum": lambda: F.sum("value"),
    "avg": lambda: F.avg("price"),
    "max": lambda: F.max("value"),
    "percentile": lambda: F.percentile_approx("price", 0.9),
    "entries": lambda: F.sum("entry"),
    "openings": lambda: F.sum("opening"),
}


@dataclass(frozen=True)
class Dialect:
    """The differences between the two engines in writing a query; all else is the same code.

    Args:
        watermarked: Converts a DataFrame to a stream whose watermark follows ``ts`` without a lag.
        window: Creates a window from ``(column, length)`` or ``(column, length, step)``.
        session_window: Creates a window from ``(column, gap)``.
    """

    watermarked: Callable[[Any], Any]
    window: Callable[..., Any]
    session_window: Callable[..., Any]


def results(session: SparkSession, work: Work, dialect: Dialect) -> Any:
    """The stream of a work's results: columns window, key and the aggregates."""
    step = f"{STEP_SECONDS} second"
    sliding = dialect.window("ts", f"{work.steps} seconds", step)
    window = dialect.session_window("ts", step) if work.shape == "sessions" else sliding
    if work.shape == "both":
        entries, openings = map(dialect.watermarked, feed.sides(session, work))
        stream = entries.union(openings)
    else:
        stream = dialect.watermarked(feed.rows(session, work))
    aggregates = [AGGREGATES[name]().alias(name) for name in work.aggregates]
    found = stream.groupBy(window.alias("window"), "key").agg(*aggregates)
    if work.shape == "both":
        return found.where("entries > 0 AND openings > 0")
    if work.shape == "busiest":
        each_end = dialect.window("window", step).alias("window")
        ends = found.withColumn("all", F.lit(0)).groupBy(each_end, F.col("all").alias("key"))
        return ends.agg(F.max("count").alias("count"))
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
        """The error that the query failed with."""

    def stop(self) -> None:
        """End it."""


SETTLING = 5
"""Before each stretch but the first, one of so many parts of it passes unmeasured: a resumed query has cold caches."""


def begun(progress: Mapping[str, Any]) -> datetime:
    """When an epoch began, by its report."""
    # Python 3.10 does not read the Z.
    return datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))


class Epochs:
    """When the epochs of a query have started, by number; those with input only."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._started: dict[int, datetime] = {}

    def newest(self) -> int:
        """The last epoch that has reported progress, -1 if none has."""
        self._look()
        return max(self._started, default=-1)

    def seconds(self, first: int, last: int) -> float:
        """Wait until two epochs have reported progress; returns the time from the start of one to that of the other."""
        while self.newest() < last:
            # Polling takes processor time from the query: a tenth of a second, if many epochs have reported.
            time.sleep(3.0)
        return (self._started[last] - self._started[first]).total_seconds()

    def _look(self) -> None:
        if (failure := self._query.exception()) is not None:
            raise failure
        for progress in self._query.recentProgress:
            if progress.get("numInputRows"):
                started = begun(progress)
                self._started[progress["batchId"]] = started


def run_epochs(query: Query, work: Work, *, unreported: int) -> int:
    """Emit a stretch for each line of standard input, then stop the query; returns the last measured epoch.

    The time is from the start of the first measured epoch to the start of the last, so that whatever a query does
    between two epochs counts too. With two inputs the rows of one count.

    Args:
        query: The query.
        work: What it runs.
        unreported: How many epochs may have begun before a pause without a report: they are not measured.
    """
    epochs = Epochs(query)
    first, last = work.warm_up, 0
    for _ in sys.stdin:
        if last:
            first = epochs.newest() + unreported + max(1, work.measured // SETTLING)
        last = first + work.measured
        emit(Stretch(rows=work.measured * work.batch, seconds=epochs.seconds(first, last)))
    query.stop()
    return last
