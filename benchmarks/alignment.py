"""Alignment: a topic of 32 partitions, of which one is six hours behind, read with and without ``maxWatermarkDrift``.

``python -m benchmarks.alignment [PARTITIONS] [--flink]``. The last one has twelve hours with an event every two
seconds, the others have the second half of these with one every 20 seconds. A query counts by minute and key, and
reads all there is in batches of 5,000 offsets. *State* is the partial rows that the record of an epoch names, *final*
are the rows of results that are so when half of the batches have run, and it has *caught up* when no partition is an
hour behind.

With ``--flink``, Flink reads the same topic (after ``make benchmark-peers``), at the pace of a batch each second: as
fast as it can, it has read all of it before the first alignment. Its state are the open windows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.run import JAVA, OPENED
from tests.servers.kafka import KafkaServer
from tests.servers.programs import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 32
HOURS = 6
HOUR = 3_600_000_000
EVERY, OFTEN = 20, 2
"""Seconds between two events, in others and in the slow one."""
KEYS = 10
LIMIT = 5_000
DRIFT = "10 minutes"
START = 1_700_006_400
"""Seconds since 1970; a full hour."""


def fill(server: KafkaServer, partitions: int) -> str:
    """Write the topic."""
    topic = server.topic(partitions=partitions)
    # Small batches, as events that come every 20 seconds have: a reader cannot take a part of one.
    told = {
        "linger.ms": 20,
        "queue.buffering.max.messages": 10_000_000,
        "batch.num.messages": 10,
        "enable.idempotence": True,
    }
    producer = Producer({**server.client(), **told})
    for partition in range(partitions):
        is_slow = partition == partitions - 1
        times = range(0 if is_slow else HOURS * 3600, 2 * HOURS * 3600, OFTEN if is_slow else EVERY)
        for number, at in enumerate(times):
            key = b"%d" % (number % KEYS)
            producer.produce(topic, b"", key, partition=partition, timestamp=(START + at) * 1000)
    if producer.flush(120):
        sys.exit("the messages were not written")
    return topic


def read(spark: SparkSession, server: KafkaServer, topic: str, **options: str) -> str:
    """Read all of it, and say what that took."""
    given = {f"kafka.{name}": value for name, value in server.client().items()}
    given |= {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(LIMIT), **options}
    events = spark.readStream.format("sparkjet-kafka").options(**given).load()
    timed = sj.stream(events).withWatermark("timestamp", "0 seconds")
    counts = timed.groupBy(sj.window("timestamp", "1 minute"), "partition", "key").count()
    with tempfile.TemporaryDirectory() as place:
        writer = counts.writeStream.format("files").option("path", str(Path(place) / "out"))
        writer = writer.option("checkpointLocation", str(Path(place) / "home")).option("closeWindowsAtEnd", "true")
        began = time.time()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        took = time.time() - began
        epochs = [each for each in query.recentProgress if each["batchId"] is not None]
        rows = [sum(sink["rows"] or 0 for sink in each["sinks"]) for each in epochs]
        total = sj.read_files(str(Path(place) / "out")).count()
    state = [each["snapshot"]["entries"] for each in epochs]
    late = epochs[-1]["lateRows"]["total"]
    level = next(number for number, each in enumerate(epochs) if is_level(each["substreams"]))
    after = epochs[level]["epoch"]["ended"] / 1e6 - began
    return (
        f"{len(epochs):3} batches, {took:5.1f} s; state {max(state):,} at most, {sum(state) // len(state):,} mean; "
        f"caught up after {level + 1} batches, {after:.1f} s; "
        f"final at half time {sum(rows[: len(rows) // 2]):,}, in the end {total:,}; late {late}"
    )


def flink(
    server: KafkaServer, topic: str, partitions: int, drift: int, interval: int, poll: int, fetch: int, pace: int
) -> str:
    """Have Flink read all of it, and say what that took.

    Args:
        server: The broker.
        topic: The topic.
        partitions: How many it has.
        drift: Seconds; 0 without alignment.
        interval: Milliseconds between two alignments.
        poll: Most records of a poll.
        fetch: Most bytes of a partition in a fetch, after which it is another one's turn.
        pace: Records a second of each of two readers; 0 for as many as they can.
    """
    brokers = server.client()["bootstrap.servers"]
    rows = HOURS * 3600 // EVERY * (partitions - 1) + 2 * HOURS * 3600 // OFTEN
    given = [brokers, topic, *map(str, (partitions, drift, interval, poll, rows, pace, fetch))]
    opened = [part for package in OPENED for part in ("--add-opens", f"{package}=ALL-UNNAMED")]
    command = [java(), "-Xmx4g", *opened, "-cp", f"{JAVA}/target/classes{os.pathsep}{JAVA}/target/dependency/*"]
    done = subprocess.run([*command, "benchmarks.AlignedFlink", *given], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def is_level(substreams: Mapping[str, Any]) -> bool:
    """Whether no partition is an hour behind another one."""
    times = [each["watermark"] for each in substreams.values()]
    return None not in times and max(times) - min(times) <= HOUR


def main() -> None:
    """Read it both ways, in turns, twice; the first turn also warms up."""
    given = [each for each in sys.argv[1:] if each != "--flink"]
    partitions = int(given[0]) if given else PARTITIONS
    if "--flink" in sys.argv:
        with KafkaServer() as server:
            topic = fill(server, partitions)
            for pace in (0, LIMIT // 2, LIMIT // 2):
                for drift, poll, fetch in ((0, 500, 1 << 20), (600, 500, 1 << 20), (600, 30, 1 << 10)):
                    told = f"drift {drift} s, polls of {poll}, {fetch} bytes a fetch, {pace}/s:"
                    print(told, flink(server, topic, partitions, drift, 50, poll, fetch, pace), flush=True)
        return
    spark = local_session()
    sj.register_sources(spark)
    with KafkaServer() as server:
        topic = fill(server, partitions)
        for _ in range(2):
            print("without", read(spark, server, topic), flush=True)
            print("aligned", read(spark, server, topic, maxWatermarkDrift=DRIFT), flush=True)


if __name__ == "__main__":
    main()
