"""Markers of epochs in prepared transactions: written after their rows, by whoever commits them, and as often."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sparkjet.connectors.kafka.producer_settings import KafkaSettings
from sparkjet.connectors.kafka.sink import KafkaSink
from sparkjet.connectors.kafka.writer_markers import WriterMarkers
from sparkjet.errors import SinkError
from sparkjet.options import Options
from sparkjet.testing.sink_contract import RUN, transaction
from tests.protocol.kafka.checks import committed
from tests.sources.feed import options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.kafka import KafkaServer


def interrupted() -> None:
    raise InterruptedError


def test_a_commit_cut_short_before_its_marker_is_finished_by_the_next(spark: SparkSession, kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=2)
    progress = f"{topic}-progress"

    def a_driver(**more: str) -> KafkaSink:
        given = {"topic": topic, "progressTopic": progress, "progressInterval": "1s", **more}
        sink = KafkaSink(KafkaSettings.of(Options(options(kafka, **given))))
        sink.check(rows.schema)
        return sink

    def told() -> list[dict[str, object]]:
        return [json.loads(message.value()) for message in committed(kafka, progress)]

    rows = spark.createDataFrame([("a", "1"), ("b", "2"), ("c", "3")], "key string, value string").repartition(2)
    sink = a_driver()
    sink.create()
    first = sink.prepare(rows, replace(transaction(1, run=RUN), watermark=10))
    assert first is not None
    # The rows are written, and not yet committed: the marker says where they end, and nobody else's are behind that.
    assert sum(first["told"]["ends"][topic]) == 3
    with pytest.raises(InterruptedError):
        sink.commit(first, interrupted)
    assert told() == []
    again = json.loads(json.dumps(first))
    for _ in range(2):
        a_driver().commit(again, lambda: None)
    alone = a_driver().tell(replace(transaction(2, run=RUN), watermark=20))
    assert alone["rows"] == 0
    a_driver().check_alive(alone)
    a_driver().commit(alone, lambda: None)
    assert [(each["epoch"], each["watermark"]) for each in told()] == [(1, 10), (1, 10), (2, 20)]
    assert len(committed(kafka, topic)) == 3
    markers = WriterMarkers()
    markers.take((message.key().decode(), message.value()) for message in committed(kafka, progress))
    ends = {(topic, number): end for number, end in enumerate(first["told"]["ends"][topic])}
    # A partition without rows of the first epoch is at the end of the second, too.
    assert markers.watermarks(ends) == {where: 10 if end else 20 for where, end in ends.items()}
    # One that goes on with another topic moves those before on as well, as long as they are there.
    other = kafka.topic()
    moved = a_driver(topic=other)
    assert moved.tell(replace(transaction(3, run=RUN), watermark=30))["told"]["ends"].keys() == {topic, other}
    # For so long brokers are asked for a topic that is gone.
    late = a_driver(kafka_message__timeout__ms="1000")
    kafka.drop(progress)
    with pytest.raises(SinkError, match=r"the rows of epoch 1 are committed, but its marker cannot be written"):
        late.commit(again, lambda: None)
    kafka.drop(topic)
    assert moved.tell(replace(transaction(3, run=RUN), watermark=30))["told"]["ends"].keys() == {other}
