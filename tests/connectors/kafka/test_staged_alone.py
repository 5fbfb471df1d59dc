"""The Kafka sink with ``commit=staged`` without brokers: what it remembers, and what it takes from its settings."""

from __future__ import annotations

import re
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigEntry  # type: ignore[attr-defined]

from sparkjet.connectors.kafka import progress_topic, publishing, staged
from sparkjet.connectors.kafka.parts import Marker
from sparkjet.connectors.kafka.progress_topic import ProgressTopic, key_of
from sparkjet.connectors.kafka.publishing import Place
from sparkjet.connectors.kafka.refused_rows import Topic
from sparkjet.connectors.kafka.staged import StagedKafkaSink
from sparkjet.connectors.kafka.staged_settings import StagedSettings
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.options import Options
from sparkjet.sinks.protocol import TransactionId
from sparkjet.storage.posix_directory import as_directory

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.log_level": "0", "topic": "out"}


class Alone:
    """A sink whose parts are published as soon as they are asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, **options: str) -> None:
        self.sink = StagedKafkaSink(StagedSettings.of(Options({**GIVEN, **options})))
        self.sink._directory = as_directory(directory)
        self.places: list[Place] = []
        self.limit: int | None = None
        self.markers: dict[str, Marker] = {}
        self.made: dict[str, str] = {}
        topics = lambda _, names, __: {name: Topic(1, False, self.limit, True, 1, "made") for name in names}  # noqa: E731
        monkeypatch.setattr(staged, "describe", topics)
        monkeypatch.setattr(progress_topic, "partitions_of", lambda *_: [("progress", number) for number in range(3)])
        monkeypatch.setattr(progress_topic, "topic_setting", lambda *_: None)
        monkeypatch.setattr(progress_topic, "described", lambda *_: SimpleNamespace(authorized_operations=None))
        monkeypatch.setattr(progress_topic.ProgressTopic, "catch_up", lambda topic: topic.newest.update(self.markers))
        self.looks: list[str] = []

        def run(_: Any, brokers: publishing.KafkaBrokers, place: Place, **__: Any) -> None:
            self.places.append(place)
            if brokers.known is None:
                self.looks.append(place.name.rpartition("/")[2])
            brokers.known = (None,)

        monkeypatch.setattr(publishing, "run", run)
        monkeypatch.setattr(self.sink, "_confirm", lambda *_: None)

    def deliver(self, epoch: int, parts: int = 1) -> None:
        transaction = TransactionId("q", "results", 1, epoch, 0, "aa")
        box = str(transaction)
        handle = {"sink": "results", "box": box, "epoch": epoch, "rows": 1, "query": "q", "run": "aa", "since": 0}
        handle |= {"ids": self.sink._generation(transaction), "files": [["0.parquet", 1, 1]]}
        handle["parts"] = [[[0], 1]] * parts
        self.sink.deliver(
            self.sink._entries("results").at(box), {**handle, "topic": "out", "topics": ["out"], "made": self.made}
        )


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Alone:
    monkeypatch.setattr(staged.PartitionEnds, "write_lost", lambda *_: None)
    monkeypatch.setattr(staged.PartitionEnds, "of", lambda *_: [("out", 0)])
    return Alone(monkeypatch, tmp_path)


def test_ids_are_kept_only_if_it_is_known_that_their_transactions_have_ended(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone.deliver(1)
    alone.deliver(2)

    def fails(*_: Any) -> None:
        raise SinkError("the broker that has answered the commit was killed")

    monkeypatch.setattr(alone.sink, "_confirm", fails)
    with pytest.raises(SinkError, match="was killed"):
        alone.deliver(3)
    # The commit is tried again, and is done: this epoch's markers say so.
    alone.deliver(3)
    monkeypatch.setattr(alone.sink, "_confirm", lambda *_: None)
    alone.deliver(4)
    names = [place.name for place in alone.places]
    assert names[0] == names[1] == names[2] != names[3]
    assert len(names) == 4


def test_an_epoch_whose_beginning_readers_do_not_get_yet_is_not_taken_for_that_of_another_publisher(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone.sink, "_publish_in_tasks", lambda *_, **__: None)
    for epoch, is_read in ((1, True), (2, True), (3, False), (4, True)):
        monkeypatch.setattr(staged.PartitionEnds, "are_read", lambda *_, found=is_read: found)
        alone.looks.clear()
        alone.deliver(epoch, parts=2)
        assert alone.looks == {1: ["begun", "all"], 3: ["all"], 4: ["begun"]}.get(epoch, [])


def test_a_topic_that_was_recreated_is_reported_once(alone: Alone, caplog: pytest.LogCaptureFixture) -> None:
    alone.made = {"out": "old"}
    alone.sink._ends.made = {"out": "old"}
    alone.deliver(1)
    assert caplog.text == ""
    alone.sink._ends.made = {"out": "new"}
    alone.deliver(2)
    alone.deliver(3)
    assert caplog.text.count("topic 'out' was deleted and created again after epoch") == 1


def marker(epoch: int, takeover: int, run: str) -> Marker:
    return Marker(epoch, str(TransactionId("q", "results", takeover, epoch, 0, run)), run, 1)


@pytest.mark.parametrize(
    ("complete", "of_part", "is_later"),
    [
        pytest.param(marker(3, 1, "aa"), marker(3, 1, "aa"), False, id="the record's"),
        pytest.param(marker(3, 1, "aa"), marker(2, 1, "bb"), False, id="a part that the last epochs did not have"),
        pytest.param(marker(4, 1, "aa"), marker(4, 1, "aa"), True, id="a later one"),
        pytest.param(marker(3, 1, "aa"), marker(4, 1, "aa"), True, id="a later one that was begun"),
        pytest.param(marker(3, 2, "bb"), marker(3, 2, "bb"), True, id="of a later takeover"),
        pytest.param(marker(2, 1, "aa"), marker(3, 1, "bb"), True, id="of another run, begun"),
    ],
)
def test_what_a_record_cannot_have_published_is_named_or_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, complete: Marker, of_part: Marker, *, is_later: bool
) -> None:
    newest = TransactionId("q", "results", 1, 3, 0, "aa")
    forgotten: list[str] = []
    monkeypatch.setattr(progress_topic.ProgressTopic, "forget", lambda topic, _: forgotten.extend(topic.newest))
    monkeypatch.setattr(staged.PartitionEnds, "are_read", lambda *_: True)
    for option in ("fail", "continue"):
        alone = Alone(monkeypatch, tmp_path, onRestoredBackup=option)
        alone.markers = {key_of("q", "results"): complete, key_of("q", "results", 0): of_part}
        later = alone.sink.published_after(newest, None)
        assert (later is not None) == (is_later and option == "fail")
        assert later is None or f"says that epoch {max(complete.epoch, of_part.epoch)} was published" in str(later)
        assert forgotten == []
        alone.sink.create()
    assert len(forgotten) == (2 if is_later else 0)


def test_a_later_epoch_that_readers_do_not_get_yet_is_waited_for_before_it_is_forgotten(
    alone: Alone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone = Alone(monkeypatch, tmp_path, onRestoredBackup="continue")
    newest = TransactionId("q", "results", 1, 3, 0, "aa")
    monkeypatch.setattr(staged.PartitionEnds, "are_read", lambda *_: False)
    with pytest.raises(AnalysisError, match="a transaction is open in sparkjet-progress-q-results-0"):
        alone.sink.published_after(newest, None)

    def ends(*_: Any) -> bool:
        alone.markers = {key_of("q", "results"): marker(9, 1, "aa")}
        return True

    monkeypatch.setattr(staged.PartitionEnds, "are_read", ends)
    forgotten: list[str] = []
    monkeypatch.setattr(progress_topic.ProgressTopic, "forget", lambda topic, _: forgotten.extend(topic.newest))
    assert alone.sink.published_after(newest, None) is None
    alone.sink.create()
    assert forgotten == [key_of("q", "results")]


def test_a_backup_whose_outbox_marks_a_later_epoch_is_not_continued_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # It was copied while the query ran, or only the snapshots were restored.
    alone = Alone(monkeypatch, tmp_path, onRestoredBackup="continue")
    monkeypatch.setattr(staged.PartitionEnds, "are_read", lambda *_: True)
    alone.sink._entries("results").note_delivered("000001-000000005-0-aa")
    newest = TransactionId("q", "results", 1, 3, 0, "aa")
    later = str(alone.sink.published_after(newest, None))
    assert "delivered-000001-000000005-0-aa says that epoch 5 was delivered. To go on from epoch 3, remove" in later
    assert alone.sink.published_after(TransactionId("q", "results", 1, 5, 0, "aa"), None) is None


def test_markers_that_cannot_be_deleted_are_an_error() -> None:
    topic = ProgressTopic({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, "progress", "q", "results", 5.0)
    topic.newest[key_of("q", "results")] = marker(4, 1, "aa")
    # Nobody answers there.
    away = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0", "message.timeout.ms": "50"}
    with pytest.raises(SinkError, match="_MSG_TIMED_OUT"):
        topic.forget(away)
    assert topic.complete is not None


@pytest.mark.parametrize(
    ("given", "limit", "expected"),
    [
        ({}, 1_048_588, None),
        ({}, None, None),
        ({}, 20_000, "20000"),
        ({"kafka.batch.size": "5000"}, 20_000, "5000"),
        ({"kafka.batch.size": "50000"}, 20_000, "20000"),
    ],
)
def test_no_batch_is_larger_than_the_topic_takes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    alone: Alone,
    given: dict[str, str],
    limit: int | None,
    expected: str | None,
) -> None:
    alone = Alone(monkeypatch, tmp_path, **given)
    alone.limit = limit
    alone.deliver(1)
    assert [place.producer.get("batch.size") for place in alone.places] == [expected]


def test_a_producer_is_recreated_where_its_topic_takes_less(alone: Alone) -> None:
    alone.deliver(1)
    alone.deliver(2)
    assert alone.looks == ["0"]
    alone.limit, alone.sink._topics = 20_000, (0.0, {})
    alone.deliver(3)
    assert alone.looks == ["0", "0"]


def test_a_producer_is_recreated_where_its_topic_was(alone: Alone) -> None:
    for epoch, made in ((1, "one"), (2, "one"), (3, "another")):
        alone.sink._ends.made = {"out": made}
        alone.deliver(epoch)
    assert alone.looks == ["0", "0"]


class Refusing:
    """A client whose user may not create topics."""

    def __init__(self, _: Any) -> None: ...

    def create_topics(self, topics: Any, *, validate_only: bool, request_timeout: float) -> dict[str, Any]:
        assert validate_only
        assert request_timeout
        refused: Future[None] = Future()
        refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
        return {topics[0].topic: refused}


@pytest.mark.parametrize(
    ("partitions", "replicas", "command"),
    [
        (0, 3, "--create --topic progress --partitions 17 --replication-factor 3 --config cleanup.policy=compact "),
        # What the brokers choose: the command refuses -1.
        (0, -1, "--create --topic progress --partitions 17 --config cleanup.policy=compact "),
        # There is one already.
        (1, 3, "--alter --topic progress --partitions 17"),
    ],
)
def test_the_command_that_is_named_is_one_that_works(
    monkeypatch: pytest.MonkeyPatch, partitions: int, replicas: int, command: str
) -> None:
    monkeypatch.setattr(progress_topic, "AdminClient", Refusing)
    monkeypatch.setattr(progress_topic, "partitions_of", lambda *_: [("progress", n) for n in range(partitions)])
    monkeypatch.setattr(progress_topic, "topic_setting", lambda *_: None)
    monkeypatch.setattr(progress_topic, "described", lambda *_: SimpleNamespace(authorized_operations=None))
    topic = ProgressTopic({}, "progress", "q", "results", 5.0)
    with pytest.raises(AnalysisError, match=re.escape(f"kafka-topics.sh {command}")):
        topic.check(16, replicas)


class Restarted:
    """A client whose broker is gone when it is asked first."""

    def __init__(self, _: Any = None) -> None:
        self.asked: list[str] = []

    def list_topics(self, *, timeout: float) -> None: ...

    def create_topics(self, topics: Any, **_: Any) -> dict[str, Any]:
        return self._answer("create", topics[0].topic, None)

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Any]:
        return self._answer("describe", resources[0], {"cleanup.policy": ConfigEntry("cleanup.policy", "compact")})

    def _answer(self, what: str, key: Any, value: Any) -> dict[Any, Any]:
        answer: Future[Any] = Future()
        self.asked.append(what)
        if len(self.asked) == 1:
            answer.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
        else:
            answer.set_result(value)
        return {key: answer}


def test_a_broker_that_is_restarted_while_the_query_starts_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Restarted()
    assert progress_topic.topic_setting(client, "t", "cleanup.policy", 5.0) == "compact"
    assert client.asked == ["describe", "describe"]
    monkeypatch.setattr(progress_topic, "AdminClient", Restarted)
    monkeypatch.setattr(progress_topic, "partitions_of", lambda *_: [])
    ProgressTopic({}, "progress", "q", "results", 5.0).check(16, 1)
