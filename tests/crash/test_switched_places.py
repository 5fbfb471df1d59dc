"""Switches whose homes are in a grid and on S3, and whose two queries write into one table or topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from tests.api.test_switch import peaks, sums
from tests.connectors.delta.reading import rows_of
from tests.connectors.iceberg.reading import IcebergReader
from tests.feed import START, Feed, rows
from tests.protocol.kafka.checks import committed
from tests.servers.s3 import BUCKET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.grid.processes import MemberProcess
    from tests.servers.jdbc import MariaServer
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer
    from tests.servers.s3 import S3Server

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]

Found = Iterable[Mapping[str, Any]]
BEHIND = [(10, "a", 1), (20, "a", 1), (30, "b", 7)]
"""The sums of windows of ten seconds, by their ends."""
AHEAD = [(40, "a", 9), (40, "b", 7), (50, "a", 9), (60, "a", 9), (70, "a", 9), (70, "b", 2), (80, "b", 2)]
"""The peaks of windows of twenty seconds."""


def started(spark: SparkSession, place: Path, name: str, home: Mapping[str, Any], out: Any, **options: Any) -> Any:
    stream = sj.stream(Feed(place / "in").read(spark))
    results = (sums if name == "old" else peaks)(stream)
    columns = results.select(F.unix_seconds("window.end").alias("e"), "k", F.col("v").alias("v"))
    return out(columns).options(**home, **options).start()


def switched(
    spark: SparkSession, place: Path, homes: Mapping[str, Mapping[str, Any]], locations: Mapping[str, str], out: Any
) -> None:
    """Run both queries, switch, and run both once more."""
    feed = Feed(place / "in")
    feed.add(*rows([1, 12], k="a", v=1), *rows([24], k="b", v=7))
    feed.add(*rows([33], k="a", v=9), *rows([46], k="a", v=9))

    def both() -> list[Any]:
        old = started(spark, place, "old", homes["old"], out)
        return [old, started(spark, place, "new", homes["new"], out, publishAfter=locations["old"])]

    running = both()
    for each in running:
        each.processAllAvailable()
    done = sj.switch(locations["old"], locations["new"], session=spark)
    assert int(done.at.timestamp()) - START == 30
    feed.add(*rows([58], k="a", v=9), *rows([61], k="b", v=2))
    for each in running:
        each.stop()
    feed.add(*rows([900], k="late", v=0))
    running = both()
    running[1].processAllAvailable()
    running[1].stop()
    # It has nothing left to publish.
    running[0].awaitTermination(60)
    assert not running[0].isActive


def check(found: Found) -> None:
    got = sorted((each["e"] - START, each["k"], each["v"]) for each in found)
    assert got == sorted([*BEHIND, *AHEAD])


@pytest.mark.parametrize("names", [("grid", "s3"), ("s3", "grid")], ids=" to ".join)
def test_homes_in_a_grid_and_on_s3(
    s3_spark: SparkSession,
    s3: S3Server,
    grid_member: MemberProcess,
    tmp_path: Path,
    names: tuple[str, str],
) -> None:
    s3_spark.conf.set("spark.sparkjet.grid.tokenFile", str(grid_member.token))
    name, address = uuid4().hex, f"grid://{grid_member.address}"
    places = {
        "grid": ({"snapshotStore": address, "queryId": name}, f"{address}/{name}"),
        "s3": ({"checkpointLocation": f"s3a://{BUCKET}/{name}"}, f"s3a://{BUCKET}/{name}"),
    }
    homes = {which: places[each][0] for which, each in zip(("old", "new"), names, strict=True)}
    locations = {which: places[each][1] for which, each in zip(("old", "new"), names, strict=True)}

    def out(results: Any) -> Any:
        return results.writeStream.format("files").option("path", tmp_path / "out")

    try:
        switched(s3_spark, tmp_path, homes, locations, out)
    finally:
        s3_spark.conf.unset("spark.sparkjet.grid.tokenFile")
    check([row.asDict() for row in sj.read_files(tmp_path / "out").collect()])


def into_one(spark: SparkSession, place: Path, out: Callable[[Any], Any]) -> None:
    locations = {name: str(place / name) for name in ("old", "new")}
    switched(spark, place, {name: {"checkpointLocation": each} for name, each in locations.items()}, locations, out)


def test_into_a_delta_table(delta: SparkSession, tmp_path: Path) -> None:
    into_one(delta, tmp_path, lambda results: results.writeStream.format("delta").option("path", tmp_path / "out"))
    check(rows_of(tmp_path / "out"))


def test_into_an_iceberg_table(iceberg: SparkSession, tmp_path: Path) -> None:
    into_one(iceberg, tmp_path, lambda results: results.writeStream.format("iceberg").option("path", tmp_path / "out"))
    check(IcebergReader(iceberg, tmp_path / "out").rows())


def test_into_postgres(spark: SparkSession, postgres: PostgresServer, tmp_path: Path, dsn: str) -> None:
    into_one(
        spark, tmp_path, lambda results: results.writeStream.format("postgres").options(dsn=dsn, dbtable="results")
    )
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT e, k, v FROM results").fetchall()
    check([dict(zip("ekv", each, strict=True)) for each in found])


def test_into_mariadb(jdbc: SparkSession, mariadb: MariaServer, tmp_path: Path) -> None:
    name = f"t{uuid4().hex[:12]}"
    mariadb.sql(f"CREATE DATABASE {name}")
    options = {**mariadb.options(name), "dbtable": "results"}
    into_one(jdbc, tmp_path, lambda results: results.writeStream.format("jdbc").options(**options))
    check([row.asDict() for row in jdbc.read.format("jdbc").options(**options).load().collect()])


@pytest.mark.parametrize("commit", ["staged", "prepared"])
def test_into_kafka(spark: SparkSession, kafka: KafkaServer, tmp_path: Path, commit: str) -> None:
    topic = kafka.topic()

    def out(results: Any) -> Any:
        records = results.select(F.to_json(F.struct("e", "k", "v")).alias("value"))
        writer = records.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
        return writer.options(topic=topic, commit=commit)

    into_one(spark, tmp_path, out)
    check([json.loads(each.value()) for each in committed(kafka, topic)])
