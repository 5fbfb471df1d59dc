"""Rows that the table refuses: found before the decision, and the way out for those that it refuses after it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import functions as F

from sparkjet.cli import main
from sparkjet.errors import SinkError
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import EpochKind, PreparedTransaction, Record
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.testing import StreamDriver
from sparkjet.testing.sink_contract import QUERY, SCHEMA, transaction
from tests.connectors.postgres.test_sink import sink_of
from tests.snapshots.records import NO_WATERMARKS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.connectors.postgres.sink import PostgresSink
    from sparkjet.sinks.protocol import Handle


def execute(dsn: str, statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statements.encode())


def seen(dsn: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT k, n FROM out WHERE k <> '' ORDER BY k, n").fetchall()


def decide(sink: PostgresSink, rows: DataFrame, epoch: int) -> Handle:
    """Run the steps of an epoch up to its decision."""
    handle = sink.prepare(rows, transaction(epoch))
    assert handle is not None
    sink.try_out(handle, [])
    return handle


def test_text_that_is_too_long_for_an_index_is_found_and_nothing_else_is_tried(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    sink = sink_of(spark, tmp_path, dsn, mode="upsert", keyColumns="k")
    # Nothing compresses it.
    rows = spark.range(9).select(
        F.array_join(
            F.transform(F.sequence(F.lit(1), F.lit(50)), lambda n: F.sha2((n + F.col("id")).cast("string"), 512)), ""
        ).alias("k"),
        F.col("id").alias("n"),
    )
    with pytest.raises(SinkError, match="index row"):
        decide(sink, rows, 1)
    # What nothing can refuse costs nothing: this would wait for the lock.
    with psycopg.connect(dsn) as other:
        other.execute("LOCK TABLE out IN ACCESS EXCLUSIVE MODE")
        handle = sink.prepare(rows.selectExpr("substr(k, 1, 9) AS k", "n"), transaction(2))
        assert handle is not None
        sink.try_out(handle, [])
    sink.commit(handle, lambda: None)
    assert len(seen(dsn)) == 9


class Releases(logging.Handler):
    """Ends a transaction as soon as anything is logged."""

    def __init__(self, holder: psycopg.Connection[Any]) -> None:
        super().__init__(logging.WARNING)
        self._holder = holder

    def emit(self, record: logging.LogRecord) -> None:
        self._holder.rollback()


def test_a_lock_or_an_outage_is_waited_for(spark: SparkSession, tmp_path: Path, dsn: str) -> None:
    execute(dsn, "CREATE TABLE out (k text, n bigint CHECK (n > 0))")
    sink = sink_of(spark, tmp_path, make_conninfo(dsn, options="-c lock_timeout=100ms"), prepared="never")
    with psycopg.connect(dsn) as holder:
        holder.execute("LOCK TABLE out")
        releases, logger = Releases(holder), logging.getLogger("sparkjet")
        logger.addHandler(releases)
        try:
            handle = decide(sink, spark.createDataFrame([("a", 1)], SCHEMA), 1)
        finally:
            logger.removeHandler(releases)
    sink.commit(handle, lambda: None)
    assert seen(dsn) == [("a", 1)]


def test_a_query_whose_rows_are_refused_goes_on_without_them(spark: SparkSession, tmp_path: Path, dsn: str) -> None:
    execute(dsn, "CREATE TABLE out (k text, n bigint CHECK (n > 0))")
    sink, conditions = sink_of(spark, tmp_path, dsn, prepared="never"), ["true"]
    driver = StreamDriver(spark, lambda rows: rows.where(conditions[-1]), SCHEMA, sinks=[sink])
    with pytest.raises(SinkError, match=r'violates check constraint "out_n_check".*leave out such rows in the query'):
        driver.process([("a", 1), ("b", -1)])
    conditions.append("n > 0")
    driver.restart()
    driver.process([])
    assert seen(dsn) == [("a", 1)]


def test_rows_that_refer_to_those_of_an_earlier_output_are_taken(spark: SparkSession, tmp_path: Path, dsn: str) -> None:
    execute(dsn, "CREATE TABLE parent (k text PRIMARY KEY); CREATE TABLE out (k text REFERENCES parent, n bigint)")
    sinks = [
        sink_of(spark, tmp_path, dsn, "k string", dbtable="parent", prepared="never"),
        sink_of(spark, tmp_path, dsn, prepared="never"),
    ]
    driver = StreamDriver(spark, lambda rows: [rows.select("k"), rows], SCHEMA, sinks=sinks)
    driver.process([("a", 1), ("b", 2)])
    assert seen(dsn) == [("a", 1), ("b", 2)]


def test_outputs_that_replace_rows_are_tried_out_together(spark: SparkSession, tmp_path: Path, dsn: str) -> None:
    execute(dsn, "CREATE TABLE out (k text PRIMARY KEY, n bigint CHECK (n > 0))")
    sinks = [sink_of(spark, tmp_path, dsn, mode="upsert", keyColumns="k") for _ in range(2)]
    driver = StreamDriver(spark, lambda rows: [rows, rows.selectExpr("k", "n + 1 AS n")], SCHEMA, sinks=sinks)
    driver.process([("a", 1), ("b", 2)])
    assert seen(dsn) == [("a", 2), ("b", 3)]


def test_rows_of_a_partition_meet_those_of_an_output_for_the_whole_table(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    execute(dsn, "CREATE TABLE out (k text, n bigint) PARTITION BY LIST (k); CREATE UNIQUE INDEX ON out (k, n)")
    execute(dsn, "CREATE TABLE part PARTITION OF out FOR VALUES IN ('a'); CREATE TABLE rest PARTITION OF out DEFAULT")
    patient = make_conninfo(dsn, options="-c lock_timeout=2min")
    sinks = [sink_of(spark, tmp_path, dsn), sink_of(spark, tmp_path, patient, dbtable="part")]
    driver = StreamDriver(spark, lambda rows: [rows, rows.where("n = 1")], SCHEMA, sinks=sinks)
    with pytest.raises(SinkError, match="duplicate key value"):
        driver.process([("a", 1), ("b", 2)])
    driver.restart()
    assert seen(dsn) == []


def test_rows_that_were_decided_and_then_refused_are_left_out_by_the_command(
    spark: SparkSession, tmp_path: Path, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home, file = tmp_path / "home", tmp_path / "refused.jsonl"
    sink = sink_of(spark, home / "snapshots", dsn, prepared="never")
    handle = decide(sink, spark.createDataFrame([("a", 1), ("b", -1), ("c", 2)], SCHEMA), 1)
    write_record(home, handle)
    execute(dsn, "ALTER TABLE out ADD CHECK (n > 0)")
    with pytest.raises(SinkError, match=r"check constraint.*--refused FILE"):
        sink.commit(handle, lambda: None)
    command = ["txns", str(home), "--dsn", dsn, "--refused", str(file)]
    damaged = next((home / "snapshots" / "outbox" / "results" / handle["box"]).glob("part-*"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1])
    assert main(command) == 1
    assert (
        f"nothing was published: [SPARKJET_LOST_TRANSACTION] {damaged} has {len(content) - 1} bytes"
        in capsys.readouterr().out
    )
    damaged.write_bytes(content)
    assert main(command) == 1
    assert f'--refused: "{file}" cannot be created: File exists' in capsys.readouterr().err
    file.unlink()
    assert main(command) == 0
    assert "epoch 1 of output 'results': 2 rows published, 1 refused" in capsys.readouterr().out
    (line,) = map(json.loads, file.read_text().splitlines())
    assert line["row"] == {"k": "b", "n": -1}
    assert "violates check constraint" in line["error"]
    for _ in range(2):
        # The next start finds them published.
        sink.commit(handle, lambda: None)
        assert seen(dsn) == [("a", 1), ("c", 2)]
        file.unlink()
        assert main(command) == 0
        assert "published before" in capsys.readouterr().out


def write_record(home: Path, handle: Handle) -> None:
    store = DirectoryStore(home / "snapshots")
    store.open("checkpointLocation")
    record = Record(
        kind=EpochKind.BATCH, query=QUERY, takeover=0, run="0", epoch=1, fingerprint={}, clock=0,
        watermarks=NO_WATERMARKS, stages={}, early_at={}, spark=None,
        transactions=[PreparedTransaction("results", handle, "postgres")],
    )  # fmt: skip
    RecordLog(store).append(0, record)
