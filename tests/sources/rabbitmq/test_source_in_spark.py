"""The RabbitMQ source in sparkjet's engine: runs, restarts, substreams, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import sparkjet as sj
from tests.sources.rabbitmq.messages import ids, ready, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.rabbitmq import RabbitServer


def table(spark: SparkSession, server: RabbitServer, *queues: str, **given: Any) -> DataFrame:
    """A stream of queues."""
    sj.register_sources(spark)
    reader = spark.readStream.format("sparkjet-rabbitmq").option("host", "127.0.0.1").option("port", server.port)
    return reader.option("queues", ",".join(queues)).options(**given).load()


def read(df: DataFrame, home: Path, **options: Any) -> None:
    """Run what is there into files, and end."""
    stream = sj.stream(df.select("message_id", "queue", F.col("body").cast("string")))
    writer = stream.writeStream.format("files").option("path", str(home / "out"))
    query = (
        writer.option("checkpointLocation", str(home / "home")).options(**options).trigger(availableNow=True).start()
    )
    query.awaitTermination()


def written(home: Path) -> list[str]:
    rows = sj.read_files(str(home / "out")).collect()
    assert all(row["body"] == f"body of {row['message_id']}" for row in rows)
    return sorted((row["message_id"] for row in rows), key=lambda each: int(each[1:]))


def test_each_message_is_written_once_and_acknowledged(
    spark: SparkSession, rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    queues = rabbitmq.queue(), rabbitmq.queue(quorum=True)
    for queue, first in zip(queues, (0, 500), strict=True):
        send(rabbitmq, queue, *ids(first, first + 500))
    df = table(spark, rabbitmq, *queues, maxMessagesPerTrigger=300)
    read(df, tmp_path)
    assert written(tmp_path) == ids(0, 1000)
    assert ready(rabbitmq, *queues) == [0, 0]
    send(rabbitmq, queues[0], *ids(1000, 1010))
    read(df, tmp_path)
    assert written(tmp_path) == ids(0, 1010)
    assert ready(rabbitmq, *queues) == [0, 0]
