"""Jobs: the queries that are crashed, each with the rules that its output is judged by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights_query import LAG
from tests.crash.feeds import SCHEMA, SECOND, Event
from tests.crash.replay import Compute, Rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.aggregate import Aggregate
    from sparkjet.writer import StreamWriter


@dataclass(frozen=True)
class Place:
    """The directories of one query; several may read one feed."""

    root: Path
    feed: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def late(self) -> Path:
        return self.root / "late"


@dataclass(frozen=True)
class Job:
    """A query over a feed; ``build`` makes it up to the trigger, in a process with a session."""

    name: str
    rules: Rules
    build: Callable[[SparkSession, Place, Rules], StreamWriter]

    def with_window(self, size: int, step: int) -> Job:
        """The same query with another window, in seconds."""
        return replace(self, rules=replace(self.rules, size=size * SECOND, step=step * SECOND))

    def writer(self, spark: SparkSession, place: Place, *, until_end: bool = True, close: bool = True) -> StreamWriter:
        """The query with its trigger: until the input is used up, closing what is open or not, or running on."""
        writer = self.build(spark, place, self.rules)
        if until_end:
            return writer.option("closeWindowsAtEnd", close).trigger(availableNow=True)
        return writer.trigger(processingTime="100 milliseconds")

    def run(self, spark: SparkSession, place: Place, *, close: bool = True) -> None:
        """Run it in this process until its input is used up."""
        self.writer(spark, place, close=close).start().awaitTermination()


def skewed_query(spark: SparkSession, place: Place, rules: Rules, aggregates: Sequence[Aggregate]) -> StreamWriter:
    """A query over a feed of :func:`tests.crash.feeds.write_skewed`."""
    from pyspark.sql import functions as F

    import sparkjet as sj

    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"file:{place.feed}")
    events = sj.stream(source.withColumn("ts", F.timestamp_micros("ts")))
    timed = events.withWatermark("ts", f"{rules.lag} microseconds", by="sub", substreams=rules.listed)
    window = sj.window("ts", f"{rules.size} microseconds", f"{rules.step} microseconds")
    results = timed.groupBy(window, *rules.keys).agg(*aggregates)
    return results.writeStream.format("files").options(
        path=place.out, checkpointLocation=place.home, lateRowsPath=place.late, statePartitions=2
    )


def _sums(spark: SparkSession, place: Place, rules: Rules) -> StreamWriter:
    from sparkjet import functions as J

    return skewed_query(
        spark, place, rules, [J.count().alias("rows"), J.sum("n").alias("total"), J.avg("n").alias("mean")]
    )


def _stacks(spark: SparkSession, place: Place, rules: Rules) -> StreamWriter:
    from sparkjet import functions as J

    return skewed_query(
        spark, place, rules, [J.max("d").alias("high"), J.avg("d").alias("mean"), J.count().alias("rows")]
    )


def _flights(spark: SparkSession, place: Place, rules: Rules) -> StreamWriter:
    from examples.flights_query import build

    return build(spark, place.feed, place.out, place.home, place.late).option("statePartitions", 2)


def _mean(column: str) -> Compute:
    return lambda events: sum(event[column] for event in events) / len(events)


def _of(function: Callable[[list[float]], float], column: str) -> Compute:
    return lambda events: function([event[column] for event in events])


def _rank(part: float, column: str) -> Compute:
    """The least value that at least ``part`` of all are not above."""

    def compute(events: Sequence[Event]) -> float:
        ordered = sorted(event[column] for event in events)
        return float(ordered[math.ceil(part * len(ordered)) - 1])

    return compute


_SKEWED = ("id", "sub", "key", "ts", "n", "d")
_SUMS: dict[str, Compute] = {"rows": len, "total": _of(sum, "n"), "mean": _mean("n")}
_EXTREMES: dict[str, Compute] = {"high": _of(max, "d"), "mean": _mean("d"), "rows": len}
_DELAYS: dict[str, Compute] = {
    "departures": len,
    "mean_delay": _mean("delay"),
    "worst_delay": _of(max, "delay"),
    "p95_delay": _rank(0.95, "delay"),
}
_MINUTE = 60 * SECOND

JOBS = {
    job.name: job
    for job in (
        # The deduct path, told of all three substreams from the start.
        Job(
            "sums",
            Rules(_MINUTE, _MINUTE // 3, _MINUTE // 2, "ts", "sub", ("a", "b", "c"), ("key",), _SKEWED, _SUMS),
            _sums,
        ),
        # The two stacks, with substreams that are found on the way.
        Job(
            "stacks",
            Rules(_MINUTE, _MINUTE // 3, _MINUTE // 2, "ts", "sub", (), ("key",), _SKEWED, _EXTREMES),
            _stacks,
        ),
        # The main job itself, on a smaller feed.
        Job(
            "flights",
            Rules(
                60 * _MINUTE,
                10 * _MINUTE,
                LAG // timedelta(microseconds=1),
                "scheduled",
                "origin",
                ("EWR", "JFK", "LGA"),
                ("origin", "carrier"),
                ("id", "origin", "carrier", "flight", "dest", "scheduled", "delay"),
                _DELAYS,
            ),
            _flights,
        ),
    )
}
