"""The Kafka sink with ``commit=staged`` against a real broker: the contract of all sinks, and its own behaviour."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.options import Options
from sparkjet.sinks.kafka.staged import StagedKafkaSink
from sparkjet.sinks.kafka.staged_settings import StagedSettings
from sparkjet.testing.sink_contract import SinkContract, SinkUnderTest, transaction
from tests.protocol.kafka.checks import committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.kafka import KafkaServer

RECORDS = "key string, value string"


def sink_of(
    spark: SparkSession, server: KafkaServer, outbox: Path, schema: str = RECORDS, few: int = 20_000, **options: str
) -> StagedKafkaSink:
    connected = {f"kafka.{name}": value for name, value in server.client().items()}
    given = {
        **connected,
        "kafka.message.timeout.ms": "5000",
        "progressTopic": f"progress-{uuid.uuid4().hex}",
        **options,
    }
    sink = StagedKafkaSink(replace(StagedSettings.of(Options(given)), few=few))
    sink.check(spark.createDataFrame([], schema).schema)
    sink.attach(outbox, spark)
    sink.published_after(transaction(0), None)
    sink.create()
    return sink


class Contract(SinkContract):
    def rows(self, spark: SparkSession, *numbers: int) -> DataFrame:
        rows = [(f"k{n}", json.dumps([f"k{n}", n])) for n in numbers]
        return spark.createDataFrame(rows, RECORDS).repartition(2)

    def under_test(self, spark: SparkSession, server: KafkaServer, outbox: Path, few: int) -> SinkUnderTest:
        topic = server.topic(partitions=2)

        def read() -> list[tuple[str, int]]:
            return [tuple(json.loads(message.value())) for message in committed(server, topic)]

        def dangling() -> int:
            return sum(1 for _ in outbox.glob("results/0*"))

        return SinkUnderTest(sink_of(spark, server, outbox, topic=topic, few=few, numPartitions="4"), read, dangling)

    # A condition that holds for these rows.
    def test_an_epoch_without_rows_prepares_nothing(self, spark: SparkSession, target: SinkUnderTest) -> None:
        assert target.sink.prepare(self.rows(spark, 1).where("false"), transaction(1)) is None
        assert target.dangling() == 0


class TestByTheDriver(Contract):
    @pytest.fixture
    def target(self, spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> SinkUnderTest:
        return self.under_test(spark, kafka, tmp_path, few=20_000)


class TestInTasks(Contract):
    @pytest.fixture
    def target(self, spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> SinkUnderTest:
        return self.under_test(spark, kafka, tmp_path, few=0)


@pytest.mark.crash
class TestSecureBroker(Contract):
    @pytest.fixture
    def target(self, spark: SparkSession, kafka_secure: KafkaServer, tmp_path: Path) -> SinkUnderTest:
        return self.under_test(spark, kafka_secure, tmp_path, few=0)


@pytest.mark.crash
class TestUpgradedBroker(Contract):
    @pytest.fixture
    def target(self, spark: SparkSession, kafka_old: KafkaServer, tmp_path: Path) -> SinkUnderTest:
        return self.under_test(spark, kafka_old, tmp_path, few=0)
