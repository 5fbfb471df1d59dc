"""Writers as a query for Spark spells them: formats of files, once, noop, foreach."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream


@pytest.fixture
def counts(spark: SparkSession, tmp_path: Path) -> WindowedStream:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2, 12], k="a"), *rows([3], k="b, c"))
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    return stream.groupBy(sj.window("ts", "10 seconds"), "k").count()


def test_one_query_writes_what_spark_has_names_for(spark: SparkSession, counts: WindowedStream, tmp_path: Path) -> None:
    told: list[Any] = []
    (tmp_path / "each").mkdir()
    each = str(tmp_path / "each")
    flat = counts.select("k", "count")
    query = sj.start(
        flat.writeStream.format("csv")
        .partitionBy(["k"])
        .option("path", tmp_path / "csv")
        .options(header=True, quoteAll=True),
        flat.select(F.to_json(F.struct("*")).alias("line"))
        .writeStream.format("text")
        .option("path", tmp_path / "text"),
        flat.writeStream.format("ORC").option("path", tmp_path / "orc"),
        counts.writeStream.format("noop"),
        flat.writeStream.foreach(lambda row: Path(f"{each}/{row.k}").write_text(str(row["count"]))),
        counts.writeStream.foreachBatch(
            lambda found, epoch, info: told.append((found.count(), info.repeated, info.output))
        ),
        lateRows=counts.lateRows.writeStream.format("noop").trigger(once=True),
        checkpointLocation=str(tmp_path / "ck"),
    )
    query.awaitTermination()
    expected = [("a", 2), ("b, c", 1)]
    plain = spark.read.option("header", True).csv(str(tmp_path / "csv")).select("k", F.col("count").cast("int"))
    assert sorted(map(tuple, plain.collect())) == expected
    for name in ("csv", "orc"):
        whole = sj.read_files(str(tmp_path / name)).select("k", "count")
        assert sorted(map(tuple, whole.collect())) == expected
    (quoted,) = (tmp_path / "csv" / "k=a").glob("*.csv")
    assert quoted.read_text().splitlines() == ['"count"', '"2"']
    lines = [row.line for row in sj.read_files(str(tmp_path / "text")).collect()]
    assert sorted(lines) == ['{"k":"a","count":2}', '{"k":"b, c","count":1}']
    assert {path.name: path.read_text() for path in Path(each).iterdir()} == {"a": "2", "b, c": "1"}
    assert told == [(2, False, "results6")]
    assert list(query.guarantees.values()) == [*["exactly-once"] * 3, "none", *["at-least-once"] * 2, "none"]


def test_start_takes_what_sparks_start_takes(spark: SparkSession, counts: WindowedStream, tmp_path: Path) -> None:
    query = counts.writeStream.trigger(once=True).start(
        str(tmp_path / "out"), "json", "append", ["k"], "counts", checkpointLocation=str(tmp_path / "ck")
    )
    query.awaitTermination()
    assert query.name == "counts"
    found = spark.read.json(str(tmp_path / "out")).select("k", "count").collect()
    assert sorted(map(tuple, found)) == [("a", 2), ("b, c", 1)]
    assert {path.name for path in (tmp_path / "out").glob("k=*")} == {"k=a", "k=b, c"}


def test_files_need_a_place(counts: WindowedStream) -> None:
    with pytest.raises(sj.AnalysisError, match=r'format\("parquet"\) needs a directory'):
        counts.writeStream.format("parquet").start()
