"""The Kafka sink against a broker without Spark: what the executors' half writes, and how what is open is ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkjet.sinks.kafka.producing import KafkaWriter
from tests.protocol.kafka.checks import committed

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer


def test_the_column_partition_decides_whatever_other_columns_there_are(kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=4)
    # A key's own partition would be one and the same, and without a key librdkafka would choose by chance.
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
