"""A start at a database: everything is checked by the server itself, and a refusal leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.postgres.settings import PostgresSettings
from sparkjet.connectors.postgres.sink import PostgresSink
from sparkjet.connectors.postgres.target import MARKERS
from sparkjet.options import Options
from sparkjet.testing.sink_contract import SCHEMA
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.aggregates.operation import Aggregate
    from sparkjet.api.grouped import WindowedStream


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2, 15], k="a"))
    return feed


def tables(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        return [name for (name,) in found]


def result(spark: SparkSession, feed: Feed, *aggregates: Aggregate) -> WindowedStream:
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    return stream.groupBy(sj.window("ts", "10 seconds"), "k").agg(*aggregates)


def start(results: WindowedStream, home: Path, dsn: str, table: str, **options: Any) -> None:
    shaped = results.select("window.start", "k", "n")
    writer = shaped.writeStream.format("postgres").options(dsn=dsn, dbtable=table, **options)
    writer.option("checkpointLocation", home / "home").trigger(availableNow=True).start().awaitTermination()


def test_the_check_leaves_nothing_and_knows_what_the_table_will_be(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    for options, way in (({}, "prepared"), ({"mode": "upsert", "keyColumns": "k"}, "outbox")):
        sink = PostgresSink(PostgresSettings.of(Options({"dsn": dsn, "dbtable": way, **options})))
        sink.attach(tmp_path / "outbox", spark)
        sink.check(spark.createDataFrame([], SCHEMA).schema)
        assert tables(dsn) == ([] if way == "prepared" else [MARKERS, "prepared"])
        assert sink.way == way
        sink.create()
        assert way in tables(dsn)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lateRowsPath": "/proc/nowhere"}, "lateRowsPath"),
        ({"closeWindowAtEnd": True}, "closeWindowsAtEnd"),
        ({"statePartitions": 0}, "statePartitions"),
        ({"processingGuarantee": "twice"}, "processingGuarantee"),
        ({"numPartitions": 65}, "numPartitions"),
        ({"checkpointLocation": "/proc/nowhere"}, "checkpointLocation"),
    ],
)
def test_a_start_that_is_refused_for_something_else_creates_no_table(
    spark: SparkSession, feed: Feed, tmp_path: Path, dsn: str, options: dict[str, Any], named: str
) -> None:
    shaped = result(spark, feed, F.count("*").alias("n")).select("window.start", "k", "n")
    writer = shaped.writeStream.format("postgres").options(dsn=dsn, dbtable="out", checkpointLocation=tmp_path / "home")
    with pytest.raises(sj.AnalysisError, match=named):
        writer.options(**options).start()
    assert tables(dsn) == []


def test_the_refusal_of_a_second_output_leaves_neither_tables_nor_directories_of_the_first(
    spark: SparkSession, feed: Feed, tmp_path: Path, dsn: str
) -> None:
    results = result(spark, feed, F.count("*").alias("n"))
    shaped = results.select("window.start", "k", "n")
    with pytest.raises(sj.AnalysisError, match="no schema"):
        sj.start(
            results.writeStream.format("files").option("path", tmp_path / "out"),
            shaped.writeStream.format("postgres").options(dsn=dsn, dbtable="out"),
            shaped.writeStream.format("postgres").options(dsn=dsn, dbtable="nowhere.out"),
            checkpointLocation=str(tmp_path / "home"),
        )
    assert tables(dsn) == []
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_query_that_has_changed_too_much_to_go_on_creates_no_table(
    spark: SparkSession, feed: Feed, tmp_path: Path, dsn: str
) -> None:
    start(result(spark, feed, F.count("*").alias("n")), tmp_path, dsn, "first")
    with pytest.raises(sj.RecoveryError, match="The query has changed"):
        start(result(spark, feed, F.sum("v").alias("n")), tmp_path, dsn, "second")
    assert tables(dsn) == [MARKERS, "first"]
