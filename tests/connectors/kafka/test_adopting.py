"""A query begins behind a Spark query that has read Kafka, and the other way around: each message once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import sparkjet as sj
from sparkjet.engine.exporting import export_checkpoint
from sparkjet.storage.posix_directory import PosixDirectory
from tests.sources.feed import options, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.long


def test_each_message_is_read_once_there_and_back(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> None:
    sj.register_sources(spark)
    topic, old, home = kafka.topic(partitions=2), tmp_path / "old", tmp_path / "home"
    every = options(kafka, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    stream = (
        spark.readStream.format("sparkjet-kafka")
        .options(**every)
        .load()
        .selectExpr("cast(cast(value AS string) AS int) AS v")
    )
    seen: list[int] = []

    def messages(*numbers: int) -> None:
        for number in numbers:
            send(kafka, topic, b"%d" % number, partition=number % 2)

    def write(batch: DataFrame, _: int) -> None:
        found = [row.v for row in batch.collect()]
        if 9 in found and not home.exists():
            raise ValueError
        seen.extend(found)

    def of_spark(checkpoint: Path) -> None:
        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    messages(*range(10))
    with pytest.raises(StreamingQueryException):
        of_spark(old)
    # The last batch is planned and not done.
    assert sorted(seen) == [*range(8)]
    assert {path.name for path in (old / "offsets").iterdir()} > {path.name for path in (old / "commits").iterdir()}
    # As Spark's Kafka source keeps where it has begun.
    (old / "sources" / "0").mkdir(parents=True, exist_ok=True)
    (old / "sources" / "0" / "0").write_bytes(b'\0v1\n{"%s":{"0":0,"1":0}}' % topic.encode())
    messages(10, 11)
    writer = sj.stream(stream).writeStream.foreachBatch(write).options(checkpointLocation=home, adopt=old)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(seen) == [*range(12)]
    messages(12)
    export_checkpoint(PosixDirectory(home), PosixDirectory(tmp_path / "new"))
    of_spark(tmp_path / "new")
    assert sorted(seen) == [*range(13)]
