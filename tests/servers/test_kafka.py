"""The broker that tests start: it starts, survives being killed, guards itself, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.servers.fixtures import REQUIRED, broker
from tests.servers.kafka import KafkaServer, jars
from tests.servers.programs import NoProgramError


def written(server: KafkaServer, topic: str, *values: bytes) -> None:
    producer = Producer({**server.client(), "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def read(server: KafkaServer, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**server.client(), "group.id": "test", "enable.auto.commit": "false"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, 30)]
    finally:
        consumer.close()


@pytest.mark.long
def test_what_was_written_outlives_a_killed_broker(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    written(kafka, topic, b"1", b"2")
    killed = kafka.pid
    kafka.restart()
    assert kafka.pid != killed
    written(kafka, topic, b"3")
    assert read(kafka, topic, 3) == [b"1", b"2", b"3"]


@pytest.mark.crash
def test_a_secure_broker_accepts_clients_that_know_the_password(kafka_secure: KafkaServer) -> None:
    topic = kafka_secure.topic()
    written(kafka_secure, topic, b"1")
    assert read(kafka_secure, topic, 1) == [b"1"]
    wrong = {**kafka_secure.client(), "sasl.password": "wrong", "message.timeout.ms": "2000", "log_level": "0"}
    errors: list[str] = []
    producer = Producer({**wrong, "error_cb": lambda error: errors.append(str(error))})
    producer.produce(topic, b"2")
    producer.flush(10)
    assert any("authentication" in error.lower() for error in errors), errors


def test_without_a_broker_the_test_is_skipped_and_in_ci_it_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install maven"):
        next(broker(find=lambda: jars(folder=tmp_path)))
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(NoProgramError, match="apt-get install maven"):
        next(broker(find=lambda: jars(folder=tmp_path)))
