"""KR: the cost of the Kafka source, against a bare consumer that reads both partitions into columns in one process.

``python -m benchmarks.kafka``. A million messages of 100 bytes with a key in two partitions, and
the broker on the same machine. The source's time is that of Spark's batch in a warm driver (its ``addBatch``: both
tasks, their rows handed to the JVM and thrown away), the bare one's from ``assign`` to the last batch. They take
turns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

import sparkjet as sj
from benchmarks.beside import in_turns
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from tests.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 1_000_000
PARTITIONS = 2
WARM_UP = 2
ROUNDS = 5
GOAL = Goal("bare consumer", 1.2)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def fill(server: KafkaServer, topic: str) -> None:
    """Write the messages."""
    producer = Producer(
        {**server.client(), "enable.idempotence": True, "linger.ms": 50, "queue.buffering.max.kbytes": 1 << 20}
    )
    for number in range(MESSAGES):
        key, value = b"key-%d" % (number % 1000), b"%0100d" % number
        while True:
            try:
                producer.produce(topic, value, key, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        sys.exit("the messages were not written")


def bare_consumer(server: KafkaServer) -> Consumer:
    """A consumer with the settings of a high-throughput connector."""
    return Consumer(
        {
            **server.client(),
            "group.id": "bare",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": 16 << 20,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 262_144,
        }
    )


def bare(consumer: Consumer, topic: str) -> float:
    """Seconds in which one process reads both partitions into Arrow."""
    started = time.perf_counter()
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    rows = 0
    while rows < MESSAGES:
        messages = [each for each in consumer.consume(10_000, 0.1) if each.error() is None]
        if messages:
            rows += arrow(messages).num_rows
    taken = time.perf_counter() - started
    consumer.unassign()
    return taken


def arrow(messages: Sequence[Any]) -> pa.RecordBatch:
    """The source's columns, message by message."""
    each: list[list[object]] = [[] for _ in COLUMNS]
    key, value, topic, partition, offset, timestamp, kind = (column.append for column in each)
    for message in messages:
        key(message.key())
        value(message.value())
        topic(message.topic())
        partition(message.partition())
        offset(message.offset())
        of, milliseconds = message.timestamp()
        timestamp(milliseconds)
        kind(of)
    types = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("ms", tz="UTC"), pa.int32())
    columns = [pa.array(values, type_) for values, type_ in zip(each, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=COLUMNS)


def through_spark(session: SparkSession, server: KafkaServer, topic: str) -> float:
    """Seconds of the batch that reads everything."""
    reader = session.readStream.format("sparkjet-kafka").option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest").option("kafka.bootstrap.servers", server.bootstrap)
    query = reader.load().writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    [batch] = [each for each in query.recentProgress if each["numInputRows"]]
    if batch["numInputRows"] != MESSAGES:
        sys.exit(f"{batch['numInputRows']} rows")
    return float(batch["durationMs"]["addBatch"]) / 1000


def study() -> list[Ratio]:
    """One ratio, paired by round."""
    session = local_session()
    sj.register_sources(session)
    with KafkaServer() as server:
        topic = server.topic(partitions=PARTITIONS)
        fill(server, topic)
        consumer = bare_consumer(server)
        ways = {"source": lambda _: through_spark(session, server, topic), "bare": lambda _: bare(consumer, topic)}
        seconds = in_turns(ways, ROUNDS, WARM_UP)
        consumer.close()
    session.stop()
    return [Ratio.of_seconds("KR", "rows from Kafka", GOAL, seconds["source"], seconds["bare"], MESSAGES)]


if __name__ == "__main__":
    main(study)
