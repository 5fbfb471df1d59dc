"""The RabbitMQ sink in sparkjet's engine: what is published twice has one id, by which a reader drops it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.errors import UnsettledError
from tests.connectors.rabbitmq.messages import held
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.writer import StreamWriter
    from tests.servers.rabbitmq import RabbitServer

BATCH = 40
EPOCHS = 3

pytestmark = pytest.mark.crash


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """Some epochs of rows."""
    feed = Feed(tmp_path / "feed")
    for _ in range(EPOCHS):
        feed.add(*rows(range(BATCH)))
    return feed


def into(spark: SparkSession, server: RabbitServer, queue: str, feed: Feed) -> StreamWriter:
    """A writer of the rows' numbers, to the end of what is there."""
    messages = sj.stream(feed.read(spark)).select(F.col("id").cast("string").alias("body"))
    writer = messages.writeStream.format("rabbitmq").option("host", "127.0.0.1").option("port", server.port)
    writer = writer.option("routingKey", queue).option("checkpointLocation", str(feed.directory.with_name("home")))
    return writer.trigger(availableNow=True)


def test_what_is_published_twice_is_dropped_by_its_id(
    spark: SparkSession, rabbitmq: RabbitServer, tmp_path: Path, feed: Feed
) -> None:
    queue, failed = rabbitmq.queue(), []

    def fail_once(phase: EpochPhase, epoch: int) -> None:
        if phase is EpochPhase.COMMITTING and not failed:
            failed.append(epoch)
            raise RuntimeError("published, and not marked")

    query = into(spark, rabbitmq, queue, feed).onEpochPhase(fail_once).start()
    query.awaitTermination()
    assert query.guarantees == {"results": "at-least-once"}
    assert failed
    found = held(rabbitmq, queue)
    assert len(found) == (EPOCHS + 1) * BATCH
    by_id = {properties.message_id: body for properties, body in found}
    assert sorted(int(body) for body in by_id.values()) == list(range(EPOCHS * BATCH))

    sj.register_sources(spark)
    source = spark.readStream.format("sparkjet-rabbitmq").option("host", "127.0.0.1").option("port", rabbitmq.port)
    again = sj.stream(source.option("queues", queue).load()).dropDuplicates(["message_id"])
    writer = again.select(F.col("body").cast("string").cast("long").alias("id")).writeStream.format("files")
    writer = writer.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "reader"))
    writer.trigger(availableNow=True).start().awaitTermination()
    read = sj.read_files(str(tmp_path / "out")).collect()
    assert sorted(row["id"] for row in read) == list(range(EPOCHS * BATCH))


def test_rows_without_a_queue_wait_for_it(spark: SparkSession, rabbitmq: RabbitServer, feed: Feed) -> None:
    queue = rabbitmq.queue()

    def delete(phase: EpochPhase, epoch: int) -> None:
        if phase is EpochPhase.DECIDE and epoch == EPOCHS:
            connection = rabbitmq.connection()
            connection.channel().queue_delete(queue)
            connection.close()

    writer = into(spark, rabbitmq, queue, feed).onEpochPhase(delete)
    with pytest.raises(UnsettledError, match=r"no queue takes message .* Declare a queue of that name"):
        writer.start().awaitTermination()
    connection = rabbitmq.connection()
    connection.channel().queue_declare(queue, durable=True)
    connection.close()
    into(spark, rabbitmq, queue, feed).start().awaitTermination()
    # Those of earlier epochs went with the first queue.
    assert sorted(int(body) for _, body in held(rabbitmq, queue)) == list(range((EPOCHS - 1) * BATCH, EPOCHS * BATCH))
