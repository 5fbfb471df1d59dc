"""Debezium's changes in upserted tables: inserts, updates and deletions, across epochs, restarts and orders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from tests.connectors.delta.reading import rows_of
from tests.sources.feed import options, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.kafka import KafkaServer


def change(op: str, key: int, price: str | None) -> dict[str, Any]:
    row = None if price is None else {"id": key, "price": price}
    return {"op": op, "before": {"id": key}, "after": row, "source": {"ts_ms": 5}}


def sent(kafka: KafkaServer, topic: str, *changes: dict[str, Any]) -> None:
    for each in changes:
        key = json.dumps({"id": (each["after"] or each["before"])["id"]}).encode()
        send(kafka, topic, json.dumps(each).encode(), key=key)
        if each["op"] == "d":
            send(kafka, topic, None, key=key)


def followed(spark: SparkSession, kafka: KafkaServer, topic: str, home: Path, **sink: str) -> None:
    sj.register_sources(spark)
    given = {"value.format": "debezium-json", "value.schema": "id bigint, price decimal(10,2)"}
    given |= {"key.format": "debezium-json", "key.schema": "id bigint", "startingOffsets": "earliest"}
    every = {**options(kafka, subscribe=topic, maxOffsetsPerTrigger="4"), **given}
    read = spark.readStream.format("sparkjet-kafka").options(**every).load()
    changes = sj.stream(read).where("value IS NOT NULL").groupBy("key.id")
    last = changes.agg(F.max_by("value", "offset").alias("last"))
    rows = last.select("id", F.col("last.after.price").alias("price"), F.expr("last.op = 'd'").alias("gone"))
    sink |= {"mode": "upsert", "keyColumns": "id", "checkpointLocation": str(home)}
    writer = rows.writeStream.outputMode("update").format(sink.pop("format")).options(**sink)
    writer.trigger(availableNow=True).start().awaitTermination()


LONG = pytest.mark.long


@pytest.mark.parametrize("kind", ["postgres", pytest.param("mariadb", marks=LONG), pytest.param("delta", marks=LONG)])
def test_inserts_updates_and_deletions_end_in_a_table(
    request: pytest.FixtureRequest, spark: SparkSession, kafka: KafkaServer, tmp_path: Path, kind: str
) -> None:
    topic = kafka.topic()
    if kind == "postgres":
        dsn = request.getfixturevalue("dsn")
        sink = {"format": "postgres", "dsn": dsn, "dbtable": "items"}
    elif kind == "mariadb":
        request.getfixturevalue("jdbc")
        server, name = request.getfixturevalue("mariadb"), f"t{uuid4().hex[:12]}"
        server.sql(f"CREATE DATABASE {name}")
        sink = {"format": "jdbc", "dbtable": "items", **server.options(name)}
    else:
        request.getfixturevalue("delta")
        sink = {"format": "delta", "path": str(tmp_path / "items")}

    def found() -> list[tuple[Any, ...]]:
        if kind == "postgres":
            with psycopg.connect(dsn) as connection:
                rows = connection.execute("SELECT id, price, gone FROM items").fetchall()
        elif kind == "mariadb":
            read = spark.read.format("jdbc").options(**sink).load()
            rows = [tuple(row) for row in read.select("id", "price", "gone").collect()]
        else:
            rows = [(row["id"], row["price"], row["gone"]) for row in rows_of(tmp_path / "items")]
        return sorted((key, price and str(price), bool(gone)) for key, price, gone in rows)

    # Several changes of a key in one epoch, of which neither the greatest nor the first one stays.
    first = change("c", 1, "5"), change("u", 1, "9"), change("u", 1, "6")
    sent(kafka, topic, *first, change("r", 2, "7"), change("c", 3, "1"))
    followed(spark, kafka, topic, tmp_path / "home", **sink)
    assert found() == [(1, "6.00", False), (2, "7.00", False), (3, "1.00", False)]
    again = change("d", 2, None), change("c", 2, "8")
    sent(kafka, topic, change("d", 1, None), *again, change("u", 3, "2"), change("d", 3, None))
    followed(spark, kafka, topic, tmp_path / "home", **sink)
    assert found() == [(1, None, True), (2, "8.00", False), (3, None, True)]
