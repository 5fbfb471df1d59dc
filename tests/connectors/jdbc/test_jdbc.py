"""The JDBC sink: the contract of all sinks on MariaDB and H2, and its own behaviour."""

from __future__ import annotations

import json
import logging
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F

from sparkjet.catalyst.jdbc import may_pass
from sparkjet.connectors.jdbc.database import Connection, Database
from sparkjet.connectors.jdbc.settings import JdbcSettings
from sparkjet.connectors.jdbc.sink import JdbcSink
from sparkjet.engine.phases import EpochPhase
from sparkjet.errors import AnalysisError, LostTransactionError, RefusedRowsError, SinkError
from sparkjet.options import Options
from sparkjet.testing.sink_contract import QUERY, RUN, SCHEMA, SinkContract, SinkUnderTest, transaction
from sparkjet.testing.stream_driver import StreamDriver
from sparkjet.tools import complete_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.sinks.protocol import Handle
    from tests.servers.jdbc import MariaServer


def sink_of(spark: SparkSession, options: Mapping[str, str], schema: str = SCHEMA, **more: str) -> JdbcSink:
    sink = JdbcSink(JdbcSettings.of(Options({"dbtable": "orders", **options, **more})), spark)
    sink.check(spark.createDataFrame([], schema).schema)
    sink.create()
    return sink


def read(spark: SparkSession, options: Mapping[str, str], table: str = "orders") -> DataFrame:
    return spark.read.format("jdbc").options(**options, dbtable=table).load()


@pytest.fixture
def maria(jdbc: SparkSession, mariadb: MariaServer) -> Mapping[str, str]:
    name = f"t{uuid4().hex[:12]}"
    mariadb.sql(f"CREATE DATABASE {name}")
    return mariadb.options(name)


@pytest.fixture
def h2(jdbc: SparkSession) -> Mapping[str, str]:
    return {"url": f"jdbc:h2:mem:t{uuid4().hex[:12]};DB_CLOSE_DELAY=-1", "driver": "org.h2.Driver"}


class OnADatabase(SinkContract):
    def target_on(self, spark: SparkSession, options: Mapping[str, str]) -> SinkUnderTest:
        sink = sink_of(spark, options)

        def staged() -> int:
            with sink._database.connected() as connection:
                place = connection.place("orders")
                assert place is not None
                return sum(each.lower().startswith("sparkjet_") for each in connection.tables(place)) - 1

        executed(
            sink, f"ALTER TABLE orders ADD CONSTRAINT small CHECK ({sink._database.dialect.quoted('n')} < 1000000)"
        )

        def found() -> list[tuple[str, int]]:
            return [(row.k, row.n) for row in read(spark, options).collect()]

        return SinkUnderTest(sink, found, staged, lambda rows: rows.withColumn("n", F.lit(2_000_000)))


class TestOnMariaDB(OnADatabase):
    """In CI, without what H2 does: statements are the same but for what each database spells in its own way."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_an_epoch_without_rows_prepares_nothing",
        "test_a_repeated_commit_changes_nothing",
        "test_a_driver_that_was_itself_taken_over_rolls_back_nothing_of_its_successor",
        "test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision",
        "test_a_driver_that_slept_for_epochs_and_commits_again_changes_nothing",
        "test_it_knows_later_epochs_or_says_that_it_cannot",
        "test_what_a_copy_of_the_home_has_published_is_not_taken_for_its_own",
        "test_a_query_goes_on_from_a_copy_of_its_home",
    )

    @pytest.fixture
    def target(self, spark: SparkSession, maria: Mapping[str, str]) -> SinkUnderTest:
        return self.target_on(spark, maria)


class TestOnH2(OnADatabase):
    """In CI, what MariaDB does not do there, and what databases refuse."""

    OFTEN = (
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_orphans_of_earlier_drivers_are_rolled_back_but_not_the_decided",
        "test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision",
    )

    @pytest.fixture
    def target(self, spark: SparkSession, h2: Mapping[str, str]) -> SinkUnderTest:
        return self.target_on(spark, h2)


@pytest.fixture(params=["maria", "h2"])
def options(request: pytest.FixtureRequest) -> Mapping[str, str]:
    found: Mapping[str, str] = request.getfixturevalue(request.param)
    return found


def published(sink: JdbcSink, rows: DataFrame, epoch: int = 1) -> Handle:
    handle = sink.prepare(rows, transaction(epoch, run=RUN))
    assert handle is not None
    sink.try_out(handle, [])
    # As from the record of another process.
    sink.commit(json.loads(json.dumps(handle)), lambda: None)
    return handle


def executed(sink: JdbcSink, statement: str) -> None:
    with sink._database.connected() as connection:
        connection.execute(statement)


EVERY = """n long, i int, s short, b byte, f float, d double, dec decimal(20, 6), yes boolean, bin binary, day date,
    ts timestamp, text string"""


def test_values_are_what_sparks_own_writer_makes_of_them(spark: SparkSession, options: Mapping[str, str]) -> None:
    rows = spark.createDataFrame(
        [
            (2**62, -(2**31), 7, -8, 1.5, -0.25, Decimal("12345678901234.567891"), True, b"\x00\xff",
             date(2026, 3, 29), datetime(2026, 11, 26, 2, 30, 1), "a'b`c\"d\\\u20ac"),
            (None,) * 12,
            (0, 0, 0, 0, 0.0, 1e300, Decimal(0), False, b"", date(1970, 1, 1), datetime(1999, 12, 31), ""),
        ],
        EVERY,
    )  # fmt: skip
    sink = sink_of(spark, options, EVERY)
    assert published(sink, rows)["rows"] == 3
    rows.write.format("jdbc").options(**options, dbtable="of_spark").save()
    own, sparks = (read(spark, options, table).orderBy("n") for table in ("orders", "of_spark"))
    assert own.collect() == sparks.collect()
    assert own.dtypes == sparks.dtypes


def test_upserts_replace_rows_by_their_key(spark: SparkSession, options: Mapping[str, str]) -> None:
    types = {"createTableColumnTypes": "k VARCHAR(40)"}
    sink = sink_of(spark, options, "k string, n long, v string", mode="upsert", keyColumns="k, n", **types)
    published(sink, spark.createDataFrame([("a", 1, "x"), ("b", 1, None)], "k string, n long, v string"))
    # Of several rows of an epoch the greatest one stays, wherever it comes from; null is the least.
    more = [("a", 1, None), ("a", 1, "z"), ("a", 1, "y"), ("c", 2, "w")]
    published(sink, spark.createDataFrame(more, "k string, n long, v string"), 2)
    assert sorted(map(tuple, read(spark, options).collect())) == [("a", 1, "z"), ("b", 1, None), ("c", 2, "w")]
    with pytest.raises(SinkError, match=r"no value in 'k'.*IS NOT NULL|'k' cannot be null") as refused:
        sink.prepare(spark.createDataFrame([(None, 1, "x")], "k string, n long, v string"), transaction(3))
    assert options.get("password", "?") not in str(refused.value)


def test_a_row_does_not_replace_one_whose_key_the_database_takes_for_its_own(
    spark: SparkSession, maria: Mapping[str, str]
) -> None:
    """As by default, where case and trailing spaces do not count."""
    upsert = {"mode": "upsert", "keyColumns": "n, k", "createTableColumnTypes": "k VARCHAR(20)"}
    sink = sink_of(spark, maria, **upsert)
    published(sink, spark.createDataFrame([("Shop", 1), ("b", 1)], SCHEMA))
    for attempt, (rows, one, other) in enumerate(
        [([("shop", 1)], "Shop", "shop"), ([("c", 1), ("c ", 1), ("C", 2)], "c", "c ")]
    ):
        handle = sink.prepare(spark.createDataFrame(rows, SCHEMA), transaction(2, attempt=attempt))
        assert handle is not None
        with pytest.raises(SinkError, match=f"keys '{one}' and '{other}', which are one by the collation of .k."):
            sink.try_out(handle, [])
        sink.abort(transaction(2, attempt=attempt))
    assert sorted(map(tuple, read(spark, maria).collect())) == [("Shop", 1), ("b", 1)]
    executed(sink, "ALTER TABLE orders MODIFY k VARCHAR(20) COLLATE utf8mb4_nopad_bin NOT NULL")
    published(sink_of(spark, maria, **upsert), spark.createDataFrame([("shop", 1), ("b ", 1)], SCHEMA), 2)
    assert read(spark, maria).count() == 4


def test_a_table_that_loses_its_transactions_in_mid_query_is_not_written_to(
    spark: SparkSession, maria: Mapping[str, str]
) -> None:
    """Rows that are tried out would stay there, and be there twice."""
    sink = sink_of(spark, maria)
    published(sink, spark.createDataFrame([("a", 1)], SCHEMA))
    handle = sink.prepare(spark.createDataFrame([("b", 2)], SCHEMA), transaction(2, run=RUN))
    assert handle is not None
    executed(sink, "ALTER TABLE orders ENGINE=Aria")
    why = r"changed while the query was running\..*engine Aria"
    with pytest.raises(SinkError, match=why):
        sink.try_out(handle, [])
    with pytest.raises(SinkError, match=why):
        sink.commit(handle, lambda: None)
    assert read(spark, maria).count() == 1


def test_columns_that_are_called_like_our_own_are_refused(spark: SparkSession, h2: Mapping[str, str]) -> None:
    with pytest.raises(AnalysisError, match='"Sparkjet_Row" is a column of the tables in which rows wait'):
        sink_of(spark, h2, "k string, Sparkjet_Row long")


def test_what_does_not_fit_fails_before_the_decision(spark: SparkSession, maria: Mapping[str, str]) -> None:
    sink = sink_of(spark, maria, createTableColumnTypes="k VARCHAR(3)")
    executed(sink, f"CREATE UNIQUE INDEX once ON orders ({sink._database.dialect.quoted('n')})")
    with pytest.raises(RefusedRowsError, match=r"Unknown column 'NaN' .*no such number in this database"):
        sink.prepare(spark.sql("SELECT 'a' AS k, double('NaN') AS n"), transaction(1))
    sink.abort(transaction(1))
    with pytest.raises(SinkError, match=r"(?i)jdbc: orders: .*too long"):
        sink.prepare(spark.createDataFrame([("abcd", 1)], SCHEMA), transaction(1))
    sink.abort(transaction(1))
    handle = sink.prepare(spark.createDataFrame([("a", 1), ("b", 1)], SCHEMA), transaction(1, attempt=1))
    assert handle is not None
    with pytest.raises(SinkError, match=r"(?i)unique|duplicate"):
        sink.try_out(handle, [])
    sink.abort(transaction(1, attempt=1))
    published(sink, spark.createDataFrame([("a", 1)], SCHEMA))
    assert read(spark, maria).count() == 1


@pytest.mark.parametrize("upsert", [{}, {"mode": "upsert", "keyColumns": "n"}], ids=["append", "upsert"])
def test_rows_that_are_gone_are_named_and_nothing_is_published(
    spark: SparkSession, options: Mapping[str, str], upsert: Mapping[str, str]
) -> None:
    sink = sink_of(spark, options, **upsert)
    handle = sink.prepare(spark.createDataFrame([("a", 1), ("b", 2)], SCHEMA), transaction(1, run=RUN))
    assert handle is not None
    statements = sink._statements_of(handle)
    executed(sink, f"DELETE FROM {statements.beside(handle['staging'])} WHERE {statements.quoted('n')} = 1")
    for _ in range(2):
        with pytest.raises(LostTransactionError, match=r"2 rows for orders, .* not say that they were published"):
            sink.commit(handle, lambda: None)
        sink._drop(statements, handle["staging"])
    assert read(spark, options).count() == 0


def test_rows_that_are_gone_before_the_decision_are_not_called_lost(spark: SparkSession, h2: Mapping[str, str]) -> None:
    sink = sink_of(spark, h2)
    handle = sink.prepare(spark.createDataFrame([("a", 1)], SCHEMA), transaction(1, run=RUN))
    assert handle is not None
    # As a successor does with what a paused driver has prepared.
    sink.abort_orphans(QUERY, 1, [])
    with pytest.raises(SinkError, match="gone before its decision"):
        sink.try_out(handle, [])


@pytest.mark.parametrize("options", ["maria", pytest.param("h2", marks=pytest.mark.long)], indirect=True)
def test_a_table_that_a_dead_task_still_holds_is_left_to_the_next_start(
    spark: SparkSession, options: Mapping[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    sink = sink_of(spark, options)
    handle = sink.prepare(spark.createDataFrame([("a", 1)], SCHEMA), transaction(1, run=RUN))
    assert handle is not None
    statements = sink._statements_of(handle)
    staged = statements.beside(handle["staging"])
    with sink._database.connected() as dead:
        dead.begin()
        dead.execute(f"INSERT INTO {staged} ({statements.quoted('sparkjet_row')}) VALUES (-1)")
        sink.abort_orphans(QUERY, 1, [])
    assert f"table {handle['staging']} is left to the next start" in caplog.text
    sink.abort_orphans(QUERY, 1, [])
    with sink._database.connected() as connection:
        assert not connection.exists(staged)


def test_a_query_writes_each_row_once_though_the_server_is_killed(
    spark: SparkSession, maria: Mapping[str, str], mariadb: MariaServer, tmp_path: Path
) -> None:
    def sink() -> JdbcSink:
        return JdbcSink(JdbcSettings.of(Options({**maria, "dbtable": "orders"})), spark)

    def driver() -> StreamDriver:
        schema = spark.createDataFrame([], SCHEMA).schema
        return StreamDriver(spark, lambda rows: rows, schema, sinks=[sink()], directory=tmp_path / "home")

    query = driver()
    query.process([("a", 1)])
    with query.crash(at=EpochPhase.DECIDE):
        query.process([("b", 2), ("c", 3)])
    mariadb.restart()
    again = driver()
    again.process([("d", 4)])
    again.stop()
    assert sorted(mariadb.sql("SELECT k, n FROM orders", maria["url"].split("/")[3].partition("?")[0])) == [
        ["a", "1"], ["b", "2"], ["c", "3"], ["d", "4"],
    ]  # fmt: skip


def test_a_schema_whose_name_is_a_pattern_is_not_taken_for_another(spark: SparkSession, h2: Mapping[str, str]) -> None:
    settings = JdbcSettings.of(Options({**h2, "dbtable": "orders"}))
    with Database(spark, settings).connected() as connection:
        for schema in ("my_shop", "my1shop"):
            connection.execute(f"CREATE SCHEMA {schema}")
            null = "NOT NULL DEFAULT 0" if schema == "my_shop" else "NULL"
            connection.execute(f'CREATE TABLE {schema}.orders ("k" VARCHAR, "n" BIGINT {null})')
    sink = sink_of(spark, h2, dbtable="my_shop.orders")
    # An INSERT need not have a value, but if it has one it must not be null.
    assert sink.required == ["n"]
    published(sink, spark.createDataFrame([("a", 1)], SCHEMA))
    assert [read(spark, h2, f"{schema}.orders").count() for schema in ("my_shop", "my1shop")] == [1, 0]


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_rows_of_another_user_are_not_tried_out_with_the_querys(user: str) -> None:
    ann, other = (
        JdbcSettings.of(Options({"url": "jdbc:h2:mem:x", "dbtable": "orders", "user": each})) for each in ("ann", user)
    )
    assert (ann.account == other.account) == (user == "ann")


def test_a_table_that_another_query_creates_at_the_same_time_is_taken(
    spark: SparkSession, options: Mapping[str, str]
) -> None:
    settings = JdbcSettings.of(Options({**options, "dbtable": "orders"}))
    with Database(spark, settings).connected() as connection:
        for _ in range(2):
            connection.create("orders", "CREATE TABLE orders (k INT)")
        with pytest.raises(Py4JJavaError):
            connection.create("others", "CREATE TABLE others (k NO_TYPE)")


def test_a_restored_home_goes_on_by_what_the_error_says(spark: SparkSession, options: Mapping[str, str]) -> None:
    sink = sink_of(spark, options)
    for epoch in (1, 2):
        published(sink, spark.createDataFrame([("a", epoch)], SCHEMA), epoch)
    later = sink.published_after(transaction(1, run=RUN), None)
    assert later is not None
    executed(sink, later[later.index("UPDATE") :].rstrip(";"))
    assert sink.published_after(transaction(1, run=RUN), None) is None
    again = sink.prepare(spark.createDataFrame([("b", 2)], SCHEMA), transaction(2, takeover=1, run="bbbbbbbb", since=1))
    assert again is not None
    sink.commit(again, lambda: None)
    assert read(spark, options).where("k = 'b'").count() == 1


def test_of_a_task_that_runs_twice_the_second_one_fails_and_says_so(
    spark: SparkSession, maria: Mapping[str, str]
) -> None:
    # Not H2, of whose jar Spark's own class loader does not know, so that it cannot read what a task has raised.
    sink = sink_of(spark, maria)
    rows = spark.createDataFrame([("a", 1)], SCHEMA)
    handle = sink.prepare(rows, transaction(1, run=RUN))
    assert handle is not None
    staged = sink._statements().beside(handle["staging"])
    with pytest.raises(SinkError, match="a task was repeated"):
        sink._write(read(spark, maria, staged), staged)
    sink.commit(handle, lambda: None)
    assert read(spark, maria).count() == 1


def test_a_statement_for_each_connection_may_have_a_result(spark: SparkSession, options: Mapping[str, str]) -> None:
    sink = sink_of(spark, options, sessionInitStatement="SELECT 1")
    published(sink, spark.createDataFrame([("a", 1)], SCHEMA))
    assert read(spark, options).count() == 1


class Refused:
    """As py4j has an SQLException."""

    _target_id = "o1"

    def __init__(self, state: str | None, code: int) -> None:
        self._state, self._code = state, code

    def getSQLState(self) -> str | None:
        return self._state

    def getErrorCode(self) -> int:
        return self._code


def test_a_table_that_somebody_else_has_locked_is_not_missing() -> None:
    class Driver:
        refused = Refused("42S02", 1146)

        def prepareStatement(self, statement: str) -> None:
            raise Py4JJavaError(statement, self.refused)

        def isValid(self, seconds: int) -> bool:
            return seconds > 0

    driver = Driver()
    assert not Connection(driver).exists("orders")
    driver.refused = Refused("HY000", 1205)
    with pytest.raises(Py4JJavaError):
        Connection(driver).exists("orders")


@pytest.mark.parametrize(
    ("state", "code", "passes"),
    [
        ("40001", 1213, True),
        ("HY000", 1205, True),
        ("HYT00", 50200, True),
        ("08000", 0, True),
        ("23000", 1062, False),
        ("22001", 1406, False),
        (None, 0, False),
    ],
)
def test_what_another_writer_is_in_the_way_of_is_tried_again(state: str | None, code: int, passes: bool) -> None:
    assert may_pass(Py4JJavaError("", Refused(state, code))) == passes
    assert not may_pass(SinkError("refused"))


def test_a_lock_of_another_writer_does_not_end_the_trial(
    spark: SparkSession, maria: Mapping[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    quick = {"sessionInitStatement": "SET innodb_lock_wait_timeout = 1"}
    sink = sink_of(spark, maria, mode="upsert", keyColumns="n", **quick)
    published(sink, spark.createDataFrame([("a", 1)], SCHEMA))
    handle = sink.prepare(spark.createDataFrame([("b", 1)], SCHEMA), transaction(2, run=RUN))
    assert handle is not None
    with sink._database.connected() as other:
        other.begin()
        other.execute("UPDATE orders SET k = 'c'")

        class Leave(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                other.roll_back()

        leave = Leave(logging.WARNING)
        logging.getLogger("sparkjet").addHandler(leave)
        try:
            sink.try_out(handle, [])
        finally:
            logging.getLogger("sparkjet").removeHandler(leave)
    assert "Lock wait timeout" in caplog.text


def test_what_is_open_when_a_connection_ends_is_rolled_back_by_us_and_not_left_to_the_driver() -> None:
    calls = []

    class Driver:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: calls.append(name)

    connection = Connection(Driver())
    connection.begin()
    connection.close()
    assert calls == ["setAutoCommit", "rollback", "close"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:h2:mem:shop;DB_CLOSE_DELAY=-1", "jdbc:h2:mem:shop"),
        ("jdbc:mysql://db:3306/shop?user=ann&password=s3@cret", "jdbc:mysql://db:3306/shop"),
        ("jdbc:mysql://ann:s3@cret@db:3306/shop", "jdbc:mysql://db:3306/shop"),
        ("jdbc:mysql://ann:s3/cret==@db:3306/shop?a=b", "jdbc:mysql://db:3306/shop"),
        ("jdbc:mysql://ann:s3?;cret@db/shop?user=x@y", "jdbc:mysql://db/shop"),
        ("jdbc:mysql://address=(host=db)(user=ann)(password=s3cret)/shop", "jdbc:mysql://address"),
        ("jdbc:mysql:loadbalance://(host=db,password=s3cret)/shop", "jdbc:mysql:loadbalance://"),
        ("jdbc:sqlserver://db:1433;user=sa;password=s3@cret", "jdbc:sqlserver://db:1433"),
        ("jdbc:oracle:thin:scott/s3cret@//db:1521/shop", "jdbc:oracle:thin://db:1521/shop"),
        ('jdbc:oracle:oci:scott/"s3@cret"@shop', "jdbc:oracle:oci:shop"),
        ("JDBC:ORACLE:THIN:scott/s3cret@shop", "JDBC:ORACLE:THIN:shop"),
        ("jdbc:db2://db:50000/shop:password=s3cret;user=ann;", "jdbc:db2://db:50000/shop:password"),
        ("jdbc:teradata://db/USER=ann,PASSWORD=s3cret", "jdbc:teradata://db/USER"),
    ],
)
def test_no_part_of_a_password_in_a_url_is_shown(url: str, shown: str) -> None:
    settings = JdbcSettings.of(Options({"url": url, "dbtable": "orders"}))
    assert settings.shown == shown
    assert "s3" not in repr(settings)
    assert "cret" not in repr(settings)


@pytest.mark.parametrize("made", ["", "CREATE TABLE orders (k INT, n BIGINT)"])
@pytest.mark.parametrize("kind", ["array<string>", "struct<a: int>", "map<string, int>", "interval day", "variant"])
def test_types_that_spark_writes_into_no_database_are_refused(
    spark: SparkSession, h2: Mapping[str, str], made: str, kind: str
) -> None:
    if made:
        with Database(spark, JdbcSettings.of(Options({**h2, "dbtable": "orders"}))).connected() as connection:
            connection.execute(made)
    with pytest.raises(AnalysisError, match=r"cannot write these columns: .*to_json\(column\)"):
        sink_of(spark, h2, f"k {kind}, n long")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"url": "jdbc:mysql://ann:s3cret@db/shop", "driver": "org.mariadb.jdbc.Driver"}, "permitMysqlScheme"),
        ({"url": "jdbc:h2:nowhere;PASSWORD=s3cret"}, "jdbc:h2:nowhere"),
        ({"batchsize": "0", "password": "s3cret"}, "batchsize"),
        ({"queryTimeout": "soon", "password": "s3cret"}, "soon"),
        ({"isolationLevel": "SOME", "password": "s3cret"}, "SOME"),
        ({"createTableColumnTypes": "k VARCHAR(", "password": "s3cret"}, "cannot write these columns"),
    ],
)
def test_what_spark_refuses_is_an_error_of_the_start_without_secrets(
    spark: SparkSession, h2: Mapping[str, str], more: Mapping[str, str], message: str
) -> None:
    with pytest.raises(AnalysisError, match=message) as refused:
        sink_of(spark, {**h2, **more})
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    ("made", "more", "message"),
    [
        (
            "CREATE TABLE orders (k TEXT, n BIGINT) ENGINE=MyISAM",
            {},
            "engine MyISAM, which has no transactions.*InnoDB",
        ),
        ("CREATE TABLE orders (k TEXT, n BIGINT) ENGINE=Aria", {}, "engine Aria, which has no transactions"),
        ("CREATE TABLE orders (k TEXT)", {}, 'no column "n"'),
        ("CREATE TABLE orders (k TEXT, n BIGINT, x INT NOT NULL)", {}, '"x" is NOT NULL without a default'),
        ("CREATE TABLE orders (k TEXT, n BIGINT AS (length(k)))", {}, '"n" is computed by the database'),
        ("CREATE VIEW orders AS SELECT 'a' AS k, 1 AS n", {}, "not a table"),
        ("CREATE TABLE orders (k TEXT, n BIGINT)", {"mode": "upsert", "keyColumns": "n"}, "no primary key or unique"),
        (
            "CREATE TABLE orders (k INT UNIQUE, n BIGINT PRIMARY KEY)",
            {"mode": "upsert", "keyColumns": "n"},
            "another unique index, on \\(k\\)",
        ),
        (
            "CREATE TABLE orders (k TEXT, n BIGINT, UNIQUE (k(3)))",
            {"mode": "upsert", "keyColumns": "k"},
            "only the beginning of k",
        ),
        ("", {"password": "wrong"}, "Access denied"),
        ("", {"driver": "org.nobody.Driver"}, "spark.jars.packages"),
        ("", {"url": "jdbc:mariadb://127.0.0.1:PORT/NAME"}, "permitMysqlScheme"),
        ("", {"url": "URL&sessionVariables=sql_mode=''"}, "change values that do not fit.*STRICT_TRANS_TABLES"),
        (
            "",
            {
                "url": "URL&sessionVariables=sql_mode=''",
                "sessionInitStatement": "SET sql_mode = 'STRICT_TRANS_TABLES'",
            },
            "change values that do not fit",
        ),
        ("", {"mode": "upsert", "keyColumns": "x"}, "no column 'x' in the result"),
        ("", {"dbtable": "(SELECT 'a' AS k, 1 AS n) o"}, r'dbtable: "\(SELECT .* is not the name of a table'),
        ("CREATE TABLE orders (k TEXT, n BIGINT)", {"dbtable": "orders o"}, "is not the name of a table"),
        ("CREATE TABLE orders (k TEXT, n BIGINT)", {"dbtable": "orders;"}, "is not the name of a table"),
    ],
)
def test_a_start_that_would_lose_rows_is_refused(
    spark: SparkSession,
    maria: Mapping[str, str],
    mariadb: MariaServer,
    made: str,
    more: Mapping[str, str],
    message: str,
) -> None:
    name = maria["url"].split("/")[3].partition("?")[0]
    if made:
        mariadb.sql(made, name)
    url = more.get("url", "URL").replace("URL", maria["url"]).replace("PORT", str(mariadb.port)).replace("NAME", name)
    with pytest.raises(AnalysisError, match=message) as refused:
        sink_of(spark, {**maria, **more, "url": url})
    assert maria["password"] not in str(refused.value)


def test_an_epoch_without_rows_tells_the_watermark_in_the_row_of_the_output(
    jdbc: SparkSession, h2: Mapping[str, str]
) -> None:
    sink = sink_of(jdbc, h2)
    handle = sink.prepare(jdbc.createDataFrame([("a", 1)], SCHEMA), replace(transaction(1), watermark=5))
    assert handle is not None
    sink.commit(handle, lambda: None)
    told = sink.tell(replace(transaction(2), watermark=7))
    sink.try_out(told, [(sink, told)])
    for _ in range(2):
        sink.commit(told, lambda: None)
    sink.abort(transaction(2))
    [row] = read(jdbc, h2, '"sparkjet_epochs"').collect()
    assert (row["epoch"], row["watermark"], read(jdbc, h2).count()) == (2, 7, 1)
    found = complete_until(h2["url"], table="orders", driver=h2["driver"])
    assert [each.epoch for each in found.writers] == [2]
    assert found.until == datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=7)
    with pytest.raises(AnalysisError, match="the table sparkjet_epochs beside it cannot be read"):
        complete_until(h2["url"], table="information_schema.orders", driver=h2["driver"])
    # A thread that has made no session: none is active there.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(complete_until, h2["url"], table="orders", driver=h2["driver"]).result() == found
