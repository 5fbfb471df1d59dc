"""The JDBC sink where connections break, others hold locks, and two drivers publish at once."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from sparkjet.connectors.jdbc.settings import JdbcSettings
from sparkjet.connectors.jdbc.sink import JdbcSink
from sparkjet.errors import SinkError
from sparkjet.options import Options
from sparkjet.testing.sink_contract import RUN, SCHEMA, transaction
from tests.mounts import small_disk
from tests.servers.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.servers.jdbc import MariaServer

ROWS = [("a", 1), ("b", 2), ("c", 3)]


@pytest.fixture
def database(jdbc: SparkSession, mariadb: MariaServer) -> str:
    name = f"t{uuid4().hex[:12]}"
    mariadb.sql(f"CREATE DATABASE {name}")
    return name


def sink_of(spark: SparkSession, mariadb: MariaServer, database: str, port: int, more: str = "") -> JdbcSink:
    options = dict(mariadb.options(database))
    return started(spark, {**options, "url": options["url"].replace(str(mariadb.port), str(port)) + more})


def started(spark: SparkSession, options: Mapping[str, str]) -> JdbcSink:
    sink = JdbcSink(JdbcSettings.of(Options({**options, "dbtable": "orders"})), spark)
    sink.check(spark.createDataFrame([], SCHEMA).schema)
    sink.create()
    return sink


@pytest.mark.parametrize("step", [390, pytest.param(130, marks=pytest.mark.long)])
def test_an_answer_that_is_lost_anywhere_doubles_nothing(
    spark: SparkSession, mariadb: MariaServer, database: str, step: int
) -> None:
    """Also that of the COMMIT, after which the driver does not know whether there was one."""
    lost = published = 0
    with TcpProxy(mariadb.port) as proxy:
        sink = sink_of(spark, mariadb, database, proxy.port)
        # What the server says from a commit's login to its end is some kilobytes.
        for epoch, left in enumerate(range(0, 4000, step), 1):
            handle = sink.prepare(spark.createDataFrame([("k", epoch)], SCHEMA), transaction(epoch, run=RUN))
            assert handle is not None
            proxy.left = left
            try:
                sink.commit(handle, lambda: None)
            except SinkError:
                lost += 1
                found = mariadb.sql(f"SELECT COUNT(*) FROM orders WHERE n = {epoch}", database)
                published += int(found[0][0])
            proxy.left = None
            sink.commit(handle, lambda: None)
            assert mariadb.sql("SELECT COUNT(*), COUNT(DISTINCT n) FROM orders", database) == [[str(epoch), str(epoch)]]
    assert 0 < published < lost
    assert mariadb.sql("SHOW TABLES LIKE 'sparkjet\\_%'", database) == [["sparkjet_epochs"]]


def test_a_lock_that_somebody_holds_is_named_and_the_next_try_publishes(
    spark: SparkSession, mariadb: MariaServer, database: str
) -> None:
    wait = "&sessionVariables=innodb_lock_wait_timeout=1"
    sink = sink_of(spark, mariadb, database, mariadb.port, wait)
    first, second = (sink.prepare(spark.createDataFrame(ROWS, SCHEMA), transaction(epoch, run=RUN)) for epoch in (1, 2))
    assert first is not None
    assert second is not None
    sink.commit(first, lambda: None)
    with sink._database.connected() as holder:
        holder.begin()
        holder.execute("UPDATE sparkjet_epochs SET epoch = epoch")
        with pytest.raises(SinkError, match="Lock wait timeout"):
            sink.commit(second, lambda: None)
    sink.commit(second, lambda: None)
    assert mariadb.sql("SELECT COUNT(*) FROM orders", database) == [["6"]]


def test_two_drivers_that_publish_one_epoch_at_once_publish_it_once(
    spark: SparkSession, mariadb: MariaServer, database: str
) -> None:
    sinks = [sink_of(spark, mariadb, database, mariadb.port) for _ in range(2)]
    for epoch in range(1, 6):
        handle = sinks[0].prepare(spark.createDataFrame(ROWS, SCHEMA), transaction(epoch, run=RUN))
        assert handle is not None
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(sink.commit, handle, lambda: None) for sink in sinks]:
                done.result()
        assert mariadb.sql("SELECT COUNT(*) FROM orders", database) == [[str(3 * epoch)]]


def test_a_deadlock_with_somebody_else_costs_a_try_and_no_row(
    spark: SparkSession, mariadb: MariaServer, database: str
) -> None:
    sink = started(spark, {**mariadb.options(database), "mode": "upsert", "keyColumns": "n"})
    handles = [sink.prepare(spark.createDataFrame(ROWS, SCHEMA), transaction(epoch, run=RUN)) for epoch in (1, 2)]
    first, second = handles
    assert first is not None
    assert second is not None
    sink.commit(first, lambda: None)
    publishing = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO orders%'"
    with sink._database.connected() as other, ThreadPoolExecutor(1) as pool:
        other.begin()
        # Enough for the server to take back what the sink has done, which is less.
        other.execute("INSERT INTO orders SELECT 'z', seq FROM seq_100_to_2000")
        other.execute("UPDATE orders SET k = 'held' WHERE n = 2")
        done = pool.submit(sink.commit, second, lambda: None)
        while mariadb.sql(publishing) == [["0"]] and not done.done():
            pass
        other.execute("UPDATE sparkjet_epochs SET epoch = epoch")
        with pytest.raises(SinkError, match="Deadlock"):
            done.result()
        other.roll_back()
    sink.commit(second, lambda: None)
    assert mariadb.sql("SELECT k, n FROM orders ORDER BY n", database) == [["a", "1"], ["b", "2"], ["c", "3"]]
    assert mariadb.sql("SELECT epoch FROM sparkjet_epochs", database) == [["2"]]


def test_a_server_that_only_reads_publishes_when_it_writes_again(
    spark: SparkSession, mariadb: MariaServer, database: str
) -> None:
    # Who may do everything may write there, too.
    mariadb.sql(f"GRANT SELECT, INSERT, UPDATE, CREATE, ALTER, DROP ON {database}.* TO plain IDENTIFIED BY 'plain'")
    sink = started(spark, {**mariadb.options(database), "user": "plain", "password": "plain"})
    rows = spark.createDataFrame(ROWS, SCHEMA)
    mariadb.sql("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(SinkError, match="read-only"):
            sink.prepare(rows, transaction(1, run=RUN))
        mariadb.sql("SET GLOBAL read_only = 0")
        handle = sink.prepare(rows, transaction(1, attempt=1, run=RUN))
        assert handle is not None
        mariadb.sql("SET GLOBAL read_only = 1")
        for publish in (lambda: sink.try_out(handle, []), lambda: sink.commit(handle, lambda: None)):
            with pytest.raises(SinkError, match="read-only"):
                publish()
    finally:
        mariadb.sql("SET GLOBAL read_only = 0")
    sink.commit(handle, lambda: None)
    assert mariadb.sql("SELECT COUNT(*) FROM orders", database) == [["3"]]


def test_a_database_that_is_full_publishes_when_it_has_room_again(jdbc: SparkSession, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 32) as disk:
        url = f"jdbc:h2:{disk.directory}/orders;WRITE_DELAY=0"
        sink = started(jdbc, {"url": url, "driver": "org.h2.Driver"})
        many = jdbc.range(20_000).selectExpr("repeat('x', 100) AS k", "id AS n")
        handle = sink.prepare(many, transaction(1, run=RUN))
        assert handle is not None
        disk.fill()
        with pytest.raises(SinkError):
            # What the database has of the disk already may take one or two.
            _ = [sink.prepare(many, transaction(epoch, run=RUN)) for epoch in range(2, 9)]
        with contextlib.suppress(SinkError):
            sink.commit(handle, lambda: None)
        disk.free()
        sink.commit(handle, lambda: None)
        with sink._database.connected() as connection:
            assert connection.query('SELECT COUNT(*), COUNT(DISTINCT "n") FROM orders') == [("20000", "20000")]
