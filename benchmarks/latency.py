"""T6: the latency from the end of a window to its committed rows, at 10,000 rows per second.

``python -m benchmarks.latency``. Event time is the wall-clock time at which a row is created and can be read. A
window's rows are committed when their file is renamed, which changes the inode's ctime.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet import functions as J

EVERY = 100
"""Microseconds between two rows: 10,000 per second."""
KEYS = 100
WINDOW = 10
"""Seconds; windows move by one second."""
TRIGGER = "0.2 seconds"
WARM_UP, MEASURED = 100, 120
"""Seconds."""
GOAL = 0.3
"""Seconds within which 99 % of the rows must arrive."""


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


def committed(directory: Path) -> dict[float, float]:
    """Seconds from a window's end to its rows, by the end."""
    session = local_session()
    results = session.read.parquet(str(directory)).select(F.input_file_name(), F.unix_micros("window.end"))
    found: dict[float, float] = {}
    for file, end in results.distinct().collect():
        renamed = Path(file.removeprefix("file://")).stat().st_ctime
        found[end / 1e6] = max(found.get(end / 1e6, 0.0), renamed - end / 1e6)
    return found


def measure(home: Path) -> tuple[list[float], dict[str, float]]:
    """Latencies of the windows that end in the measured time, and the mean seconds of each phase of an epoch."""
    session = local_session()
    session.dataSource.register(WallClock)
    source = session.readStream.format("wall-clock").load().withColumn("key", F.col("value") % KEYS)
    stream = sj.stream(source).withWatermark("ts", sj.limiting_lag("0 seconds"))
    window = sj.window("ts", f"{WINDOW} seconds", "1 second")
    counted = stream.groupBy(window, "key").agg(J.count().alias("n"), J.sum("value").alias("total"))
    writer = counted.writeStream.format("files").option("path", home / "out").trigger(processingTime=TRIGGER)
    query = writer.option("checkpointLocation", home / "checkpoint").start()
    steps: dict[tuple[int, str], float] = {}
    begin = time.time() + WARM_UP
    while (now := time.time()) < begin + MEASURED:
        if (failure := query.exception()) is not None:
            raise failure
        if now > begin:
            for progress in query.recentProgress:
                number = progress["epoch"]["number"]
                steps |= {(number, step): taken / 1000 for step, taken in progress["epoch"]["durationMs"].items()}
                # An epoch of the clock has no micro-batch of Spark.
                of_spark = progress.get("durationMs", {})
                steps |= {(number, f"Spark's {step}"): taken / 1000 for step, taken in of_spark.items()}
        time.sleep(1)
    query.stop()
    latencies = [taken for end, taken in committed(home / "out").items() if begin < end < begin + MEASURED - WINDOW]
    means = {name: statistics.mean(t for (_, step), t in steps.items() if step == name) for _, name in steps}
    return latencies, means


def study() -> list[Ratio]:
    """One ratio: the goal by the 99th percentile."""
    with tempfile.TemporaryDirectory(prefix="sparkjet-latency-") as home:
        latencies, means = measure(Path(home))
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    shown = f"latency of {len(latencies)} windows: p50 {cuts[49]:.2f} s, p90 {cuts[89]:.2f} s, p99 {cuts[98]:.2f} s"
    steps = ", ".join(f"{name} {1000 * mean:.0f}" for name, mean in means.items())
    print(f"{shown}; mean milliseconds of an epoch: {steps}", file=sys.stderr)
    return [Ratio("T6", shown, Goal(f"{GOAL} s", 1.0), (GOAL / cuts[98],), 1 / cuts[98], 1 / GOAL)]


if __name__ == "__main__":
    main(study)
