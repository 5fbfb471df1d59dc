"""The PostgreSQL sink: the contract of all sinks for both of its ways, and its own behaviour."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from pyspark.sql import functions as F

from sparkjet.connectors.postgres.settings import PostgresSettings
from sparkjet.connectors.postgres.sink import PostgresSink
from sparkjet.connectors.postgres.target import MARKERS
from sparkjet.errors import AnalysisError, LostTransactionError, SinkError
from sparkjet.options import Options
from sparkjet.testing.sink_contract import QUERY, SCHEMA, SinkContract, SinkUnderTest, transaction
from sparkjet.tools import complete_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.postgres import PostgresServer


def sink_of(spark: SparkSession, directory: Path, dsn: str, schema: str = SCHEMA, **options: str) -> PostgresSink:
    sink = PostgresSink(PostgresSettings.of(Options({"dsn": dsn, "dbtable": "out", **options})))
    sink.attach(directory / "outbox", spark)
    sink.check(spark.createDataFrame([], schema).schema)
    sink.create()
    return sink


def under_test(spark: SparkSession, directory: Path, dsn: str, **options: str) -> SinkUnderTest:
    sink = sink_of(spark, directory, dsn, **options)

    def read() -> list[tuple[str, int]]:
        with psycopg.connect(dsn) as connection:
            return connection.execute("SELECT k, n FROM out").fetchall()

    def dangling() -> int:
        with psycopg.connect(dsn) as connection:
            query = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
            (prepared,) = connection.execute(query).fetchone() or (None,)
        return int(bool(prepared)) + len(list((directory / "outbox").glob("*/0*")))

    return SinkUnderTest(sink, read, dangling, lambda rows: rows.withColumn("k", F.lit("a\0b")))


class TestPrepared(SinkContract):
    """In CI, without epochs that add up and drivers that slept, which `protocol/test_matrix.py` has."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_an_epoch_without_rows_prepares_nothing",
        "test_a_repeated_commit_changes_nothing",
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_orphans_of_earlier_drivers_are_rolled_back_but_not_the_decided",
        "test_a_driver_that_was_itself_taken_over_rolls_back_nothing_of_its_successor",
        "test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision",
        "test_it_knows_later_epochs_or_says_that_it_cannot",
        "test_what_a_copy_of_the_home_has_published_is_not_taken_for_its_own",
    )

    @pytest.fixture
    def target(self, spark: SparkSession, tmp_path: Path, dsn: str) -> SinkUnderTest:
        return under_test(spark, tmp_path, dsn, prepared="always")


class TestOutbox(SinkContract):
    """In CI, what is PostgreSQL's; the whole contract is kept in `test_outbox.py`."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision",
        "test_it_knows_later_epochs_or_says_that_it_cannot",
        "test_what_a_copy_of_the_home_has_published_is_not_taken_for_its_own",
    )

    @pytest.fixture
    def target(self, spark: SparkSession, tmp_path: Path, dsn: str) -> SinkUnderTest:
        return under_test(spark, tmp_path, dsn, prepared="never")


# By the outbox, as the test of the handle shows.
@pytest.mark.long
class TestServerAsItComes(SinkContract):
    @pytest.fixture
    def target(self, spark: SparkSession, tmp_path: Path, postgres_unprepared: PostgresServer) -> SinkUnderTest:
        return under_test(spark, tmp_path, postgres_unprepared.database(f"t{uuid.uuid4().hex}"))


# The transactions are the prepared ones; crash/farmed/test_postgres.py and protocol upsert rows.
@pytest.mark.long
class TestUpsert(SinkContract):
    @pytest.fixture
    def target(self, spark: SparkSession, tmp_path: Path, dsn: str) -> SinkUnderTest:
        return under_test(spark, tmp_path, dsn, mode="upsert", keyColumns="k")


def test_the_handle_says_which_way_and_holds_no_way_to_connect(
    spark: SparkSession, tmp_path: Path, dsn: str, postgres_unprepared: PostgresServer
) -> None:
    plain = postgres_unprepared.database(f"t{uuid.uuid4().hex}")
    for where, way in ((dsn, "prepared"), (plain, "outbox")):
        sink = sink_of(spark, tmp_path / way, where, password="never-shown")
        handle = sink.prepare(spark.createDataFrame([("a", 1)], SCHEMA), transaction(1))
        assert handle is not None
        assert handle["way"] == sink.way == way
        assert "127.0.0.1" not in str(handle)
        assert "never-shown" not in f"{handle}{sink._settings!r}{sink._transactions!r}"
        sink.abort_orphans(QUERY, 1, [])


def test_what_went_one_way_is_committed_by_a_driver_with_other_options(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    for epoch, (first, then) in enumerate([("always", "never"), ("never", "always")], 1):
        old = sink_of(spark, tmp_path, dsn, prepared=first)
        handle = old.prepare(spark.createDataFrame([("a", epoch)], SCHEMA), transaction(epoch))
        orphan = old.prepare(spark.createDataFrame([("b", epoch)], SCHEMA), transaction(epoch, attempt=1))
        if first == "always":
            # Preparing again has rolled back the previous attempt, as it does when an epoch is rerun.
            handle, orphan = orphan, None
        assert handle is not None
        successor = sink_of(spark, tmp_path, dsn, prepared=then)
        successor.commit(handle, lambda: None)
        successor.abort_orphans(QUERY, 1, [])
        assert not orphan or not (tmp_path / "outbox" / "results" / orphan["box"]).exists()
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT k, n FROM out ORDER BY n").fetchall() == [("b", 1), ("a", 2)]
        assert connection.execute("SELECT FROM pg_prepared_xacts WHERE database = current_database()").rowcount == 0


def test_a_decided_transaction_that_was_rolled_back_by_hand_is_lost_and_named(  # X16, X17
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    sink = sink_of(spark, tmp_path, dsn)
    handle = sink.prepare(spark.createDataFrame([("a", 1)], SCHEMA).coalesce(1), transaction(1))
    assert handle is not None
    gid = handle["slots"][0][0]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"ROLLBACK PREPARED '{gid}'".encode())
        with pytest.raises(LostTransactionError, match=rf"Epoch 1 was decided.*{gid}.*1 rows are lost"):
            sink.commit(handle, lambda: None)
        connection.execute(f"DROP TABLE {MARKERS}".encode())
        with pytest.raises(LostTransactionError, match="neither"):
            sink.commit(handle, lambda: None)


@pytest.mark.crash
def test_markers_do_not_pile_up(spark: SparkSession, tmp_path: Path, dsn: str) -> None:
    for way in ("always", "never"):
        sink = sink_of(spark, tmp_path, dsn, prepared=way)
        for epoch in range(5 * (way == "never"), 5 + 5 * (way == "never")):
            handle = sink.prepare(spark.createDataFrame([("a", epoch)], SCHEMA).coalesce(1), transaction(epoch))
            assert handle is not None
            sink.commit(handle, lambda: None)
    with psycopg.connect(dsn) as connection:
        assert connection.execute(f"SELECT epoch FROM {MARKERS}".encode()).fetchall() == [(9,)]


def test_other_queries_and_other_ids_are_left_alone(spark: SparkSession, tmp_path: Path, dsn: str) -> None:
    similar = f"sparkjet/{QUERY.replace('-', '_')}/results/000000-000000001-0/x"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number, gid in enumerate(["mine", similar]):
            connection.execute("BEGIN")
            connection.execute(f"CREATE TABLE t{number} ()".encode())
            connection.execute(f"PREPARE TRANSACTION '{gid}'".encode())
        sink_of(spark, tmp_path, dsn).abort_orphans(QUERY, 9, [])
        found = connection.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY gid")
        assert found.fetchall() == [("mine",), (similar,)]
        for gid in ("mine", similar):
            connection.execute(f"ROLLBACK PREPARED '{gid}'".encode())


def test_of_several_rows_of_a_key_the_greatest_stays_and_a_later_epoch_replaces_it(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    sink = sink_of(spark, tmp_path, dsn, mode="upsert", keyColumns="k")
    for epoch, rows in enumerate([[("a", 1), ("a", 7), ("a", 3), ("b", 1)], [("a", 2)]]):
        handle = sink.prepare(spark.createDataFrame(rows, SCHEMA), transaction(epoch))
        assert handle is not None
        sink.commit(handle, lambda: None)
        with psycopg.connect(dsn) as connection:
            seen = connection.execute("SELECT k, n FROM out ORDER BY k").fetchall()
        assert seen == [("a", 7 if epoch == 0 else 2), ("b", 1)]


@pytest.mark.parametrize("way", ["always", "never"])
def test_rows_that_the_table_would_refuse_are_refused_before_the_decision(
    spark: SparkSession, tmp_path: Path, dsn: str, way: str
) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute('CREATE TABLE out (k text, n bigint NOT NULL, j jsonb, d date, "a""b" text[])')
    schema = 'k string, n long, j struct<s: string>, d date, `a"b` array<string>'
    sink, shape = sink_of(spark, tmp_path, dsn, schema, prepared=way), spark.createDataFrame([], schema).schema
    bad = {
        "'k' has the character NUL|cannot store the character NUL": "'a\\0', 1L, null, null, null",
        "'n' has a null|null value in column": "'a', cast(null as long), null, null, null",
        "'j' has the character NUL|NUL in jsonb": "'a', 1L, named_struct('s', 'x\\0'), null, null",
        "'d' has a time outside|PostgreSQL": "'a', 1L, null, date'0001-01-01' - 1, null",
        "'a\"b' has the character NUL|cannot store the character NUL": "'a', 1L, null, null, array('x\\0')",
    }
    for number, (message, values) in enumerate(bad.items()):
        with pytest.raises(SinkError, match=message):
            sink.prepare(spark.sql(f"SELECT {values}").toDF(*shape.names).to(shape), transaction(number))
    sink.abort_orphans(QUERY, 1, [])
    good = spark.sql("SELECT 'a', 1L, named_struct('s', '\\\\u0000'), date'9999-12-31', array('\\\\', null)")
    handle = sink.prepare(good.toDF(*shape.names).to(shape), transaction(9, takeover=1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    with psycopg.connect(dsn) as connection:
        seen = connection.execute('SELECT k, n, j->>\'s\', d::text, "a""b" FROM out').fetchall()
    assert seen == [("a", 1, "\\u0000", "9999-12-31", ["\\", None])]


@pytest.mark.parametrize("way", ["always", "never"])
def test_markers_tell_up_to_when_the_table_is_complete(spark: SparkSession, tmp_path: Path, dsn: str, way: str) -> None:
    sink = sink_of(spark, tmp_path, dsn, prepared=way, progressInterval="1s")
    rows = spark.createDataFrame([("a", 1)], SCHEMA)
    assert complete_until(dsn, table="out").writers == ()
    for epoch in (1, 2):
        handle = sink.prepare(rows, replace(transaction(epoch), watermark=epoch * 1_000_000))
        assert handle is not None
        sink.commit(handle, lambda: None)
    for name in ("public.out", "Out", '"public"."out"'):
        assert complete_until(dsn, table=name).until == datetime.fromtimestamp(2, timezone.utc)
    with pytest.raises(AnalysisError, match='table: there is no schema "nope"'):
        complete_until(dsn, table="nope.out")
    assert complete_until(dsn, table="other").writers == ()
    # An epoch without rows: a marker alone.
    assert sink.prepare(rows.where("false"), replace(transaction(3), watermark=3_000_000, clock=0)) is None
    assert sink.tells(0, 3_000_000)
    told = sink.tell(replace(transaction(3), watermark=3_000_000))
    for _ in range(2):
        sink.commit(told, lambda: None)
    assert complete_until(dsn, table="out").until == datetime.fromtimestamp(3, timezone.utc)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM out").fetchone() == (2,)
