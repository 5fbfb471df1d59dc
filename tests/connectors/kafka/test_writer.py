"""The Kafka sink against a broker without Spark: what the executors' part writes, and how transactions are ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.cluster import Cluster
from sparkjet.connectors.kafka.producing import KafkaWriter, ProduceError
from sparkjet.connectors.kafka.transactions import KafkaTransactions
from sparkjet.sinks.naming import prefix_of
from sparkjet.sinks.protocol import TransactionId
from tests.protocol.kafka.checks import committed, held_back
from tests.servers.fixtures import broker

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer


def test_the_column_partition_decides_whatever_other_columns_there_are(kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=4)
    # By key, all rows would be in one partition, and without a key librdkafka would choose at random.
    wanted = [2, 0, 3, 1] * 50
    rows = pa.record_batch(
        {
            "key": pa.array([b"k"] * len(wanted)),
            "value": pa.array([b"%d" % n for n in range(len(wanted))]),
            "partition": pa.array(wanted, pa.int32()),
        }
    )
    writer = KafkaWriter({**kafka.client(), "enable.idempotence": "true"}, None, topic)
    assert writer.write("only", [rows]) == ("", len(wanted))
    found = [(message.partition(), int(message.value())) for message in committed(kafka, topic)]
    assert sorted(found, key=lambda each: each[1]) == [(where, n) for n, where in enumerate(wanted)]
    for partition in range(4):
        numbers = [n for where, n in found if where == partition]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"topic": ["t", "t\0hidden"]}, r"column topic has 't\\x00hidden', .*: 1 to 249 of the characters"),
        ({"topic": ["t", None]}, "column topic is null in a row"),
        ({"topic": ["t", "t"], "partition": [None, -1]}, "column partition has a negative number. Leave it null"),
    ],
)
def test_what_is_not_a_topic_or_partition_is_named(column: dict[str, list[object]], message: str) -> None:
    writer = KafkaWriter({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, None, None)
    with pytest.raises(ProduceError, match=message):
        writer.write("only", [pa.record_batch({"value": [b"a", b"b"], **column})])


def test_a_row_without_a_key_is_refused_by_a_compacted_topic_with_its_policy(kafka: KafkaServer) -> None:
    topic = kafka.topic(cleanup_policy="compact")
    with Cluster(Access.of(kafka.client())) as cluster:
        assert cluster.topic_setting(topic, "cleanup.policy") == "compact"
        assert cluster.topic_setting(kafka.topic(), "cleanup.policy") == "delete"
    rows = pa.record_batch({"key": pa.array([b"k", None]), "value": pa.array([b"a", b"b"])})
    transaction = TransactionId("q", "results", 1, 1, 0)
    for prefix in (None, prefix_of(transaction.query, transaction.sink, transaction)):
        writer = KafkaWriter({**kafka.client(), "enable.idempotence": "true"}, prefix, topic)
        with pytest.raises(ProduceError, match=rf"topic '{topic}': INVALID_RECORD.*cleanup.policy=compact.*column key"):
            writer.write("only", [rows])


@pytest.fixture
def strict() -> Iterator[KafkaServer]:
    """A broker that allows only short transactions."""
    yield from broker(settings={"transaction.max.timeout.ms": "30000"})


@pytest.mark.spark  # Java at least
@pytest.mark.crash
def test_orphans_are_aborted_if_only_short_transactions_are_allowed(strict: KafkaServer) -> None:
    topic, orphan = strict.topic(), TransactionId("q", "results", 1, 1, 0)
    timeouts = {"transaction.timeout.ms": "30000", "message.timeout.ms": "30000"}
    writer = KafkaWriter({**strict.client(), **timeouts}, prefix_of(orphan.query, orphan.sink, orphan), topic)
    writer.write("00000-1", [pa.record_batch({"value": pa.array([b"x"])})])
    assert held_back(strict, topic) == 1
    KafkaTransactions(Access.of(strict.client())).abort_orphans(orphan.query, 2, [])
    assert held_back(strict, topic) == 0
