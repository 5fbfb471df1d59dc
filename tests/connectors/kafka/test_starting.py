"""Where the source starts in topics that change meanwhile."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.sources.feed import reader, send

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer


@pytest.mark.parametrize("start", ["latest", "earliest", '{"%s": {"0": -1}}', '{"%s": {"0": 1}}'])
def test_a_topic_that_is_being_written_is_not_refused(kafka: KafkaServer, start: str) -> None:
    topic = kafka.topic()
    send(kafka, topic, b"1")
    enough = threading.Event()

    def write() -> None:
        producer = Producer({**kafka.client(), "linger.ms": 0, "log_level": 0})
        while not enough.is_set():
            producer.produce(topic, b"x", partition=0)
            producer.flush(30)

    writer = threading.Thread(target=write)
    writer.start()
    source = reader(kafka, subscribe=topic, startingOffsets=start.replace("%s", topic))
    try:
        found = [source.initialOffset()[topic]["0"] for _ in range(20)]
        # Otherwise the test would prove nothing.
        kafka.wait(lambda: source.reportLatestOffset()[topic]["0"] > 20, "messages of the writer")
    finally:
        enough.set()
        writer.join()
    assert found == sorted(found)
