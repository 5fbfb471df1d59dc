"""A query begins behind a Spark query that has read Kafka, and the other way around: each message once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.exporting import export_checkpoint
from sparkjet.storage.posix_directory import PosixDirectory
from tests.sources.feed import options, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.long
EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


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


def test_open_windows_are_rebuilt_from_where_the_oldest_began(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path
) -> None:
    """The refusal says how many rows that is; Spark's results and ours are those of all rows, each once."""
    sj.register_sources(spark)
    topic, old, home = kafka.topic(partitions=2), tmp_path / "old", tmp_path / "home"
    every = options(kafka, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    stream = spark.readStream.format("sparkjet-kafka").options(**every).load()
    stream = stream.selectExpr("cast(cast(value AS string) AS int) AS v").selectExpr("v", "timestamp_seconds(v) AS ts")
    sent: list[int] = []
    found: list[tuple[int, int]] = []

    def messages(*numbers: int) -> None:
        for place, number in enumerate(numbers):
            send(kafka, topic, b"%d" % number, partition=place % 2)
        sent.extend(numbers)

    def write(batch: DataFrame, _: int) -> None:
        found.extend((row.at, row.n) for row in batch.selectExpr("cast(window.end AS long) AS at", "n").collect())

    # Out of order by up to 25 seconds.
    messages(*(1_700_000_000 + time // 2 * 4 - 25 * (time % 3 == 0) for time in range(60)))
    windows = stream.withWatermark("ts", "30 seconds").groupBy(F.window("ts", "20 seconds", "10 seconds"))
    writer = windows.agg(F.sum("v").alias("n")).writeStream.foreachBatch(write)
    writer.option("checkpointLocation", str(old)).trigger(availableNow=True).start().awaitTermination()
    assert found

    def adopt(**more: str) -> None:
        ours = sj.stream(stream).withWatermark("ts", "30 seconds").groupBy(sj.window("ts", "20 seconds", "10 seconds"))
        adopting = ours.agg(F.sum("v").alias("n")).writeStream.foreachBatch(write)
        adopting.options(checkpointLocation=home, adopt=old, **more).trigger(availableNow=True)
        adopting.start().awaitTermination()

    with pytest.raises(sj.AnalysisError, match=r"open windows are rebuilt from (20|30|40) rows"):
        adopt()
    messages(*(1_700_000_200 + time for time in range(40)), 1_700_009_999, 1_700_009_999)
    adopt(adoptReplay="true")
    expected: dict[int, int] = {}
    for each in sent[:-2]:
        for end in (each // 10 * 10 + 10, each // 10 * 10 + 20):
            expected[end] = expected.get(end, 0) + each
    assert sorted(found) == sorted(expected.items())


@pytest.mark.parametrize("kept", [None, "0", "clicks"])
def test_partitions_that_have_come_since_are_read_from_their_beginning(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path, kept: str | None
) -> None:
    """Also where all that was read is read again: Spark's source keeps its beginning, by its number or its name."""
    sj.register_sources(spark)
    topic, old = kafka.topic(partitions=1), tmp_path / "old"
    found: dict[int, int] = {}

    def stream() -> DataFrame:
        reader = spark.readStream.format("sparkjet-kafka")
        reader = reader.name("clicks") if kept == "clicks" else reader
        every = reader.options(**options(kafka, subscribe=topic, startingOffsets="earliest")).load()
        return every.selectExpr("timestamp_seconds(cast(cast(value AS string) AS int)) AS ts")

    def messages(*numbers: int, partition: int = 0) -> None:
        for number in numbers:
            send(kafka, topic, b"%d" % number, partition=partition)

    def write(batch: DataFrame, _: int) -> None:
        rows = batch.selectExpr("cast(window.end AS long) AS at", "count AS n").collect()
        found.update((row.at, row.n) for row in rows)

    def of_spark() -> None:
        windows = stream().withWatermark("ts", "1 second").groupBy(F.window("ts", "10 seconds")).count()
        writer = windows.writeStream.foreachBatch(write).option("checkpointLocation", str(old))
        writer.trigger(availableNow=True).start().awaitTermination()

    if kept == "clicks":
        spark.conf.set(EVOLUTION, "true")
    try:
        # Behind the first ones no window is open, unless Spark's source has kept where it began.
        messages(1 if kept is None else 31)
        of_spark()
        kafka.grow(topic, 2)
        messages(32, 33, 34, partition=1)
        messages(35)
        for _ in range(2):
            of_spark()
        if kept is not None:
            (old / "sources" / kept).mkdir(parents=True, exist_ok=True)
            (old / "sources" / kept / "0").write_bytes(b'\0v1\n{"%s":{"0":0}}' % topic.encode())
        messages(60)
        messages(60, partition=1)
        found.clear()
        ours = sj.stream(stream()).withWatermark("ts", "1 second").groupBy(sj.window("ts", "10 seconds")).count()
        writer = ours.writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.options(checkpointLocation=tmp_path / "home", adopt=old, adoptReplay="true").start().awaitTermination()
    finally:
        spark.conf.unset(EVOLUTION)
    assert found == {40: 4 if kept is None else 5}
