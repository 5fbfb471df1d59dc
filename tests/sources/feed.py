"""Messages to a test's broker, and from the source without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings
from sparkjet.connectors.kafka.source import KafkaStreamReader

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

EVERYTHING = ReadAllAvailable()


def options(server: KafkaServer, **given: str) -> dict[str, str]:
    """Options of a reader: the server's, and the arguments (``kafka_`` stands for ``kafka.``)."""
    client = {f"kafka.{name}": value for name, value in server.client().items()}
    return {**client, **{name.replace("kafka_", "kafka.").replace("__", "."): text for name, text in given.items()}}


def reader(server: KafkaServer, **given: str) -> KafkaStreamReader:
    """A reader of the source, by default from the beginning."""
    if not any(name.startswith("starting") for name in given):
        given["startingOffsets"] = "earliest"
    return KafkaStreamReader(KafkaSourceSettings.of(options(server, **given)))


def read(
    source: KafkaStreamReader, start: Mapping[str, Any] | None = None, limit: ReadLimit = EVERYTHING
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of one batch, partition by partition, and the offset after it."""
    first = dict(start) if start is not None else source.initialOffset()
    end = source.latestOffset(first, limit)
    return between(source, first, end), end


def between(source: KafkaStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows between two offsets."""
    return [
        row
        for partition in source.partitions(start, end)
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]


def values(rows: Sequence[Mapping[str, Any]]) -> list[bytes | None]:
    """The column of values."""
    return [row["value"] for row in rows]


def send(server: KafkaServer, topic: str, *messages: bytes | None, **more: Any) -> None:
    """Write messages, by default to partition 0, and wait until they are there."""
    producer = _producer(**server.client())
    # It has kept how many partitions the topic had.
    producer.list_topics(topic, timeout=30)
    for message in messages:
        producer.produce(topic, message, **{"partition": 0, **more})
    assert producer.flush(30) == 0


def send_at(server: KafkaServer, topic: str, partition: int, times: Iterable[int]) -> None:
    """Write a message for each of some times, in milliseconds since 1970, and wait until they are there."""
    producer = _producer(**server.client())
    producer.list_topics(topic, timeout=30)
    for time in times:
        producer.produce(topic, b"%d" % time, partition=partition, timestamp=time)
    assert producer.flush(30) == 0


@lru_cache
def _producer(**client: str) -> Producer:
    """A producer of a server: each new one is half a second on its way to what makes it idempotent."""
    # Otherwise a batch that is sent again may come behind its successors, or twice.
    return Producer({**client, "enable.idempotence": True, "log_level": 0})


def transaction(server: KafkaServer, name: str) -> Producer:
    """A producer in an open transaction."""
    producer = Producer({**server.client(), "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer
