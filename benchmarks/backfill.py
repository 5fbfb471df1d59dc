"""A backfill from a table, against the same past fed through Kafka: seconds until all windows are published.

    python -m benchmarks.backfill

Three million events of two partitions, a million in each epoch of either; the first round warms up. Of the other way
the writing into the topic is told beside the reading, as it may have happened long ago; the topic keeps what it was.
"""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.local import local_session
from tests.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS, PARTITIONS, RECENT = 3_000_000, 2, 100_000
ROUNDS = 6
START = 1_700_000_000


def events(spark: SparkSession, topic: str) -> DataFrame:
    """The events as a table: a thousand a second in each partition, with a key of ten thousand."""
    rows = spark.range(EVENTS).withColumn("offset", F.expr(f"id div {PARTITIONS}"))
    return rows.select(
        F.lit(topic).alias("topic"),
        (F.col("id") % PARTITIONS).cast("int").alias("partition"),
        "offset",
        F.timestamp_millis(F.lit(START * 1000) + F.col("offset")).alias("ts"),
        (F.col("id") % 10_000).alias("v"),
    )


def fill(server: KafkaServer, topic: str, first: int) -> float:
    """Write the events into the topic, from the number ``first`` on; the seconds that it takes."""
    began = time.perf_counter()
    producer = Producer({**server.client(), "linger.ms": 50, "queue.buffering.max.kbytes": 1 << 20})
    for number in range(first, EVENTS):
        while True:
            try:
                at = START * 1000 + number // PARTITIONS
                producer.produce(topic, b"%d" % (number % 10_000), partition=number % PARTITIONS, timestamp=at)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)
    return time.perf_counter() - began


def topic_of(spark: SparkSession, server: KafkaServer, topic: str) -> DataFrame:
    """The topic from its beginning, with the columns of the table."""
    options = {f"kafka.{name}": value for name, value in server.client().items()}
    more = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000000"}
    rows = spark.readStream.format("sparkjet-kafka").options(**options, **more).load()
    value = F.col("value").cast("string").cast("long").alias("v")
    return rows.select("topic", "partition", "offset", F.col("timestamp").alias("ts"), value)


def seconds(stream: sj.Stream, place: Path) -> float:
    """How long a query of sums takes until its last window is published."""
    windows = stream.withWatermark("ts", "10 seconds", by="partition").groupBy(sj.window("ts", "1 minute"), "v")
    writer = windows.agg(F.count("*").alias("n")).writeStream.format("files").option("path", place / "out")
    writer = writer.option("checkpointLocation", place / "home").option("closeWindowsAtEnd", True)
    began = time.perf_counter()
    writer.trigger(availableNow=True).start().awaitTermination()
    taken = time.perf_counter() - began
    found = sj.read_files(place / "out").agg(F.sum("n")).collect()[0][0]
    if found != EVENTS:
        sys.exit(f"{found} of {EVENTS} events are in the windows")
    return taken


def main() -> None:
    """Run both ways in turns."""
    spark = local_session()
    sj.register_sources(spark)
    with KafkaServer() as server, tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        whole, recent = (server.topic(partitions=PARTITIONS) for _ in range(2))
        written = fill(server, whole, 0)
        print(f"written into the topic in {written:.1f} s")
        events(spark, recent).coalesce(2).write.parquet(str(home / "table"))
        # In the topic of the other way only what is new, by time: its offsets begin again at 0.
        fill(server, recent, EVENTS - RECENT)
        history = spark.read.parquet(str(home / "table"))
        cut = dt.datetime.fromtimestamp(START + (EVENTS - RECENT) // PARTITIONS / 1000, dt.timezone.utc)
        for number in range(ROUNDS):
            stream = sj.backfill(history, topic_of(spark, server, recent), cut, "ts", bucket="500 seconds")
            one = seconds(stream, home / f"table-{number}")
            other = seconds(sj.stream(topic_of(spark, server, whole)), home / f"topic-{number}")
            if number:
                fed = (written + other) / one
                print(f"from the table {one:.1f} s, from the topic {other:.1f} s: {other / one:.2f}; fed {fed:.2f}")


if __name__ == "__main__":
    main()
