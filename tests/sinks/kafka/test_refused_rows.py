"""Sizes of rows, without brokers and Spark: what is decided is what librdkafka takes afterwards."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from sparkjet.errors import SinkError
from sparkjet.sinks.kafka.refused_rows import _OF_HEADER, Topic, check_rows

TAKES = 1000
TOPIC = Topic(1, compacted=False, largest=None, writable=True, replicas=1)


def takes(value: bytes, headers: list[tuple[str, bytes]]) -> bool:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": "0", "message.max.bytes": str(TAKES)})
    try:
        producer.produce("t", value, b"k", headers=headers)
    except KafkaException:
        return False
    finally:
        producer.purge()
    return True


def is_decided(size: int) -> bool:
    try:
        check_rows({"keyless": 0, "record": size}, "t", TOPIC, TAKES, compresses=False)
    except SinkError:
        return False
    return True


@pytest.mark.parametrize("headers", [[], [("h", b"v")], [("h" * 300, b"v" * 300)]], ids=["none", "one", "a large one"])
def test_no_row_is_decided_that_librdkafka_does_not_take(headers: list[tuple[str, bytes]]) -> None:
    added = sum(len(key) + len(value) + _OF_HEADER for key, value in headers)
    sizes = range(TAKES - added - 60, TAKES - added + 60)
    # As it is measured: the key has one byte.
    found = [(is_decided(size + added), takes(b"x" * (size - 1), headers)) for size in sizes]
    assert (True, False) not in found
    assert {(True, True), (False, False)} <= set(found)
    if not headers:
        assert (False, True) not in found
