"""Sizes of rows, without brokers and Spark: what is decided is what librdkafka takes afterwards."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from confluent_kafka import KafkaException, Producer

from sparkjet.connectors.kafka.parts import Marker
from sparkjet.connectors.kafka.publishing import told_of
from sparkjet.connectors.kafka.refused_rows import (
    _OF_HEADER,
    Topic,
    check_ends,
    check_rows,
    check_targets,
    describe,
)
from sparkjet.errors import SinkError

TAKES = 1000
TOPIC = Topic(1, compacted=False, largest=None, writable=True, replicas=1, made="made")


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


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "t\0hidden", "t" * 250, "\ud800"])
def test_what_cannot_be_a_topics_name_is_not_asked_for(name: str) -> None:
    assert describe(None, [name], 0.0) == {}
    with pytest.raises(SinkError, match=r"where rows go, does not exist.*1 to 249 of the characters"):
        check_targets({"targets": [{"topic": name, "partition": None}]}, {})


def test_rows_for_the_progress_topic_are_refused_before_they_are_taken_for_markers() -> None:
    found = {"targets": [{"topic": "progress", "partition": None}]}
    check_targets(found, {"progress": TOPIC}, "progress of another output")
    with pytest.raises(SinkError, match=r"'progress' has the markers of this output.*Name another topic"):
        check_targets(found, {"progress": TOPIC}, "progress")


def test_an_epoch_is_refused_before_its_marker_is_too_large_for_the_offsets_of_all_partitions() -> None:
    named = 2 * ["t" * 249]
    topics = {f"{name}{n}": replace(TOPIC, partitions=2000) for n, name in enumerate(named)}
    largest = 1000 + 500 + 21 * 4000
    check_ends(topics, largest)
    with pytest.raises(SinkError, match=r"have 4000 partitions.*Raise the option kafka.message.max.bytes"):
        check_ends(topics, largest - 1)
    ends = {(name, number): 2**63 - 1 for name in topics for number in range(2000)}
    marker = Marker(2**63 - 1, "000001-000000001-0-aaaaaaaa", "aaaaaaaa", 2**63 - 1)
    value = json.dumps({"version": 1, **asdict(marker), **told_of(ends, -(2**63))})
    assert len(value) + 200 < largest
