"""On older lines of Spark, a query goes on after a restart into each destination, and from a home in the grid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.spark_line import LINE, NEWEST
from tests.connectors.delta.reading import rows_of
from tests.connectors.iceberg.reading import IcebergReader
from tests.connectors.rabbitmq.messages import held
from tests.environment.cells import Cell
from tests.environment.destinations import Servers
from tests.environment.trial import Trial
from tests.feed import Feed, rows
from tests.servers.artemis import PASSWORD, USER
from tests.servers.s3 import BUCKET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.grid.processes import MemberProcess
    from tests.servers.artemis import ArtemisServer
    from tests.servers.hdfs import HdfsServer
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer
    from tests.servers.rabbitmq import RabbitServer
    from tests.servers.s3 import S3Server

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(LINE == NEWEST, reason="the whole suites of these run on the newest line"),
]
ROWS = 40


def twice(
    spark: SparkSession, place: Path, columns: list[Any], writer: Callable[[Any], Any], home: str | None = None
) -> list[int]:
    """Two runs of a query over a growing feed; returns the numbers of all rows."""
    feed = Feed(place / "in")
    for _ in range(2):
        feed.add(*rows(range(ROWS)))
        result = sj.stream(feed.read(spark)).select(*columns)
        writer(result.writeStream).option("checkpointLocation", home or place / "home").trigger(
            availableNow=True
        ).start().awaitTermination()
    return list(range(2 * ROWS))


def bodies() -> list[Any]:
    return [F.col("id").cast("string").alias("body")]


@pytest.mark.parametrize(
    "cell",
    [Cell(sink="kafka"), Cell(sink="postgres", home="grid"), Cell(query="rolling", sink="postgres")],
    ids=str,
)
def test_kafka_postgres_and_homes_in_the_grid(
    spark: SparkSession,
    postgres: PostgresServer,
    kafka: KafkaServer,
    grid_member: MemberProcess,
    tmp_path: Path,
    cell: Cell,
) -> None:
    assert Trial(cell, spark, tmp_path, Servers(postgres, kafka), grid_member).check() == "equal"


def test_rabbitmq(spark: SparkSession, rabbitmq: RabbitServer, tmp_path: Path) -> None:
    queue = rabbitmq.queue()
    expected = twice(
        spark,
        tmp_path,
        bodies(),
        lambda w: w.format("rabbitmq").options(host="127.0.0.1", port=rabbitmq.port, routingKey=queue),
    )
    assert sorted(int(body) for _, body in held(rabbitmq, queue)) == expected


def test_artemis(spark: SparkSession, artemis: ArtemisServer, tmp_path: Path) -> None:
    queue = artemis.queue()
    broker = {"host": "127.0.0.1", "port": artemis.port, "user": USER, "password": PASSWORD}
    expected = twice(spark, tmp_path, bodies(), lambda w: w.format("artemis").options(**broker, queue=queue))
    with artemis.client() as client:
        found = [int(frame.body) for frame in client.read(queue, artemis.count(queue))]
    assert sorted(found) == expected


def test_delta(delta: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    expected = twice(delta, tmp_path, ["id", "ts"], lambda w: w.format("delta").option("path", table))
    assert sorted(row["id"] for row in rows_of(table)) == expected


def in_files(spark: SparkSession, place: Path, remote: str) -> None:
    """Files and the home are in a remote directory."""
    expected = twice(
        spark, place, ["id"], lambda w: w.format("files").option("path", f"{remote}/out"), f"{remote}/home"
    )
    for found in (sj.read_files(f"{remote}/out"), spark.read.parquet(f"{remote}/out")):
        assert sorted(row["id"] for row in found.collect()) == expected


def test_hdfs(spark: SparkSession, hdfs: HdfsServer, tmp_path: Path) -> None:
    in_files(spark, tmp_path, f"{hdfs.uri}/{uuid4().hex}")


@pytest.mark.skipif(LINE < (4, 2), reason="Hadoop's client of S3 can put a file if it is absent since 3.5")
def test_s3(s3_spark: SparkSession, s3: S3Server, tmp_path: Path) -> None:
    in_files(s3_spark, tmp_path, f"s3a://{BUCKET}/{uuid4().hex}")


def test_iceberg(iceberg: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    expected = twice(iceberg, tmp_path, ["id", "ts"], lambda w: w.format("iceberg").option("path", table))
    assert sorted(row["id"] for row in IcebergReader(iceberg, table).rows()) == expected


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_upserts(delta: SparkSession, iceberg: SparkSession, tmp_path: Path, name: str) -> None:
    session, table = delta if name == "delta" else iceberg, tmp_path / "table"
    feed = Feed(tmp_path / "in")
    for _ in range(2):
        feed.add(*rows(range(ROWS)))
        stream = sj.stream(feed.read(session)).withColumn("k", F.when(F.col("id") % 3 > 0, F.col("id") % 3))
        writer = stream.groupBy("k").count().writeStream.format(name).outputMode("update").option("path", table)
        writer = writer.options(mode="upsert", keyColumns="k", checkpointLocation=tmp_path / "home")
        writer.trigger(availableNow=True).start().awaitTermination()
    found = rows_of(table) if name == "delta" else IcebergReader(session, table).rows()
    assert {row["k"]: row["count"] for row in found} == {None: 27, 1: 27, 2: 26}
    assert len(found) == 3
