"""T6: the latency from the end of a window to its committed rows, and a slide of 0.2 s, at 10,000 rows per second.

``python -m benchmarks.latency``. Event time is the wall-clock time at which a row is created and can be read. A
window's rows are committed when their file is renamed, which changes the inode's ctime. A second query has windows
that slide by as much as the trigger is: it keeps up if its epochs begin as often.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.peers.micro_batches import begun
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet.workers import QuickReader

EVERY = 100
"""Microseconds between two rows: 10,000 per second."""
KEYS = 100
TRIGGER = 0.2
"""Seconds."""
LOOK = 10.0
"""Seconds between looks at what epochs report: each takes processor time from the query, a tenth of a second."""
ROUNDS = 5
"""Parts of the measured time, one after the other."""


@dataclass(frozen=True)
class Slide:
    """Windows, and for how long they are measured; in seconds.

    Args:
        length: Length of the windows.
        step: How far one is from the next.
        warm_up: Time before the first round, in which Java compiles.
        round: Time of a round.
    """

    length: float
    step: float
    warm_up: float
    round: float


SECOND = Slide(10.0, 1.0, 90.0, 30.0)
SMALLEST = Slide(2.0, TRIGGER, 20.0, 12.0)
"""Java is warm by then; the rounds are a minute."""
GOAL, GOAL_OF_OURS = 0.15, 0.08
"""Seconds within which 99 % of the rows must arrive, from a Python source of Spark and from one of sparkjet's."""


class WallClock(DataSource):
    """A stream of one row every 100 microseconds of the wall clock: ``ts`` and ``value``."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "wall-clock"

    def schema(self) -> StructType:
        """The columns."""
        return StructType([StructField("ts", TimestampType()), StructField("value", LongType())])

    def streamReader(self, schema: StructType) -> WallClockReader:  # noqa: ARG002 - Spark's signature
        """The reader."""
        return WallClockReader()


class QuickWallClock(WallClock):
    """The same stream, whose reader begins its tasks as sparkjet's sources do."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "quick-wall-clock"

    def streamReader(self, schema: StructType) -> WallClockReader:  # noqa: ARG002 - Spark's signature
        """The reader."""
        return QuickWallClockReader()


class WallClockReader(DataSourceStreamReader):
    """Offsets are numbers of rows since 1970."""

    def initialOffset(self) -> dict[str, int]:
        """Now."""
        return self.now()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002 - Spark's signature
        """Number of rows so far."""
        return self.now()

    @staticmethod
    def now() -> dict[str, int]:
        """The offset of the next row."""
        return {"row": time.time_ns() // 1000 // EVERY}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """All rows in one partition."""
        return [InputPartition((start["row"], end["row"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of an epoch."""
        numbers = pa.array(range(*partition.value), pa.int64())
        times = pa.array((number * EVERY for number in range(*partition.value)), pa.timestamp("us", "UTC"))
        yield pa.RecordBatch.from_arrays([times, numbers], ["ts", "value"])


class QuickWallClockReader(QuickReader, WallClockReader):
    """The reader of :class:`QuickWallClock`."""


def committed(directory: Path) -> dict[float, float]:
    """Seconds from a window's end to its rows, by the end."""
    session = local_session()
    results = session.read.parquet(str(directory)).select(F.input_file_name(), F.unix_micros("window.end"))
    found: dict[float, float] = {}
    for file, end in results.distinct().collect():
        renamed = Path(file.removeprefix("file://")).stat().st_ctime
        found[end / 1e6] = max(found.get(end / 1e6, 0.0), renamed - end / 1e6)
    return found


class Epochs:
    """What the epochs of a query report, as only the newest are kept by it."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[int, str], float] = {}
        """Of each phase, by epoch."""
        self.started: dict[int, float] = {}

    def look(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """Add what is new."""
        for progress in reports:
            number = progress["epoch"]["number"]
            taken = dict(progress["epoch"]["durationMs"])
            # An epoch of the clock has no micro-batch of Spark.
            taken |= {f"Spark's {step}": each for step, each in progress.get("durationMs", {}).items()}
            self.seconds |= {(number, step): each / 1000 for step, each in taken.items()}
            if progress.get("numInputRows"):
                self.started[number] = begun(progress).timestamp()

    @property
    def means(self) -> dict[str, float]:
        """The mean seconds of each phase."""
        return {
            name: statistics.mean(t for (_, step), t in self.seconds.items() if step == name)
            for _, name in self.seconds
        }


def measure(slide: Slide, home: Path, clock: type[WallClock] = WallClock) -> tuple[float, Epochs]:
    """Run a query until all rounds are over; returns when the first began, and the epochs since then."""
    session = local_session()
    session.dataSource.register(clock)
    source = session.readStream.format(clock.name()).load().withColumn("key", F.col("value") % KEYS)
    stream = sj.stream(source).withWatermark("ts", sj.limiting_lag("0 seconds"))
    window = sj.window("ts", f"{slide.length} seconds", f"{slide.step} seconds")
    counted = stream.groupBy(window, "key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    writer = (
        counted.writeStream.format("files").option("path", home / "out").trigger(processingTime=f"{TRIGGER} seconds")
    )
    query = writer.option("checkpointLocation", home / "checkpoint").start()
    epochs = Epochs()
    begin = time.time() + slide.warm_up
    # The last windows are written a while after they end.
    while (now := time.time()) < begin + ROUNDS * slide.round + slide.length:
        if (failure := query.exception()) is not None:
            raise failure
        if now > begin:
            epochs.look(query.recentProgress)
        time.sleep(LOOK)
    epochs.look(query.recentProgress)
    query.stop()
    return begin, epochs


def rounds(found: Mapping[float, float], begin: float, slide: Slide, of: Callable[[list[float]], float]) -> list[float]:
    """A figure of each round, from values by time."""
    starts = [begin + number * slide.round for number in range(ROUNDS)]
    return [of([value for at, value in found.items() if start <= at < start + slide.round]) for start in starts]


def ninety_ninth(latencies: Sequence[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(latencies, n=100, method="inclusive")[98]


def latency(home: Path, clock: type[WallClock], goal: float) -> Ratio:
    """The goal by the 99th percentile of each round."""
    # The second one begins in a warm driver.
    slide = SECOND if clock is WallClock else replace(SECOND, warm_up=SMALLEST.warm_up)
    begin, epochs = measure(slide, home, clock)
    found = committed(home / "out")
    highest = rounds(found, begin, slide, ninety_ninth)
    middle = statistics.median(rounds(found, begin, slide, statistics.median))
    steps = ", ".join(f"{name} {1000 * mean:.0f}" for name, mean in epochs.means.items())
    whose = " from a source of sparkjet's" if clock is QuickWallClock else ""
    shown = f"latency of windows{whose}: p50 {middle:.2f} s, p99 {statistics.median(highest):.2f} s"
    print(f"{shown}; mean milliseconds of an epoch: {steps}", file=sys.stderr, flush=True)
    return Ratio.of_seconds("T6", shown, Goal(f"{goal} s", 1.0), highest, [goal] * ROUNDS)


def smallest(home: Path) -> Ratio:
    """The slide by the time from an epoch's start to the next one's, which is the trigger's if the query keeps up."""
    begin, epochs = measure(SMALLEST, home)
    starts = [epochs.started[number] for number in sorted(epochs.started)]
    apart = {before: after - before for before, after in pairwise(starts)}
    # Of two in the middle the lower one: the times have milliseconds, and half of one is no delay.
    taken = [round(each, 3) for each in rounds(apart, begin, SMALLEST, statistics.median_low)]
    shown = f"windows that slide by {TRIGGER} s: an epoch each {statistics.median(taken):.3f} s"
    busy = 1000 * epochs.means["Spark's triggerExecution"]
    print(f"{shown}, for {busy:.0f} ms of which Spark's trigger is busy", file=sys.stderr, flush=True)
    return Ratio.of_seconds("T6", shown, Goal(f"a slide of {TRIGGER} s", 1.0), taken, [TRIGGER] * ROUNDS)


def study() -> list[Ratio]:
    """Three ratios: of the latency with both kinds of sources, and of the smallest slide."""
    of_ours = partial(latency, clock=QuickWallClock, goal=GOAL_OF_OURS)
    ratios = []
    for measured in (partial(latency, clock=WallClock, goal=GOAL), of_ours, smallest):
        with tempfile.TemporaryDirectory(prefix="sparkjet-latency-") as home:
            ratios.append(measured(Path(home)))
    return ratios


if __name__ == "__main__":
    main(study)
