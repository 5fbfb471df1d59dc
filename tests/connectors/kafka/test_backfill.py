"""Backfills of topics on a real broker: a table of the topic's past, then the topic; what is in neither is counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from tests.connectors.kafka.test_source_in_spark import T0, at, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.writer import StreamWriter
    from tests.servers.kafka import KafkaServer


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    """Two partitions, one three minutes behind the other, with an event a second."""
    topic = kafka.topic(partitions=2)
    at(kafka, topic, 0, *range(400))
    at(kafka, topic, 1, *range(-180, 200))
    return topic


def columns(rows: DataFrame) -> DataFrame:
    return rows.select("topic", "partition", "offset", F.col("timestamp").alias("ts"))


def counts(history: DataFrame, live: DataFrame, place: Path) -> StreamWriter:
    stream = sj.backfill(history, columns(live), ("topic", "partition", "offset"), "ts", bucket="2 minutes")
    windows = stream.withWatermark("ts", "10 seconds").groupBy(sj.window("ts", "1 minute"), "partition").count()
    found = windows.select(F.unix_seconds("window.start").alias("start"), "partition", "count")
    writer = (
        found.writeStream.format("files").option("path", place / "out").option("checkpointLocation", place / "home")
    )
    return writer.option("closeWindowsAtEnd", True).trigger(availableNow=True)


def test_a_topic_goes_on_where_its_table_ends(
    spark: SparkSession, kafka: KafkaServer, topic: str, tmp_path: Path
) -> None:
    live = table(spark, kafka, subscribe=topic)
    query = columns(live).where("offset < 250 + partition * 50").writeStream.format("parquet")
    query.option("path", f"{tmp_path}/table").option("checkpointLocation", f"{tmp_path}/archive").trigger(
        availableNow=True
    ).start().awaitTermination()
    history = spark.read.parquet(f"{tmp_path}/table")
    counts(history, live, tmp_path).start().awaitTermination()
    found = {(row["start"], row["partition"]): row["count"] for row in sj.read_files(tmp_path / "out").collect()}
    seconds = [(0, each) for each in range(400)] + [(1, each) for each in range(-180, 200)]
    assert found == Counter(((T0 // 1000 + each) // 60 * 60, part) for part, each in seconds)


def test_what_is_in_neither_is_counted(spark: SparkSession, kafka: KafkaServer, topic: str, tmp_path: Path) -> None:
    history = columns(
        spark.createDataFrame(
            [(topic, 0, 99, 0), (topic, 1, 379, 0)], "topic string, partition int, offset long, t int"
        ).withColumn("timestamp", F.timestamp_seconds("t"))
    )
    starting = f'{{"{topic}": {{"0": 130, "1": 380}}}}'
    live = table(spark, kafka, subscribe=topic, startingOffsets=starting)
    said = rf"up to 30 rows are in neither \({topic}/0: history ends at 99, the stream begins at 130\)"
    with pytest.raises(sj.AnalysisError, match=said):
        counts(history, live, tmp_path).start()
