"""A query into PostgreSQL and Kafka at once, where PostgreSQL goes down after the decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from tests.feed import Feed, rows
from tests.protocol.kafka.checks import committed
from tests.servers.fixtures import serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.crash


@pytest.fixture
def fragile() -> Iterator[PostgresServer]:
    """A separate server for this test, which kills it."""
    yield from serve(8)


def test_kafka_gets_its_commit_while_postgresql_is_away_also_from_a_start_that_is_refused(
    spark: SparkSession, fragile: PostgresServer, kafka: KafkaServer, tmp_path: Path
) -> None:
    feed, topic, dsn = Feed(tmp_path / "in"), kafka.topic(), fragile.database("results")
    client = {f"kafka.{name}": value for name, value in kafka.client().items()}

    def run(listener: Callable[[EpochPhase, int], None] = lambda step, epoch: None) -> None:
        stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
        counts = stream.groupBy(sj.window("ts", "10 seconds")).count().withColumn("n", F.col("count"))
        table = counts.select("n").writeStream.format("postgres").options(dsn=dsn, dbtable="out", prepared="always")
        records = counts.withColumn("value", F.col("n").cast("string")).select("value").writeStream.format("kafka")
        records.options(topic=topic, commit="prepared", **client).trigger(availableNow=True).onEpochPhase(listener)
        sj.start(table, records, checkpointLocation=str(tmp_path / "home")).awaitTermination()

    def in_kafka() -> list[str]:
        return sorted(message.value().decode() for message in committed(kafka, topic))

    def lose_postgres(step: EpochPhase, epoch: int) -> None:
        if step is EpochPhase.DECIDE:
            fragile.kill()

    def lose_postgres_and_die(step: EpochPhase, epoch: int) -> None:
        if step is EpochPhase.DECIDE:
            fragile.kill()
            raise OSError("killed")

    feed.add(*rows([1, 12], v=1))
    with pytest.raises(sj.UnsettledError, match="'results1'"):
        run(lose_postgres)
    assert in_kafka() == ["1"]
    fragile.start()
    feed.add(*rows([13, 14, 25], v=1))
    with pytest.raises(OSError, match="killed"):
        run(lose_postgres_and_die)
    assert in_kafka() == ["1"]
    with pytest.raises(sj.AnalysisError, match="cannot use its table"):
        run()
    assert in_kafka() == ["1", "3"]
    fragile.start()
    run()
    assert in_kafka() == ["1", "3"]
    assert sorted(fragile.psql(dsn, "SELECT n FROM out")) == [["1"], ["3"]]
