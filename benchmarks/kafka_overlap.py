"""KO: windows into Kafka whose epochs overlap or do not, with ``commit=staged`` beside ``commit=prepared``.

``python -m benchmarks.kafka_overlap [SECONDS]``: for so many seconds each (20). *readable* is the time from the end of
a window to the moment when a read_committed consumer has its rows, with 10,000 rows of input a second from Kafka and
an epoch every 0.2 s. *throughput* is that of epochs of 50,000 rows of results, as fast as they come, in several parts.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.kafka_commits import PREPARED, STAGED, p
from benchmarks.local import local_session
from sparkjet import EpochPhase
from tests.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.query import StreamingQuery

SECONDS = 20.0
KEYS = 500
"""Rows of each second's window."""
RATE = 10_000
PAUSE = 0.02
"""Rows of input a second, and seconds from some to the next."""
BATCH = 50_000
PARTITIONS = 2
TRIGGER = 0.2
WARM = 3
PATIENCE = 180.0
"""Epochs before the clock runs, and seconds that they may take."""


class Reader(threading.Thread):
    """Notes when a read_committed consumer gets rows, whose values are times."""

    def __init__(self, server: KafkaServer, topic: str) -> None:
        super().__init__(daemon=True)
        common = {**server.client(), "group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 5}
        self._consumer = Consumer({**common, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._ended = threading.Event()
        self.found: list[tuple[float, float]] = []
        """When a row came, and the seconds since its window ended."""

    def run(self) -> None:
        """Read until it is told to stop."""
        while not self._ended.is_set():
            messages = [each for each in self._consumer.consume(1000, 0.02) if each.error() is None]
            now = time.time()
            self.found += [(now, now - int(each.value() or 0) / 1e6) for each in messages]
        self._consumer.close()

    def stop(self) -> None:
        """Stop, and wait for it."""
        self._ended.set()
        self.join()


class Feeder(threading.Thread):
    """Writes rows whose times are those at which they are written, all the time."""

    def __init__(self, server: KafkaServer, topic: str) -> None:
        super().__init__(daemon=True)
        # Where the machine is busy, what waits here is read late, and counts so.
        waiting = {"linger.ms": 5, "queue.buffering.max.messages": 10_000_000}
        self._producer, self._topic = Producer({**server.client(), **waiting}), topic
        self._ended = threading.Event()

    def run(self) -> None:
        """Write until it is told to stop."""
        began, count = time.monotonic(), 0
        while not self._ended.wait(PAUSE):
            due = int((time.monotonic() - began) * RATE)
            for number in range(count, due):
                self._producer.produce(self._topic, b"", b"%d" % (number % KEYS), partition=number % PARTITIONS)
            count = due
            self._producer.poll(0)
        self._producer.flush(30)

    def stop(self) -> None:
        """Stop, and wait for it."""
        self._ended.set()
        self.join()


class Epochs:
    """The moments at which epochs ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def __call__(self, phase: EpochPhase, epoch: int) -> None:
        """See ``onEpochPhase``."""
        del epoch
        if phase is EpochPhase.CLEAN:
            self.ends.append(time.time())

    def wait(self, query: StreamingQuery, count: int) -> None:
        """Wait until so many have ended."""
        until = time.monotonic() + PATIENCE
        while len(self.ends) < count:
            if (failure := query.exception()) is not None:
                raise failure
            if time.monotonic() > until:
                sys.exit(f"{len(self.ends)} of {count} epochs ended in {PATIENCE:.0f} s")
            time.sleep(TRIGGER)


@contextmanager
def running(
    server: KafkaServer, source: DataFrame, time_column: str, key: str, way: str, *, overlaps: bool, trigger: float
) -> Iterator[tuple[StreamingQuery, Reader, Epochs]]:
    """A query that counts by second and key, with a reader of its results; its first epochs have ended."""
    topic, epochs = server.topic(partitions=PARTITIONS), Epochs()
    counts = sj.stream(source).withWatermark(time_column, sj.limiting_lag("0 seconds"))
    counted = counts.groupBy(sj.window(time_column, "1 second"), key).agg(F.count("*").alias("n"))
    records = counted.select(
        F.col(key).cast("string").alias("key"), F.unix_micros("window.end").cast("string").alias("value")
    )
    options = {"kafka.bootstrap.servers": server.bootstrap, "topic": topic, "commit": way, "overlapEpochs": overlaps}
    with tempfile.TemporaryDirectory() as home:
        writer = (
            records.writeStream.format("kafka").options(**options).option("checkpointLocation", Path(home) / "home")
        )
        query = writer.trigger(processingTime=f"{trigger} seconds").onEpochPhase(epochs).start()
        reader = Reader(server, topic)
        reader.start()
        epochs.wait(query, WARM)
        yield query, reader, epochs
        if (failure := query.exception()) is not None:
            raise failure
        query.stop()
        reader.stop()


def readable(session: SparkSession, server: KafkaServer, way: str, *, overlaps: bool, seconds: float) -> str:
    """From the end of a window to its rows."""
    topic = server.topic(partitions=PARTITIONS)
    source = session.readStream.format("sparkjet-kafka").options(
        **{"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    )
    feeder = Feeder(server, topic)
    feeder.start()
    rows = source.load().select("timestamp", F.col("key").cast("string").alias("symbol"))
    with running(server, rows, "timestamp", "symbol", way, overlaps=overlaps, trigger=TRIGGER) as (_, reader, epochs):
        # Half of it, for Java to compile.
        time.sleep(1.5 * seconds)
        since = time.time() - seconds
        feeder.stop()
    taken = [late for came, late in reader.found if came >= since]
    if not taken:
        return f"no rows came in the last {seconds:.0f} s: give it more seconds"
    ended = sum(1 for end in epochs.ends if end >= since)
    return f"readable p50 {p(taken, 50):.3f} p99 {p(taken, 99):.3f} s, {ended / seconds:.1f} epochs/s"


def throughput(session: SparkSession, server: KafkaServer, way: str, *, overlaps: bool, seconds: float) -> str:
    """Rows of results a second."""
    source = session.readStream.format("rate-micro-batch").options(
        rowsPerBatch=BATCH, numPartitions=PARTITIONS, startTimestamp=0, advanceMillisPerBatch=1000
    )
    with running(server, source.load(), "timestamp", "value", way, overlaps=overlaps, trigger=0) as (query, _, epochs):
        # For Java to compile.
        time.sleep(seconds / 2)
        first = len(epochs.ends)
        time.sleep(seconds)
        # From the end of one to that of another, however long they take.
        epochs.wait(query, first + 2)
        ends = epochs.ends[first:]
    return f"throughput {BATCH * (len(ends) - 1) / (ends[-1] - ends[0]):,.0f} rows/s of {len(ends)} epochs"


def main() -> None:
    """Every way, with and without overlapping epochs."""
    seconds = float(sys.argv[1]) if sys.argv[1:] else SECONDS
    session = local_session()
    sj.register_sources(session)
    with KafkaServer() as server:
        for measure in (readable, throughput):
            for overlaps, way in product((True, False), (STAGED, PREPARED)):
                kind = "overlapping" if overlaps else "one by one"
                print(
                    f"{way:9} {kind:12} {measure(session, server, way, overlaps=overlaps, seconds=seconds)}", flush=True
                )
    session.stop()


if __name__ == "__main__":
    main()
