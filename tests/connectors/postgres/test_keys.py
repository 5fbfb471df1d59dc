"""Upsert keys: stable ones are accepted, those that change from run to run are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream
    from sparkjet.api.stream import Stream

UNSTABLE: dict[str, tuple[str, Callable[[Stream], WindowedStream]]] = {
    "of the result": ("id", lambda stream: counted(stream).withColumn("id", F.expr("uuid()"))),
    "through another column": (
        "id",
        lambda stream: counted(stream).withColumn("r", F.rand()).withColumn("id", F.col("r").cast("string")),
    ),
    "of the input": ("k", lambda stream: counted(stream.withColumn("k", F.expr("uuid()")))),
    "a user's function": ("id", lambda stream: counted(stream).withColumn("id", unstable()(F.col("k")))),
}


def unstable() -> Callable[..., object]:
    return F.udf(lambda k: k, "string").asNondeterministic()


def counted(stream: Stream, key: object = "k") -> WindowedStream:
    return stream.groupBy(sj.window("ts", "10 seconds"), key).agg(F.count("*").alias("n"))  # type: ignore[arg-type]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2, 15], k="a"))
    feed.add(*rows([16, 30], k="a"))
    return sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")


@pytest.mark.parametrize("case", UNSTABLE)
def test_a_key_that_changes_is_refused_before_the_server_is_asked(stream: Stream, tmp_path: Path, case: str) -> None:
    key, build = UNSTABLE[case]
    writer = build(stream).writeStream.format("postgres").option("checkpointLocation", tmp_path / "home")
    writer.options(host="127.0.0.1", port="1", dbtable="out", mode="upsert", keyColumns=key)
    with pytest.raises(sj.AnalysisError, match=f"keyColumns: '{key}' comes from .*(uuid|rand|<lambda>).*another value"):
        writer.start()


def test_early_rows_replace_each_other_and_the_final_one_stays(stream: Stream, tmp_path: Path, dsn: str) -> None:
    noise = counted(stream).select("window.start", "k", "n").withColumn("noise", F.rand())
    writer = noise.writeStream.format("postgres").outputMode("update").trigger(availableNow=True)
    writer.options(dsn=dsn, dbtable="out", mode="upsert", keyColumns="start, k", closeWindowsAtEnd=True, isEarly=True)
    writer.option("checkpointLocation", tmp_path / "home").start().awaitTermination()
    with psycopg.connect(dsn) as connection:
        seen = connection.execute("SELECT k, n, is_early FROM out ORDER BY start").fetchall()
    assert seen == [("a", 2, False), ("a", 2, False), ("a", 1, False)]
