"""Columns that a start adds to a Delta table: only where the user wants it, as its own version."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.errors import AnalysisError
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import RUN, transaction
from tests.connectors.delta.reading import rows_of
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def sink_of(spark: SparkSession, path: Path, rows: DataFrame) -> DeltaSink:
    sink = DeltaSink(PosixDirectory(path), spark, merge_schema=True)
    sink.check(rows.schema)
    return sink


def actions(path: Path, version: int) -> list[dict[str, object]]:
    lines = (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_new_columns_are_added_by_a_separate_version(delta: SparkSession, tmp_path: Path) -> None:
    theirs = {"delta.enableChangeDataFeed": "true", "delta.logRetentionDuration": "interval 60 days"}
    write_deltalake(tmp_path, pa.table({"K": ["a"], "n": [1]}), configuration=theirs, partition_by=["K"])
    before = sink_of(delta, tmp_path, delta.sql("SELECT 'b' AS k, 2L AS n"))
    before.create()
    first = before.prepare(delta.sql("SELECT 'b' AS k, 2L AS n"), transaction(1, run=RUN))
    rows = delta.sql("SELECT 'c' AS k, 3L AS n, CAST(1.5 AS DECIMAL(9, 1)) AS more, array(struct(1 AS x)) AS nested")
    sink = sink_of(delta, tmp_path, rows)
    # What is only looked at changes nothing.
    assert DeltaTable(tmp_path).version() == 0
    sinks = [sink, *(sink_of(delta, tmp_path, rows) for _ in range(2))]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(DeltaSink.create, sinks))
    assert [set(each) for each in actions(tmp_path, 1)] == [{"commitInfo"}, {"metaData"}]
    assert DeltaTable(tmp_path).version() == 1
    second = sink.prepare(rows, transaction(2, run=RUN))
    assert first is not None
    assert second is not None
    # Files of before the change too.
    sink.commit_all([first, second], lambda: None)
    assert sorted(rows_of(tmp_path), key=lambda row: row["n"]) == [
        {"K": "a", "n": 1, "more": None, "nested": None},
        {"K": "b", "n": 2, "more": None, "nested": None},
        {"K": "c", "n": 3, "more": pytest.approx(1.5), "nested": [{"x": 1}]},
    ]
    metadata = DeltaTable(tmp_path).metadata()
    assert (metadata.configuration, metadata.partition_columns) == (theirs, ["K"])
    # Nothing is left to add.
    sink_of(delta, tmp_path, rows).create()
    assert DeltaTable(tmp_path).version() == 2


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT 'a' AS k, 1L AS n, TIMESTAMP_NTZ'2026-01-01 00:00:00' AS t", r"mergeSchema: .* lacks timestampNtz"),
        ("SELECT 'a' AS k, 1L AS n, 1 AS `a b`", "Delta's table"),
        ("SELECT 'a' AS k, 1L AS n, INTERVAL '1' DAY AS i", "Delta's table"),
        ("SELECT 'a' AS k, '1' AS n", r"'n' is string, and in .* it is bigint"),
        ("SELECT 'a' AS k, 1L AS n, named_struct('x', 1, 'y', 2) AS s", r"'s' is struct<x:int,y:int>, and in"),
        ("SELECT 1L AS more", "needs a value of column 'k'"),
    ],
)
def test_what_cannot_be_added_is_refused_before_the_start(
    delta: SparkSession, tmp_path: Path, sql: str, message: str
) -> None:
    columns = pa.schema(
        [pa.field("k", pa.string(), nullable=False), ("n", pa.int64()), ("s", pa.struct({"x": pa.int32()}))]
    )
    DeltaTable.create(tmp_path, columns)
    with pytest.raises(AnalysisError, match=message):
        sink_of(delta, tmp_path, delta.sql(sql))
    assert DeltaTable(tmp_path).version() == 0


def test_a_changed_query_is_refused_with_what_its_table_does_not_take(delta: SparkSession, tmp_path: Path) -> None:
    """Before anything is changed: a count could not be null before, and nobody looked for nulls in it."""
    table, feed = tmp_path / "table", Feed(tmp_path / "in")
    columns = [pa.field("k", pa.string()), pa.field("n", pa.int64(), nullable=False), pa.field("most", pa.int64())]
    write_deltalake(table, pa.schema(columns).empty_table())

    def started(*aggregates: Column, **options: Any) -> Any:
        windows = (
            sj.stream(feed.read(delta)).withWatermark("ts", "0 seconds").groupBy(sj.window("ts", "10 seconds"), "k")
        )
        writer = windows.agg(*aggregates).drop("window").writeStream.format("delta").trigger(availableNow=True)
        return writer.options(path=table, checkpointLocation=tmp_path / "home", **options).start()

    most = F.max("v").alias("most")
    feed.add(*rows([1, 2, 25], k="a", v=1))
    started(F.count("*").alias("n"), most).awaitTermination()
    records = sorted((tmp_path / "home" / "snapshots" / "log").iterdir())
    with pytest.raises(
        sj.ChangedQueryError, match="results: column n of delta: NOT NULL → null before the cut: refused"
    ):
        started(F.count("v").alias("n"), most, onChange="apply")
    with pytest.raises(AnalysisError, match=r"(?s)no column 'least'.*has changed .*min\(v\): none → new: null before"):
        started(F.count("*").alias("n"), most, F.min("v").alias("least"), onChange="apply")
    assert sorted((tmp_path / "home" / "snapshots" / "log").iterdir()) == records
    feed.add(*rows([26, 45], k="a", v=1))
    added = F.count("*").alias("n"), most, F.min("v").alias("least")
    started(*added, onChange="apply", mergeSchema=True).awaitTermination()
    assert sorted((row["n"], row["most"], row.get("least")) for row in rows_of(table)) == [(2, 1, None), (2, 1, None)]
