"""Reading the progress topic without brokers: what a reader gets besides markers."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from sparkjet.connectors.kafka import progress_topic
from sparkjet.connectors.kafka.parts import Marker
from sparkjet.connectors.kafka.progress_topic import COMPLETE, ProgressTopic, key_of

MARKER = b'{"version": 1, "epoch": 3, "name": "000001-000000003-0-aa", "run": "aa", "rows": 5}'


class Message:
    """The messages that a consumer returns."""

    def __init__(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        self._offset, self._key, self._value = offset, key, value

    def topic(self) -> str | None:
        return "progress"

    def partition(self) -> int:
        return COMPLETE

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> KafkaError | None:
        return None


class OfTheGroup(Message):
    def topic(self) -> str | None:
        return None

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)


def caught_up(monkeypatch: pytest.MonkeyPatch, *found: Message) -> ProgressTopic:
    """A progress topic that has read these records."""

    class Consumer:
        def __init__(self, settings: dict[str, Any]) -> None:
            assert settings["isolation.level"] == "read_committed"
            # Also where records at the beginning were deleted.
            assert settings["auto.offset.reset"] == "earliest"

        def assign(self, _: Any) -> None: ...

        def unassign(self) -> None: ...

        def consume(self, _: int, __: float) -> list[Message]:
            return list(found)

    monkeypatch.setattr(confluent_kafka, "Consumer", Consumer)
    ends = {("progress", COMPLETE): 1 + max(each.offset() for each in found)}
    monkeypatch.setattr(progress_topic, "ends_of", lambda *_: ends)
    monkeypatch.setattr(progress_topic, "partitions_of", lambda *_: [*ends])
    client = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
    topic = ProgressTopic(client, "progress", "q", "results", 5.0)
    topic.catch_up()
    return topic


def test_a_user_who_may_not_use_the_group_reads_the_markers_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = OfTheGroup(0, None, None)
    topic = caught_up(monkeypatch, refused, Message(0, key_of("q", "results").encode(), MARKER))
    assert topic.complete == Marker(3, "000001-000000003-0-aa", "aa", 5)


@pytest.mark.parametrize("value", [b"not JSON", b"{}", b"\xff", None])
def test_records_of_others_are_passed_over(monkeypatch: pytest.MonkeyPatch, value: bytes | None) -> None:
    topic = caught_up(monkeypatch, Message(0, b"theirs", value), Message(1, key_of("q", "results").encode(), MARKER))
    assert topic.complete == Marker(3, "000001-000000003-0-aa", "aa", 5)
