"""Reading a range while the cluster does not answer, or answers wrongly: existing records are never skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

import sparkjet as sj
from sparkjet.connectors.kafka import reading
from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings
from sparkjet.connectors.kafka.consumers import CachedConsumer
from sparkjet.connectors.kafka.reading import Range, Reading

BOTH = pytest.mark.parametrize("strict", ["true", "false"])
AWAY = KafkaError(KafkaError._TRANSPORT, "Connection refused")
SLOW = KafkaError(KafkaError._TIMED_OUT, "Timed out")
THERE, MISSING = {0}, set[int]()


@dataclass
class Record:
    """A message, or an error in place of one."""

    at: int
    wrong: KafkaError | None = None

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.wrong

    def __len__(self) -> int:
        return 1


@dataclass
class Cluster:
    """A fake of librdkafka with a topic ``t`` of one partition with ``records``.

    Attributes:
        records: The offsets of its records.
        errors: Errors that the first reads return instead.
        listings: The first listings: partitions, or an error; then partition 0.
        marks: The results of the first queries for its ends: an error, or None for the real answer.
    """

    records: range
    errors: list[KafkaError]
    listings: list[set[int] | KafkaError] = field(default_factory=list)
    marks: list[KafkaError] = field(default_factory=list)
    position: int = 0

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.position = partitions[0].offset

    def close(self) -> None:
        self.records = range(0)

    def consume(self, count: int, _: float) -> list[Record]:
        if self.errors:
            return [Record(self.position, self.errors.pop(0))]
        found = [Record(each) for each in self.records if each >= self.position][:count]
        self.position = found[-1].at + 1 if found else self.position
        return found

    def list_topics(self, timeout: float) -> SimpleNamespace:
        assert timeout < 30
        said = self.listings.pop(0) if self.listings else THERE
        if isinstance(said, KafkaError):
            raise KafkaException(said)
        return SimpleNamespace(topics={"t": SimpleNamespace(error=None, partitions=said)})

    def get_watermark_offsets(self, _: TopicPartition, __: float) -> tuple[int, int]:
        if self.marks:
            raise KafkaException(self.marks.pop(0))
        return self.records.start, self.records.stop


class Scripted(CachedConsumer):
    """A consumer of such a cluster."""

    def __init__(self, cluster: Cluster, new: Cluster | None = None) -> None:
        self.trouble, self.is_reused = None, new is not None
        self.client: Any = cluster
        self._new: Any = new

    def _connected(self) -> Any:
        return self._new


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look at what answers by a script needs no pause."""
    monkeypatch.setattr(reading, "SECOND_LOOK", 0.0)


def offsets(cluster: Cluster, strict: str, patience: int = 30_000, new: Cluster | None = None) -> list[int]:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "failOnDataLoss": strict}
    settings = KafkaSourceSettings.of({**given, "kafkaConsumer.pollTimeoutMs": str(patience)})
    lists = Reading(Scripted(cluster, new), Range("t", 0, 2, 10), settings).messages()
    return [message.offset() for messages in lists for message in messages]


@BOTH
@pytest.mark.parametrize("code", [KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION])
def test_a_partition_that_is_unknown_for_a_moment_has_lost_nothing(code: int, strict: str) -> None:
    assert offsets(Cluster(range(10), [KafkaError(code)]), strict) == list(range(2, 10))


def test_one_that_is_missing_from_a_listing_is_looked_for_again() -> None:
    cluster = Cluster(range(10), [KafkaError(KafkaError._UNKNOWN_PARTITION)], listings=[MISSING, THERE])
    assert offsets(cluster, "false") == list(range(2, 10))


def test_the_remaining_range_is_queried_until_a_broker_answers() -> None:
    expired = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
    cluster = Cluster(range(5, 20), [expired], listings=[AWAY, THERE, AWAY], marks=[SLOW])
    assert offsets(cluster, "false") == list(range(5, 10))


@BOTH
def test_no_answer_is_not_a_loss(strict: str) -> None:
    expired = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
    with pytest.raises(sj.SourceError, match=r"stopped at 2: Connection refused. Waited for 0.3 seconds at most"):
        offsets(Cluster(range(10), [expired], listings=[AWAY] * 1000), strict, patience=300)
    with pytest.raises(sj.SourceError, match=r"stopped at 2: Timed out. Waited for 0.3 seconds at most"):
        offsets(Cluster(range(10), [expired], marks=[SLOW] * 1000), strict, patience=300)


@BOTH
def test_a_client_that_gets_nothing_is_replaced_if_it_is_of_an_earlier_task(
    monkeypatch: pytest.MonkeyPatch, strict: str
) -> None:
    monkeypatch.setattr(reading, "_SILENT", 0.0)
    old = Cluster(range(4), [])
    assert offsets(old, strict, new=Cluster(range(10), [])) == list(range(2, 10))
    assert not old.records
    with pytest.raises(sj.SourceError, match=r"stopped at 4: no records arrived"):
        offsets(Cluster(range(4), []), strict, patience=100)


def test_a_refusal_is_not_waited_for() -> None:
    expired = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
    refused = KafkaError(KafkaError._AUTHENTICATION, "SASL failed")
    with pytest.raises(sj.SourceError, match=r"SASL failed. Waiting does not resolve this: see kafka.sasl.username"):
        offsets(Cluster(range(10), [expired], listings=[refused] * 1000), "false", patience=10**9)


@pytest.mark.parametrize(
    "cluster",
    [
        # Deleted; recreated with less than was read; expired beyond the range.
        Cluster(range(10), [KafkaError(KafkaError._UNKNOWN_TOPIC)], listings=[MISSING, MISSING]),
        Cluster(range(2), [KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)]),
        Cluster(range(15, 20), [KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)]),
    ],
)
def test_what_has_gone_is_passed_over(cluster: Cluster) -> None:
    assert offsets(cluster, "false") == []
