"""Messages that others write: Confluent's serializers, and Debezium from a real PostgreSQL, through a real broker."""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory
from pyspark.sql import functions as F

import sparkjet as sj
from tests.connectors.kafka.formats.test_protobuf import field, file
from tests.servers.debezium import Debezium
from tests.servers.fixtures import available
from tests.servers.postgres import NoServerError, PostgresServer, binaries
from tests.servers.schema_registry import SchemaRegistry
from tests.sources.feed import options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.long

PRICE = {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}
TABLE = """
CREATE TABLE items (
    id bigint PRIMARY KEY, name text, price numeric(10, 2), free numeric, made date, at timestamp, seen timestamptz,
    data bytea, tags text[], flag boolean, code uuid, share double precision
);
ALTER TABLE items REPLICA IDENTITY FULL;
"""
ROW = "id bigint, name string, price decimal(10,2), free string, made date, at timestamp_ntz, seen timestamp, "
ROW += "data binary, tags array<string>, flag boolean, code string, share double"
CODE = "00000000-0000-0000-0000-000000000007"
INSERTED = {
    "id": 1,
    "name": "é",
    "price": Decimal("12.34"),
    "free": "0.001",
    "made": dt.date(2026, 3, 1),
    "at": dt.datetime(2026, 3, 1, 10, 0, 0, 1),
    "data": b"\xff",
    "tags": ["a", None],
    "flag": True,
    "code": CODE,
    "share": 0.1,
}


@contextmanager
def logical() -> Iterator[PostgresServer]:
    programs = available(binaries, NoServerError)
    with PostgresServer(programs=programs, settings={"wal_level": "logical"}) as server:
        yield server


def arrived(kafka: KafkaServer, topic: str, count: int, debezium: Debezium) -> None:
    """Wait for some messages."""
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "enable.auto.commit": False})
    reader.assign([TopicPartition(topic, 0, 0)])
    try:
        got = 0
        for _ in range(600):
            if not debezium.runs:
                break
            got += sum(1 for message in reader.consume(count - got, 0.2) if message.error() is None)
            if got >= count:
                return
    finally:
        reader.close()
    message = f"{got} of {count}:\n{debezium.log()[-5000:]}"
    raise AssertionError(message)


def rows_of(read: DataFrame, tmp_path: Path) -> list[Any]:
    writer = sj.stream(read).divert(errors=True).writeStream.format("parquet").option("path", tmp_path / "out")
    writer = writer.option("checkpointLocation", tmp_path / "home").option("deadLettersPath", tmp_path / "dead")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    if any(progress["failedRows"] for progress in query.recentProgress):
        wrong = [(row.offset, row.malformed.message) for row in sj.read_files(tmp_path / "dead").collect()]
        raise AssertionError(wrong)
    return sj.read_files(tmp_path / "out").orderBy("offset").collect()


def test_confluents_serializers(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> None:
    # Not at the top: the extras of confluent-kafka bring five packages that nothing else needs.
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    topic, bare = kafka.topic(), kafka.topic()
    order = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, PRICE]}
    more = {**order, "fields": [*order["fields"], {"name": "tip", "type": "double", "default": 0.0}]}
    made = file(field("id", "int64"), field("note", "string", 2))
    pool = descriptor_pool.DescriptorPool()
    for each in made.dependency:
        pool.AddSerializedFile(descriptor_pool.Default().FindFileByName(each).serialized_pb)
    pool.AddSerializedFile(made.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    producer = Producer(kafka.client())
    # Of descriptors in base 64, which this serializer registers, a registry makes those that it is asked for.
    with SchemaRegistry(serialized=base64.b64decode) as registry:
        client = SchemaRegistryClient({"url": registry.url})
        for schema, value in ((order, {}), (more, {"tip": 0.5})):
            serializer = AvroSerializer(client, json.dumps(schema))
            context = SerializationContext(topic, MessageField.VALUE)
            producer.produce(topic, serializer({"id": 1, "price": Decimal("12.34"), **value}, context))
        proto = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
        producer.produce(bare, proto(kind(id=5, note="a"), SerializationContext(bare, MessageField.VALUE)))
        producer.flush()
        sj.register_sources(spark)
        given = {"startingOffsets": "earliest", "schemaRegistry.url": registry.url, "mode": "PERMISSIVE"}
        reads = spark.readStream.format("sparkjet-kafka").options(**{**options(kafka), **given})
        avro = reads.option("subscribe", topic).option("value.format", "avro").option("value.version", "1").load()
        rows = rows_of(avro, tmp_path / "avro")
        assert [row.value.asDict() for row in rows] == [{"id": 1, "price": Decimal("12.34")}] * 2
        messages = reads.option("subscribe", bare).option("value.format", "protobuf").option("value.version", "latest")
        (row,) = rows_of(messages.load(), tmp_path / "protobuf")
        assert row.value.asDict() == {"id": 5, "note": "a"}


@pytest.mark.parametrize("schemas", [True, False])
def test_debezium_of_a_real_database(spark: SparkSession, kafka: KafkaServer, tmp_path: Path, schemas: bool) -> None:
    prefix = f"d{uuid.uuid4().hex[:8]}"
    topic = kafka.topic(f"{prefix}.public.items")
    sj.register_sources(spark)
    # Without its schema nothing says what a number counts.
    settings = {} if schemas else {"decimal.handling.mode": "string", "time.precision.mode": "isostring"}
    with logical() as server:
        dsn = server.database("shop")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(TABLE)
            every = "1, 'é', 12.34, 0.001, '2026-03-01', '2026-03-01 10:00:00.000001', '2026-03-01 11:00:00+01', "
            every += f"'\\xff', ARRAY['a', NULL], true, '{CODE}', 0.1"
            connection.execute(f"INSERT INTO items VALUES ({every})")
            with Debezium(kafka, dsn, prefix, schemas=schemas, settings=settings) as debezium:
                arrived(kafka, topic, 1, debezium)
                connection.execute("INSERT INTO items (id, name) VALUES (2, 'b')")
                connection.execute("UPDATE items SET name = 'c' WHERE id = 2")
                # A column that the query does not know, and one of its own that is gone.
                connection.execute("ALTER TABLE items ADD extra int DEFAULT 5, DROP share")
                connection.execute("UPDATE items SET extra = 6 WHERE id = 2")
                connection.execute("DELETE FROM items WHERE id = 2")
                connection.execute("TRUNCATE items")
                # A tombstone comes behind a deletion; of a truncation nothing by default.
                arrived(kafka, topic, 6, debezium)
    given = {"value.format": "debezium-json", "value.schema": ROW, "key.format": "debezium-json", "mode": "PERMISSIVE"}
    given |= {"key.schema": "id bigint", "startingOffsets": "earliest", "subscribe": topic}
    read = spark.readStream.format("sparkjet-kafka").options(**{**options(kafka), **given}).load()
    rows = rows_of(read.withColumn("seen", F.col("value.after.seen").cast("long")), tmp_path)
    assert [row.value and row.value.op for row in rows] == ["r", "c", "u", "u", "d", None]
    assert [row.key.id for row in rows] == [1, 2, 2, 2, 2, 2]
    first = rows[0].value.after.asDict(recursive=True)
    assert rows[0].seen == int(dt.datetime(2026, 3, 1, 10, tzinfo=dt.timezone.utc).timestamp())
    assert {name: first[name] for name in INSERTED} == {**INSERTED, "data": bytearray(b"\xff")}
    assert (rows[2].value.before.name, rows[2].value.after.name) == ("b", "c")
    assert (rows[3].value.after.name, rows[3].value.after.share) == ("c", None)
    assert (rows[4].value.before.id, rows[4].value.after) == (2, None)
    source = rows[1].value.source
    assert (source.connector, source.db, source.schema, source.table) == ("postgresql", "shop", "public", "items")
    assert all(row.value.source.ts_ms is not None and row.value.ts_ms is not None for row in rows[:-1])
