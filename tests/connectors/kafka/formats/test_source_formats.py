"""Formats of the Kafka source in Spark: columns, schemas that change in mid-stream, and records that do not decode."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from tests.servers.schema_registry import SchemaRegistry
from tests.sources.feed import options, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.kafka import KafkaServer

AT = dt.datetime(2026, 3, 1, 10, tzinfo=dt.timezone.utc)
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]


def order(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


def avro(number: int, schema: dict[str, Any], **value: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + data.getvalue()


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry(user="reader:let-me-in") as registry:
        yield registry


def loaded(spark: SparkSession, kafka: KafkaServer, registry: SchemaRegistry, topic: str, **more: str) -> DataFrame:
    sj.register_sources(spark)
    given = {"startingOffsets": "earliest", "subscribe": topic, "kafkaConsumer.pollTimeoutMs": "20000"}
    access = {"url": registry.url, "username": "reader", "password": "let-me-in"}
    access = {f"schemaRegistry.{name}": text for name, text in access.items()}
    return spark.readStream.format("sparkjet-kafka").options(**{**options(kafka, **given), **access, **more}).load()


def test_a_schema_changes_in_mid_stream(
    spark: SparkSession, kafka: KafkaServer, registry: SchemaRegistry, tmp_path: Path
) -> None:
    topic = kafka.topic()
    first = order(*FIELDS)
    number = registry.register(f"{topic}-value", first)
    given = {"value.format": "avro", "mode": "PERMISSIVE", "includeSchemaId": "true"}
    read = loaded(spark, kafka, registry, topic, **given)
    assert read.schema["value"].dataType.simpleString() == "struct<id:bigint,note:string,at:timestamp>"
    more, less = order(*FIELDS, {"name": "tip", "type": "double"}), order(FIELDS[0], FIELDS[2])
    other = order(FIELDS[0], FIELDS[1], {"name": "at", "type": "string"})
    send(kafka, topic, avro(number, first, id=1, note="a", at=AT), key=b"k")
    send(kafka, topic, avro(registry.register(f"{topic}-value", more), more, id=2, note="b", at=AT, tip=0.5))
    send(kafka, topic, avro(registry.register(f"{topic}-value", less), less, id=3, at=AT))
    wrong = avro(registry.register(f"{topic}-value", other), other, id=4, note="d", at="noon")
    send(kafka, topic, wrong, b"\xff{", None, key=b"k2")
    rows = sj.stream(read).divert(errors=True).where(F.col("value").isNotNull())
    rows = rows.select("offset", "value.id", "value.note", "value.at", "schemaId")
    writer = rows.writeStream.format("parquet").option("path", tmp_path / "out")
    writer = writer.option("checkpointLocation", tmp_path / "home").option("deadLettersPath", tmp_path / "dead")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    found = [tuple(row) for row in sj.read_files(tmp_path / "out").orderBy("offset").collect()]
    at = AT.astimezone().replace(tzinfo=None)
    assert found == [(0, 1, "a", at, 1), (1, 2, "b", at, 2), (2, 3, None, at, 3)]
    letters = sj.read_files(tmp_path / "dead").orderBy("offset").collect()
    assert [(row.offset, row.malformed.schemaId, row.schemaId, bytes(row.malformed.value)) for row in letters] == [
        (3, 4, 4, wrong),
        (4, None, None, b"\xff{"),
    ]
    assert letters[0].malformed.message == (
        "value: its schema differs: value.at is string, and is read as timestamp-millis"
    )
    assert letters[0].malformed.message in letters[0]._message
    assert bytes(letters[1].malformed.key) == b"k2"
    saved = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"let-me-in" not in saved


def test_a_record_that_does_not_decode_ends_the_query_and_is_named(
    spark: SparkSession, kafka: KafkaServer, registry: SchemaRegistry
) -> None:
    topic = kafka.topic()
    whole = b'{"op": "c", "after": {"id": 1, "at": "2026-03-01T10:00:00Z"}, "source": {"ts_ms": 5}}'
    send(kafka, topic, whole, None, whole.replace(b"1,", b"true,"), key=b'{"id": 1}')
    row = {"value.schema": "id bigint, at timestamp", "key.schema": "id bigint"}
    given = {"value.format": "debezium-json", "key.format": "debezium-json", **row, "maxOffsetsPerTrigger": "2"}
    read = loaded(spark, kafka, registry, topic, **given)
    assert read.schema["value"].dataType["source"].dataType["ts_ms"].dataType.simpleString() == "timestamp"
    name = f"changes_{topic}"
    rows = read.select("key.id", "value.op", "value.after.at")
    query = rows.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    with pytest.raises(
        Exception, match=rf"the record of {topic}-0 at 2 has a value that cannot be decoded: .* True is"
    ):
        query.awaitTermination()
    at = AT.astimezone().replace(tzinfo=None)
    assert [tuple(row) for row in spark.table(name).collect()] == [(1, "c", at), (1, None, None)]


def test_partitions_are_aligned_by_an_event_time_that_was_decoded(
    spark: SparkSession, kafka: KafkaServer, registry: SchemaRegistry, tmp_path: Path
) -> None:
    topic, schema = kafka.topic(partitions=2), order(*FIELDS)
    number = registry.register(f"{topic}-value", schema)
    for partition in range(2):
        # The second one is six hours ahead, and has a record that is none.
        times = [AT + dt.timedelta(hours=6 * partition, minutes=minute) for minute in range(20)]
        sent = [avro(number, schema, id=each, note=None, at=at) for each, at in enumerate(times)]
        send(kafka, topic, *sent[:10], *([b"none"] * partition), *sent[10:], partition=partition)
    given = {"value.format": "avro", "mode": "PERMISSIVE", "maxOffsetsPerTrigger": "8"}
    read = loaded(spark, kafka, registry, topic, maxWatermarkDrift="5 minutes", **given)
    rows = sj.stream(read).divert(errors=True)
    rows = rows.select("topic", "partition", "value.at").withWatermark("at", "0 seconds")
    writer = rows.groupBy(sj.window("at", "10 minutes")).count().writeStream.format("parquet")
    writer = writer.option("path", tmp_path / "out").option("closeWindowsAtEnd", True)
    writer = writer.option("checkpointLocation", tmp_path / "home").option("deadLettersPath", tmp_path / "dead")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    held = [each["substreams"][f"{topic}/1"]["heldBy"] for each in query.recentProgress if each["batchId"] is not None]
    # Not in the first batch, in which nothing is known, nor once the slow one has been read.
    assert held[:3] == [None, f"{topic}/0", f"{topic}/0"]
    assert held[-1] is None
    assert [row["count"] for row in sj.read_files(tmp_path / "out").collect()] == [10] * 4
    assert [row.offset for row in sj.read_files(tmp_path / "dead").collect()] == [10]


@pytest.mark.long
def test_a_registry_that_is_away_costs_no_record(
    spark: SparkSession, kafka: KafkaServer, registry: SchemaRegistry, tmp_path: Path
) -> None:
    topic, schema = kafka.topic(), order(*FIELDS)
    number = registry.register("orders", schema)
    send(kafka, topic, *(avro(number, schema, id=each, note=None, at=AT) for each in range(10)))
    given = {"value.format": "avro", "value.subject": "orders", "mode": "PERMISSIVE"}
    given["kafkaConsumer.pollTimeoutMs"] = "5000"
    read = loaded(spark, kafka, registry, topic, **given)
    rows = sj.stream(read).divert(errors=True).select("value.id")
    writer = rows.writeStream.format("parquet").option("path", tmp_path / "out")
    writer = writer.option("checkpointLocation", tmp_path / "home").option("deadLettersPath", tmp_path / "dead")
    registry.broken = 503
    with pytest.raises(
        Exception, match=r"cannot be asked for /schemas/ids/\d+: it answers 503 .*No record was skipped"
    ):
        writer.trigger(availableNow=True).start().awaitTermination()
    registry.broken = None
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(row.id for row in sj.read_files(tmp_path / "out").collect()) == [*range(10)]
    assert not any(progress["failedRows"] for progress in query.recentProgress)
