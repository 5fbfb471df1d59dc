"""Changed queries into tables: columns that come and go, and get wider, over the change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.errors import AnalysisError
from tests.connectors.delta.reading import rows_of
from tests.connectors.iceberg.reading import IcebergReader
from tests.feed import START, Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]

Out = Callable[[Any], Any]
OLD, NEW = ("v", "n"), ("v", "most")
"""One of the aggregates stays, one goes and one comes."""


def run(spark: SparkSession, place: Path, out: Out, columns: tuple[str, ...], kind: str, **options: Any) -> Any:
    given = {"v": F.sum("v").alias("v"), "n": F.count("*").alias("n"), "most": F.max("v").alias("most")}
    frame = spark.readStream.schema(f"ts timestamp, j {kind}, v long").json(str(place / "in"))
    windows = sj.stream(frame).withWatermark("ts", "0 seconds").groupBy(sj.window("ts", "10 seconds"), "j")
    results = windows.agg(*(given[name] for name in columns)).withColumn("e", F.unix_seconds("window.end"))
    writer = out(results.select("e", "j", *columns)).trigger(availableNow=True)
    query = writer.options(checkpointLocation=place / "home", **options).start()
    query.awaitTermination()
    return query


def upgraded(spark: SparkSession, place: Path, out: Out, widen: Callable[[], None], kind: str = "int") -> None:
    feed = Feed(place / "in")
    feed.add(*rows([1, 12], j=1, v=5), *rows([13], j=2, v=7))
    run(spark, place, out, OLD, "int")
    feed.add(*rows([14], j=1, v=3), *rows([15], j=5, v=9), *rows([30], j=3, v=1))
    with pytest.raises((AnalysisError, sj.ChangedQueryError), match="aggregate max\\(v\\): none → new: null before"):
        # The table does not have the column yet.
        run(spark, place, out, NEW, kind, onChange="apply")
    widen()
    query = run(spark, place, out, NEW, kind, onChange="apply")
    assert len(query.lastProgress["changes"]) == 2 + (kind != "int")


def check(found: list[Mapping[str, Any]]) -> None:
    got = sorted((each["e"] - START, each["j"], each["v"], each.get("n"), each.get("most")) for each in found)
    assert got == [(10, 1, 5, 1, None), (20, 1, 8, None, None), (20, 2, 7, None, None), (20, 5, 9, None, 9)]


def test_in_postgres(spark: SparkSession, tmp_path: Path, dsn: str) -> None:
    def widen() -> None:
        with psycopg.connect(dsn) as connection:
            connection.execute("ALTER TABLE results ALTER j TYPE bigint, ADD most bigint")

    def out(results: Any) -> Any:
        return results.writeStream.format("postgres").options(dsn=dsn, dbtable="results")

    upgraded(spark, tmp_path, out, widen, "bigint")
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT e, j, v, n, most FROM results").fetchall()
    check([dict(zip(("e", "j", "v", "n", "most"), each, strict=True)) for each in found])


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_in_a_table_whose_schema_grows(
    spark: SparkSession, iceberg: SparkSession, delta: SparkSession, tmp_path: Path, kind: str
) -> None:
    merges = False

    def out(results: Any) -> Any:
        return results.writeStream.format(kind).options(path=tmp_path / "out", mergeSchema=merges)

    def widen() -> None:
        nonlocal merges
        merges = True

    upgraded(spark, tmp_path, out, widen)
    check(IcebergReader(spark, tmp_path / "out").rows() if kind == "iceberg" else rows_of(tmp_path / "out"))
