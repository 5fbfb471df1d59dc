"""An epoch that fails in the PostgreSQL sink: the obstacle is named, nothing is published, nothing is left open."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sparkjet.connectors.postgres.sink import PostgresSink
from sparkjet.connectors.postgres.target import MARKERS
from sparkjet.errors import LostTransactionError, SinkError
from sparkjet.sinks.protocol import Aborting
from sparkjet.testing.sink_contract import SCHEMA, transaction
from tests.connectors.postgres.test_sink import sink_of, under_test

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.postgres import PostgresServer


@pytest.mark.parametrize("way", ["always", "never"])
def test_an_attempt_is_undone_at_once_and_no_other(spark: SparkSession, tmp_path: Path, dsn: str, way: str) -> None:
    target, rows = under_test(spark, tmp_path, dsn, prepared=way), spark.createDataFrame([("a", 1)], SCHEMA)
    sink = target.sink
    assert isinstance(sink, PostgresSink)
    assert isinstance(sink, Aborting)
    sink.abort(transaction(1))
    decided = sink.prepare(rows, transaction(1))
    sink.prepare(rows, transaction(2))
    for _ in range(2):
        sink.abort(transaction(2))
        assert target.dangling() == 1
    assert decided is not None
    assert not sink.has_arrived(decided)
    sink.commit(decided, lambda: None)
    assert sink.has_arrived(decided)
    assert (target.read(), target.dangling()) == ([("a", 1)], 0)


def test_a_unique_index_that_came_while_the_query_ran_is_named_and_the_attempt_undone(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    target = under_test(spark, tmp_path, make_conninfo(dsn, options="-c lock_timeout=300ms"), numPartitions="2")
    sink, rows = target.sink, spark.createDataFrame([("a", 1), ("a", 2)], SCHEMA).repartition(2, "n")
    assert isinstance(sink, Aborting)
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE UNIQUE INDEX late ON out (k)")
    # The tasks of an epoch, or a task and what it had prepared before its retry.
    first = sink.prepare(rows.where("n = 1"), transaction(1))
    assert first is not None
    with pytest.raises(SinkError, match=r'lock timeout.*relation "late".*prepared=never'):
        sink.prepare(rows, transaction(2))
    sink.abort(transaction(1))
    sink.abort(transaction(2))
    assert target.dangling() == 0
    # As the next start does.
    sink = sink_of(spark, tmp_path, dsn)
    assert sink.way == "outbox"


@pytest.mark.parametrize("keys", [{}, {"mode": "upsert", "keyColumns": "k"}], ids=["append", "upsert"])
def test_rows_that_are_fewer_than_were_decided_are_not_published(
    spark: SparkSession, tmp_path: Path, dsn: str, keys: dict[str, str]
) -> None:
    target = under_test(spark, tmp_path, dsn, prepared="never", **keys)
    handle = target.sink.prepare(spark.createDataFrame([("a", 1), ("b", 2)], SCHEMA), transaction(1))
    assert handle is not None
    with pytest.raises(
        LostTransactionError, match=r"decided with 3 rows for PostgreSQL, but the outbox has 2\. Nothing"
    ):
        target.sink.commit({**handle, "rows": 3}, lambda: None)
    with psycopg.connect(dsn) as connection:
        assert connection.execute(f"SELECT FROM {MARKERS}".encode()).rowcount == 0
    assert target.read() == []
    target.sink.commit({**handle, "rows": 2}, lambda: None)
    assert sorted(target.read()) == [("a", 1), ("b", 2)]


def test_a_later_epoch_is_found_beside_the_table_of_today_and_of_the_record(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE SCHEMA elsewhere")
    sink = sink_of(spark, tmp_path, dsn)
    handles = []
    for epoch in (1, 2):
        handles.append(sink.prepare(spark.createDataFrame([("a", epoch)], SCHEMA), transaction(epoch)))
        sink.commit(handles[-1] or {}, lambda: None)
    moved = sink_of(spark, tmp_path, dsn, dbtable="elsewhere.out")
    assert sink.published_after(transaction(2), handles[1]) is None
    assert "says that epoch 2 was published" in str(sink.published_after(transaction(1), None))
    assert moved.published_after(transaction(1), None) is None
    assert '"public"."_sparkjet_commits"' in str(moved.published_after(transaction(1), handles[0]))


def test_a_transaction_of_another_database_is_named(
    spark: SparkSession, tmp_path: Path, postgres: PostgresServer, dsn: str
) -> None:
    handle = sink_of(spark, tmp_path, dsn).prepare(spark.createDataFrame([("a", 1)], SCHEMA), transaction(1))
    assert handle is not None
    other = sink_of(spark, tmp_path, postgres.database(f"t{uuid.uuid4().hex}"))
    with pytest.raises(SinkError, match=r"was prepared in another database\. Point the options at that one"):
        other.commit(handle, lambda: None)
