"""The Kafka source in Spark and in sparkjet's engine: batches, errors before the start, skew, restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import sparkjet as sj
from tests.sources.feed import options, send, transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.query import StreamingQuery
    from tests.servers.kafka import KafkaServer

T0 = 1_700_000_040_000
"""The beginning of a minute, in milliseconds."""
MINUTE = 60_000_000


def table(spark: SparkSession, server: KafkaServer, **given: str) -> DataFrame:
    """A stream of the source, from the beginning."""
    sj.register_sources(spark)
    every = options(server, **{"startingOffsets": "earliest", **given})
    return spark.readStream.format("sparkjet-kafka").options(**every).load()


def at(server: KafkaServer, topic: str, partition: int, *seconds: int) -> None:
    """Write a message for each of some event times, in seconds after T0."""
    for each in seconds:
        send(server, topic, b"%d" % each, partition=partition, timestamp=T0 + each * 1000)


def test_batches_of_spark_are_read_back_exactly(spark: SparkSession, kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=2)
    for partition in (0, 1):
        send(kafka, topic, *[b"%d" % number for number in range(300)], partition=partition, headers=[("h", b"x")])
    df = table(spark, kafka, subscribe=topic, maxOffsetsPerTrigger="400", includeHeaders="true")
    assert [name for name, _ in df.dtypes] == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    query = df.writeStream.format("memory").queryName("exactly").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    found = spark.table("exactly").select("partition", "offset", F.col("value").cast("string"), "headers").collect()
    assert len(found) == 600
    assert {(p, o, v) for p, o, v, _ in found} == {(p, n, str(n)) for p in (0, 1) for n in range(300)}
    assert found[0]["headers"][0].asDict() == {"key": "h", "value": bytearray(b"x")}
    assert [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]] == [400, 200]


def test_it_is_refused_by_load_and_no_plan_shows_a_password(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    sj.register_sources(spark)
    reader = spark.readStream.format("sparkjet-kafka").option("kafka.bootstrap.servers", "127.0.0.1:1")
    with pytest.raises(AnalysisException, match=r"startingOffsets=.*neither JSON nor a word"):
        reader.option("subscribe", "a").option("startingOffsets", "newest").load()
    df = (
        spark.readStream.format("sparkjet-kafka")
        .options(**{"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"})
        .options(**{"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"})
        .options(**{"kafka.sasl.username": "u", "kafka.sasl.password": "hunter2", "kafka.ssl.key.password": "hunter3"})
        .load()
    )
    df.explain(True)
    shown = capfd.readouterr().out
    # Plans do show options.
    assert "kafka.bootstrap.servers=127.0.0.1:1" in shown
    assert "kafka.sasl.password=***" in shown
    assert "hunter" not in shown + repr(df) + df._jdf.queryExecution().toString()


def test_partitions_are_the_substreams_by_default(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sj.register_sources(spark)
    reader = spark.readStream.format("sparkjet-kafka").option("kafka.bootstrap.servers", "127.0.0.1:1")
    df = reader.option("subscribe", "a").load()

    def watermark(frame: DataFrame, **given: str) -> tuple[tuple[str, ...], bool]:
        [each] = sj.stream(frame).withWatermark("timestamp", "1 second", **given)._feed.inputs
        return each.watermark.by, each.watermark.partitions

    assert watermark(df) == (("topic", "partition"), True)
    assert watermark(df.where("offset > 3").select("value", "timestamp", "partition", "topic"))[1]
    assert watermark(df, by="partition") == (("partition",), True)
    assert watermark(df, by="key") == (("key",), False)
    assert not caplog.messages
    # A column with only the same name does not count.
    other = df.withColumn("partition", F.crc32("value").cast("int"))
    assert watermark(other) == ((), False)
    assert watermark(other, by="partition") == (("partition",), False)
    caplog.clear()
    assert watermark(df.select("value", "timestamp")) == ((), False)
    assert "all partitions of sparkjet-kafka are one substream" in caplog.text
    with pytest.raises(
        sj.AnalysisError, match=r"carried\(without=\['q'\]\): the offsets of sparkjet-kafka have .* by part"
    ):
        sj.stream(df).withWatermark("timestamp", sj.carried(without=["q"]))
    files = spark.readStream.schema("timestamp timestamp").json(str(tmp_path))
    with pytest.raises(
        sj.AnalysisError, match=r"carried\(\) would wait forever: Spark's source 'json' has no watermark"
    ):
        sj.stream(files).withWatermark("timestamp", sj.carried())
    sj.stream(files).withWatermark("timestamp", sj.carried(otherwise=sj.limiting_lag(0)))


@pytest.mark.crash
def test_skew_loses_nothing_and_windows_close_when_they_should(spark: SparkSession, kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=4)
    ahead, quiet, hidden, added = (f"{topic}/{number}" for number in (0, 2, 3, 4))
    at(kafka, topic, 0, 0, 300, 600)
    at(kafka, topic, 1, 0, 30)
    opened = transaction(kafka, topic)
    opened.produce(topic, b"10", partition=3, timestamp=T0 + 10_000)
    assert opened.flush(30) == 0
    clock = sj.ManualClock((T0 + 1_000_000) * 1000)
    stream = sj.stream(table(spark, kafka, subscribe=topic))
    minutes = stream.withWatermark("timestamp", "0 seconds", idleTimeout="1 minute").groupBy(
        sj.window("timestamp", "1 minute")
    )
    query = minutes.count().writeStream.format("memory").queryName("skewed").clock(clock).start()

    def closed() -> dict[int, int]:
        query.processAllAvailable()
        rows = spark.table("skewed").selectExpr("unix_millis(window.start) AS start", "count").collect()
        return {(row["start"] - T0) // 60_000: row["count"] for row in rows}

    def progress_of(name: str) -> dict[str, object]:
        progress = query.lastProgress
        assert progress is not None
        assert progress["lateRows"]["total"] == 0
        return dict(progress["substreams"][name])

    try:
        # Partitions without rows are waited for like the others.
        assert closed() == {}
        assert progress_of(quiet)["watermark"] is None
        clock.advance(MINUTE)
        assert closed() == {}
        # A partition with uncommitted rows is not at its end, however long it is silent.
        assert not progress_of(hidden)["idle"]
        opened.commit_transaction(30)
        kafka.wait(lambda: closed() == {} and progress_of(hidden)["watermark"] is not None, "the commit")
        at(kafka, topic, 1, 90)
        assert closed() == {}
        kafka.grow(topic, 5)
        at(kafka, topic, 4, 20)
        kafka.wait(lambda: closed() == {} and added in (query.lastProgress or {})["substreams"], "the new partition")
        at(kafka, topic, 3, 700)
        at(kafka, topic, 1, 600)
        at(kafka, topic, 0, 610)
        assert closed() == {}
        assert progress_of(added)["holdsWatermark"]
        assert progress_of(quiet)["idle"]
        at(kafka, topic, 4, 130)
        assert closed() == {0: 5, 1: 1}
        clock.advance(MINUTE)
        # All partitions are silent and at their end.
        assert closed() == {0: 5, 1: 1, 2: 1, 5: 1, 10: 3}
        assert progress_of(ahead)["idle"]
    finally:
        query.stop()


@pytest.mark.long
def test_a_restart_goes_on_at_the_same_offsets(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> None:
    topic = kafka.topic(partitions=2)

    def run(*, last: bool) -> None:
        stream = sj.stream(table(spark, kafka, subscribe=topic, maxOffsetsPerTrigger="3"))
        result = stream.withWatermark("timestamp", "0 seconds").groupBy(sj.window("timestamp", "1 minute")).count()
        writer = result.writeStream.format("files").option("path", str(tmp_path / "out")).option("fileFormat", "json")
        writer = writer.option("checkpointLocation", str(tmp_path / "home")).trigger(availableNow=True)
        query = writer.option("closeWindowsAtEnd", str(last).lower()).start()
        assert query.awaitTermination(120)

    at(kafka, topic, 0, 1, 2, 3, 70)
    at(kafka, topic, 1, 4, 80)
    run(last=False)
    at(kafka, topic, 0, 71, 130)
    kafka.grow(topic, 3)
    at(kafka, topic, 2, 131)
    run(last=False)
    at(kafka, topic, 1, 132)
    run(last=True)
    found = sj.read_files(str(tmp_path / "out")).selectExpr("unix_millis(window.start) AS s", "count").collect()
    assert {(row["s"] - T0) // 60_000: row["count"] for row in found} == {0: 4, 1: 3, 2: 3}
    assert len(found) == 3


def test_a_stream_that_ends_by_itself_says_why(spark: SparkSession, kafka: KafkaServer) -> None:
    df = table(spark, kafka, subscribe="nowhere")
    query = df.writeStream.format("noop").start()
    with pytest.raises(Exception, match=r"subscribe names nowhere, which the cluster does not have"):
        query.awaitTermination(60)


@pytest.mark.crash
def test_a_recreated_topic_is_read_on_and_holds_no_watermark(spark: SparkSession, kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=2)
    at(kafka, topic, 0, 0, 70, 71)
    at(kafka, topic, 1, 0, 70)
    clock = sj.ManualClock((T0 + 1_000_000) * 1000)
    stream = sj.stream(table(spark, kafka, subscribe=topic, failOnDataLoss="false"))
    minutes = stream.withWatermark("timestamp", "0 seconds", idleTimeout="1 minute").groupBy(
        sj.window("timestamp", "1 minute")
    )
    query = minutes.count().writeStream.format("memory").queryName("anew").clock(clock).start()

    def closed() -> dict[int, int]:
        query.processAllAvailable()
        rows = spark.table("anew").selectExpr("unix_millis(window.start) AS start", "count").collect()
        return {(row["start"] - T0) // 60_000: row["count"] for row in rows}

    try:
        assert closed() == {0: 2}
        kafka.drop(topic)
        kafka.topic(topic, partitions=2)
        at(kafka, topic, 0, 130, 190)
        at(kafka, topic, 1, 72)
        kafka.wait(lambda: closed() == {0: 2} and read_up_to(query, topic) == {"0": 2, "1": 1}, "the new records")
        clock.advance(MINUTE)
        # Both are at their end: they go idle, and nothing holds the watermark back.
        kafka.wait(lambda: closed() == {0: 2, 1: 4, 2: 1}, "the windows to close")
    finally:
        query.stop()


def read_up_to(query: StreamingQuery, topic: str) -> dict[str, int]:
    """The offset of each partition that Spark has reached."""
    progress = query.lastProgress
    reached = None if progress is None else json.loads(progress.sources[0].endOffset)
    return dict((reached or {}).get(topic, {}))
