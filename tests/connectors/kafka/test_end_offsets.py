"""Partitions that come, go and come back: each row once, and lost records fail the query or are skipped."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

import sparkjet as sj
from sparkjet.connectors.kafka import end_offsets as end_offsets_module
from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings
from sparkjet.connectors.kafka.end_offsets import EndOffsets
from tests.sources.feed import EVERYTHING, between, read, reader, send, values

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

A, B = ("t", 0), ("t", 1)


class Cluster:
    """A topic ``t`` whose partitions come and go.

    Args:
        listings: The partitions of each of the next listings; the last one is repeated.
    """

    def __init__(self, *listings: list[int]) -> None:
        self.listings = list(listings)
        self.first: dict[tuple[str, int], int] = {}
        self.last = {A: 10, B: 10}
        self.hidden: dict[tuple[str, int], list[int]] = {}

    def topics(self) -> dict[str, list[int]]:
        return {"t": self.listings.pop(0) if len(self.listings) > 1 else self.listings[0]}

    def begins(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {each: self.first.get(each, 0) for each in partitions}

    def ends(self, partitions: Iterable[tuple[str, int]], *, committed: bool) -> dict[tuple[str, int], int]:
        del committed
        return {each: self.hidden[each].pop(0) if self.hidden.get(each) else self.last[each] for each in partitions}


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look at what answers the same forever needs no pause."""
    monkeypatch.setattr(end_offsets_module, "SECOND_LOOK", 0.0)


def end_offsets(cluster: Any, *, strict: bool) -> EndOffsets:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "failOnDataLoss": str(strict).lower()}
    return EndOffsets(cluster, KafkaSourceSettings.of(given))


@pytest.mark.usefixtures("_at_once")
def test_a_partition_that_is_missing_keeps_its_position_until_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster([0])
    found = end_offsets(cluster, strict=False)
    with caplog.at_level(logging.WARNING, "sparkjet"):
        assert found.ends({A: 3, B: 7}) == ({A: 10}, {B: 7})
        assert found.ends({A: 3, B: 7}) == ({A: 10}, {B: 7})
    # Not at every trigger.
    assert [record.getMessage() for record in caplog.records] == [
        "sparkjet-kafka: t-1 is no longer in the cluster, or not subscribed to; continuing without the lost records"
    ]
    # At its end, as far as is known: it may go idle.
    assert found.reported() == {A: 10, B: 7}
    cluster.listings = [[0, 1]]
    assert found.ends({A: 3, B: 7}) == ({A: 10, B: 10}, {})
    assert found.reported() == {A: 10, B: 10}


@pytest.mark.usefixtures("_at_once")
def test_a_listing_that_lacks_one_is_looked_at_twice() -> None:
    assert end_offsets(Cluster([0], [0, 1]), strict=True).ends({A: 3, B: 7}) == ({A: 10, B: 10}, {})
    with pytest.raises(sj.SourceError, match="t-1 is no longer in the cluster"):
        end_offsets(Cluster([0]), strict=True).ends({A: 3, B: 7})


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("strict", [True, False])
def test_an_end_that_goes_back_for_a_moment_is_looked_at_twice(strict: bool) -> None:
    cluster = Cluster([0, 1])
    cluster.hidden = {B: [5, 5]}
    assert end_offsets(cluster, strict=strict).ends({A: 3, B: 7}) == ({A: 10, B: 7}, {})


@pytest.mark.usefixtures("_at_once")
def test_a_recreated_partition_is_read_from_its_beginning() -> None:
    cluster = Cluster([0, 1])
    cluster.last[B], cluster.first[B] = 5, 2
    assert end_offsets(cluster, strict=False).ends({A: 3, B: 7}) == ({A: 10}, {B: 2})
    with pytest.raises(sj.SourceError, match="t-1 ends at 5, but was read up to 7"):
        end_offsets(cluster, strict=True).ends({A: 3, B: 7})


def test_a_new_one_begins_at_its_oldest_record_and_not_beyond_the_target() -> None:
    cluster = Cluster([0], [0, 1])
    cluster.first[B] = 4
    assert end_offsets(Cluster([0, 1]), strict=True).ends({A: 3}) == ({A: 10}, {B: 0})
    found = end_offsets(cluster, strict=True)
    found.stop_here()
    assert found.ends({A: 3}) == ({A: 10}, {})
    assert end_offsets(cluster, strict=True).ends({A: 3}) == ({A: 10}, {B: 4})


def test_of_a_topic_with_expired_history_nothing_is_missed_that_was_promised(kafka: KafkaServer) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}"
    first, second = kafka.topic(f"{prefix}-a"), f"{prefix}-b"
    source = reader(kafka, subscribePattern=f"{prefix}-.", maxOffsetsPerTrigger="4")
    start = source.initialOffset()
    kafka.topic(second)
    send(kafka, first, b"1", b"2")
    send(kafka, second, *[b"%d" % number for number in range(1000)])
    admin = kafka.admin()
    admin.delete_records([TopicPartition(second, 0, 997)])[TopicPartition(second, 0)].result(30)
    limit = source.getDefaultReadLimit()
    rows, planned = read(source, start, limit)
    # Expired records do not reduce the others' share.
    assert values(rows) == [b"1", b"2"]
    assert planned == {first: {"0": 2}, second: {"0": 997}}
    # Rerun after more has expired, the batch is the same.
    admin.delete_records([TopicPartition(second, 0, 998)])[TopicPartition(second, 0)].result(30)
    assert values(between(reader(kafka, subscribePattern=f"{prefix}-."), start, planned)) == [b"1", b"2"]
    rows, end = read(source, {first: {"0": 2}, second: {"0": 998}}, limit)
    assert values(rows) == [b"998", b"999"]
    assert end == {first: {"0": 2}, second: {"0": 1000}}


# In CI, above without a broker, and with one in `test_source.py`.
@pytest.mark.long
def test_a_recreated_topic_is_read_from_its_new_beginning(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    send(kafka, topic, b"1", b"2", b"3")
    lenient = reader(kafka, subscribe=topic, failOnDataLoss="false")
    assert read(lenient)[1] == {topic: {"0": 3}}
    kafka.drop(topic)
    kafka.topic(topic)
    send(kafka, topic, b"new")
    assert read(lenient, {topic: {"0": 3}}) == ([], {topic: {"0": 0}})
    rows, end = read(lenient, {topic: {"0": 0}})
    assert values(rows) == [b"new"]
    assert end == lenient.reportLatestOffset() == {topic: {"0": 1}}
    # Also in a run with availableNow.
    lenient.prepareForTriggerAvailableNow()
    assert lenient.latestOffset({topic: {"0": 3}}, EVERYTHING) == {topic: {"0": 0}}
    assert lenient.latestOffset({topic: {"0": 0}}, EVERYTHING) == end
