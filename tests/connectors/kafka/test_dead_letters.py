"""Dead letters of messages: from a topic, and into one with the headers of Kafka Streams' dead letter queue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from tests.protocol.kafka.checks import committed
from tests.sources.feed import options, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.kafka import KafkaServer


def letters(frame: DataFrame) -> Any:
    return sj.stream(frame).divert(errors=True).selectExpr("CAST(CAST(value AS STRING) AS INT) AS n").deadLetters


def headers(row: Any) -> dict[str, Any]:
    return {each.key: None if each.value is None else bytes(each.value).decode() for each in row.headers}


@pytest.mark.crash
@pytest.mark.interpreted
def test_a_message_stays_as_it_is_and_gets_headers(spark: SparkSession) -> None:
    kept = [("mine", bytearray(b"1"))]
    given = [(b"k", b"x", "trades", 3, 17, kept), (None, b"y", "trades", 0, 1, None)]
    schema = "key binary, value binary, topic string, partition int, offset long"
    schema += ", headers array<struct<key: string, value: binary>>"
    found = letters(spark.createDataFrame(given, schema)).kafkaRecords().toDF().orderBy("value").collect()
    assert [(row.key and bytes(row.key), bytes(row.value)) for row in found] == [(b"k", b"x"), (None, b"y")]
    known = headers(found[0])
    assert list(known) == [
        *("mine", "__streams.errors.exception", "__streams.errors.message", "__streams.errors.stacktrace"),
        *("__streams.errors.topic", "__streams.errors.partition", "__streams.errors.offset"),
        *("sparkjet.errors.stage", "sparkjet.errors.substream", "sparkjet.errors.epoch", "sparkjet.errors.outputs"),
    ]
    assert known["__streams.errors.exception"] == "CAST_INVALID_INPUT"
    assert "'x'" in known["__streams.errors.message"]
    assert (known["__streams.errors.partition"], known["__streams.errors.offset"]) == ("3", "17")
    assert (known["sparkjet.errors.substream"], known["sparkjet.errors.epoch"]) == (None, "0")


def test_what_is_not_a_message_is_json_and_what_is_not_a_dead_letter_is_refused(spark: SparkSession) -> None:
    found = letters(spark.createDataFrame([("x", 1)], "value string, n int").withColumnRenamed("n", "m"))
    assert found.kafkaRecords().columns == ["value", "headers"]
    rows = sj.stream(spark.createDataFrame([("x", 1)], "text string, n int")).divert(errors=True)
    (row,) = rows.selectExpr("CAST(text AS INT)").deadLetters.kafkaRecords().toDF().collect()
    assert bytes(row.value) == b'{"text":"x","n":1}'
    with pytest.raises(sj.AnalysisError, match="column '_stage' is gone"):
        found.drop("_stage").kafkaRecords()


def test_a_record_that_could_not_be_decoded_goes_back_as_it_came(spark: SparkSession) -> None:
    whole, undecoded = ((1,), None), (None, (7, "value: cut short", b"k", b"\xff"))
    given = [(*value, "trades", 3, offset) for offset, value in enumerate((whole, undecoded))]
    told = "malformed struct<schemaId: int, message: string, key: binary, value: binary>"
    rows = spark.createDataFrame(given, f"value struct<n: int>, {told}, topic string, partition int, offset long")
    decoded = sj.stream(rows).divert(errors=True).select("value.n")
    assert [row.n for row in decoded.toDF().collect()] == [1]
    (letter,) = decoded.deadLetters.toDF().collect()
    assert (letter._stage.partition(" ")[0], letter._error) == ("where", "USER_RAISED_EXCEPTION")
    assert "value: cut short" in letter._message
    (row,) = decoded.deadLetters.kafkaRecords().toDF().collect()
    assert (bytes(row.key), bytes(row.value)) == (b"k", b"\xff")
    assert headers(row)["__streams.errors.offset"] == "1"
    # Whole ones that fail later, with what was decoded.
    failing = sj.stream(rows).divert(errors=True).selectExpr("IF(value.n = 1, raise_error('x'), 1)").deadLetters
    found = failing.kafkaRecords().toDF().orderBy("value").collect()
    assert [bytes(row.value)[:14] for row in found] == [b'{"value":{"n":', b"\xff"]


@pytest.mark.crash
def test_into_topics_of_a_broker(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> None:
    source, results, dead = "trades", kafka.topic(max_message_bytes="2000"), kafka.topic()
    given = [(value, source, 0, offset) for offset, value in enumerate(("1", "n/a", "900", "3"))]
    schema = "value string, topic string, partition int, offset long"
    spark.createDataFrame(given, schema).coalesce(1).write.parquet(str(tmp_path / "in"))
    read = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
    prices = sj.stream(read).divert(errors=True).withColumn("n", F.expr("CAST(value AS INT)"))
    # What is too long for the topic is refused by the sink.
    rows = prices.select(F.repeat(F.lit("12345"), F.col("n")).alias("value"))
    client = {f"kafka.{name}": value for name, value in kafka.client().items()}
    into = rows.writeStream.format("kafka").options(**client, topic=results, checkpointLocation=str(tmp_path / "home"))
    letters = prices.deadLetters.kafkaRecords().writeStream.format("kafka").options(**client, topic=dead)
    sj.start(into.trigger(availableNow=True), deadLetters=letters).awaitTermination()
    assert sorted(message.value() for message in committed(kafka, results)) == [b"12345", b"12345" * 3]
    found = {message.value(): dict(message.headers() or ()) for message in committed(kafka, dead)}
    assert found.keys() == {b"n/a", b"900"}
    streams = "__streams.errors"
    assert found[b"n/a"][f"{streams}.exception"] == b"CAST_INVALID_INPUT"
    known = [found[b"900"][f"{streams}.{name}"] for name in ("topic", "partition", "offset", "exception")]
    assert known == [source.encode(), b"0", b"2", b"SPARKJET_SINK.REFUSED_ROWS"]
    assert found[b"900"]["sparkjet.errors.stage"] == b"sink results"
    assert b"MSG_SIZE_TOO_LARGE" in (found[b"900"][f"{streams}.message"] or b"")


@pytest.mark.long
def test_of_ten_thousand_messages_one_that_does_not_decode_keeps_its_place(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path
) -> None:
    bad = 2_345
    topic = kafka.topic(partitions=2)
    for partition in (0, 1):
        values = [b"%d" % number if (partition, number) != (1, bad) else b"\xff{" for number in range(5_000)]
        send(kafka, topic, *values, partition=partition)
    sj.register_sources(spark)
    every = options(kafka, startingOffsets="earliest", subscribe=topic, maxOffsetsPerTrigger="4000")
    read = spark.readStream.format("sparkjet-kafka").options(**every).load()
    found = sj.stream(read).divert(errors=True).withColumn("n", F.expr("CAST(CAST(value AS STRING) AS INT)"))
    writer = found.select("partition", "n").writeStream.format("parquet").option("path", tmp_path / "out")
    writer = writer.option("checkpointLocation", tmp_path / "home").option("deadLettersPath", tmp_path / "dead")
    writer.trigger(availableNow=True).start().awaitTermination()
    whole = {(partition, number) for partition in (0, 1) for number in range(5_000)}
    arrived = [tuple(row) for row in sj.read_files(tmp_path / "out").collect()]
    assert (len(arrived), {*arrived}) == (9_999, whole - {(1, bad)})
    (letter,) = sj.read_files(tmp_path / "dead").collect()
    assert (letter.topic, letter.partition, letter.offset, bytes(letter.value)) == (topic, 1, bad, b"\xff{")
