"""Failures of PostgreSQL: a clear error, no password anywhere, and nothing lost once it is fixed."""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import sparkjet as sj
from sparkjet.connectors.postgres.target import MARKERS
from tests.feed import Feed, rows
from tests.servers.fixtures import REQUIRED
from tests.servers.postgres import GUARDED, PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "s3cret-never-shown"


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "in")


@pytest.fixture
def guarded(postgres: PostgresServer, dsn: str) -> str:
    """The dsn of a user who needs a password."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        exists = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [GUARDED]).rowcount
        if not exists:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(GUARDED), PASSWORD))
        connection.execute(sql.SQL("GRANT CREATE ON SCHEMA public TO {}").format(sql.Identifier(GUARDED)))
    return make_conninfo(dsn, user=GUARDED)


def run(spark: SparkSession, feed: Feed, home: Path, dsn: str, **options: Any) -> None:
    """One run of a query over the feed, to its end."""
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    result = stream.groupBy(sj.window("ts", "10 seconds"), "k").count().select("window.start", "k", "count")
    writer = result.writeStream.format("postgres").options(dsn=dsn, dbtable="out", **options)
    writer.option("checkpointLocation", home / "home").trigger(availableNow=True).start().awaitTermination()


def seen(dsn: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT k, count FROM out ORDER BY start, k").fetchall()


NoPassword = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def no_password(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> NoPassword:
    """A block in which, whatever happens, the password must not appear in any log, output or record."""

    @contextmanager
    def watched() -> Iterator[None]:
        with caplog.at_level(logging.DEBUG, logger="sparkjet"):
            yield
        files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        assert PASSWORD not in "".join(capfd.readouterr()) + caplog.text
        assert not any(PASSWORD.encode() in content for content in files)

    return watched


@pytest.mark.parametrize("way", ["always", pytest.param("never", marks=pytest.mark.long)])
def test_a_wrong_password_is_named_and_never_shown(
    spark: SparkSession,
    feed: Feed,
    tmp_path: Path,
    guarded: str,
    way: str,
    no_password: NoPassword,
) -> None:
    feed.add(*rows([1, 2, 15], k="a"))
    with no_password():
        wrong = f"{PASSWORD}-wrong"
        with pytest.raises(sj.AnalysisError, match="Check the options user and password") as failed:
            run(spark, feed, tmp_path, guarded, password=wrong, prepared=way)
        assert PASSWORD not in f"{failed.getrepr()}"
        run(spark, feed, tmp_path, guarded, password=PASSWORD, prepared=way)
    assert seen(make_conninfo(guarded, password=PASSWORD)) == [("a", 2)]


def test_a_dsn_that_cannot_be_read_is_not_repeated(
    spark: SparkSession, feed: Feed, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    feed.add(*rows([1], k="a"))
    for wrong in (f"host=x {PASSWORD}", f"postgresql://u:{PASSWORD}@[host/x", f"postgresql://u:{PASSWORD}@h:port/x"):
        with pytest.raises(sj.AnalysisError) as failed:
            run(spark, feed, tmp_path, wrong)
        assert PASSWORD not in str(failed.value)
        assert failed.value.__cause__ is None or PASSWORD not in str(failed.value.__cause__)
    assert PASSWORD not in "".join(capfd.readouterr())


BROKEN = {
    "the table is gone": ("ALTER TABLE out RENAME TO gone", "ALTER TABLE gone RENAME TO out", "relation|gone"),
    "no permission": (
        f"REVOKE INSERT ON {MARKERS}, out FROM {GUARDED}; ALTER TABLE out OWNER TO test",
        f"ALTER TABLE out OWNER TO {GUARDED}; GRANT INSERT ON {MARKERS}, out TO {GUARDED}",
        "permission denied.*Grant it to the user",
    ),
    "another type": (
        "ALTER TABLE out ALTER k TYPE int USING 0",
        "ALTER TABLE out ALTER k TYPE text USING k::text; UPDATE out SET k = 'a'",
        "invalid input syntax for type integer",
    ),
    "a column is gone": (
        "ALTER TABLE out RENAME k TO kk",
        "ALTER TABLE out RENAME kk TO k",
        'column "k".*does not exist.*The table has changed',
    ),
}


@pytest.mark.crash
@pytest.mark.parametrize(
    ("fault", "way"),
    [
        ("the table is gone", "always"),
        # The server's other refusals take the same way, and are named in `test_refused.py` and `test_failing.py`.
        pytest.param("no permission", "never", marks=pytest.mark.long),
        pytest.param("no permission", "always", marks=pytest.mark.long),
        pytest.param("another type", "never", marks=pytest.mark.long),
        pytest.param("a column is gone", "always", marks=pytest.mark.long),
    ],
)
def test_a_fault_while_a_query_runs_is_named_and_nothing_is_lost_once_it_is_fixed(
    spark: SparkSession,
    feed: Feed,
    tmp_path: Path,
    dsn: str,
    guarded: str,
    fault: str,
    way: str,
    no_password: NoPassword,
) -> None:
    breaks, repairs, message = BROKEN[fault]
    feed.add(*rows([1, 2, 15], k="a"))
    options = {"password": PASSWORD, "prepared": way}
    run(spark, feed, tmp_path, guarded, **options)
    feed.add(*rows([16, 25], k="a"))
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    result = stream.groupBy(sj.window("ts", "10 seconds"), "k").count().select("window.start", "k", "count")

    def strike(step: sj.EpochPhase, epoch: int) -> None:
        if step is sj.EpochPhase.ADVANCE:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(breaks.encode())

    with no_password():
        writer = result.writeStream.format("postgres").options(dsn=guarded, dbtable="out", **options)
        writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True).onEpochPhase(strike)
        with pytest.raises(sj.SinkError if way == "always" else sj.UnsettledError, match=message):
            writer.start().awaitTermination()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(repairs.encode())
    run(spark, feed, tmp_path, guarded, **options)
    assert seen(dsn) == [("a", 2), ("a", 2)]
    with psycopg.connect(dsn) as connection:
        left = "SELECT FROM pg_prepared_xacts WHERE database = current_database()"
        assert connection.execute(left).rowcount == 0


@pytest.mark.crash
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("way", ["always", pytest.param("never", marks=pytest.mark.long)])
def test_a_full_disk_is_named_and_nothing_is_lost_once_there_is_room(
    spark: SparkSession, feed: Feed, tmp_path: Path, way: str
) -> None:
    with small_disk() as disk, PostgresServer(home=disk, settings={"max_wal_size": "64MB"}) as server:
        dsn = server.database(f"t{uuid.uuid4().hex}")
        feed.add(*rows([1, 2, 15], k="a"))
        run(spark, feed, tmp_path, dsn, prepared=way)
        feed.add(*rows([16, 25], k="b" * 1_000_000 + "".join(uuid.uuid4().hex for _ in range(100_000))))
        filler = disk / "filler"
        fill(disk, filler)
        with pytest.raises(
            (sj.SinkError, sj.UnsettledError, sj.AnalysisError),
            match=r"disk is full: make room|Check that the server runs",
        ):
            run(spark, feed, tmp_path, dsn, prepared=way)
        filler.unlink()
        # PostgreSQL itself may have stopped when it could not write its log.
        server.start()
        run(spark, feed, tmp_path, dsn, prepared=way)
        feed.add(*rows([40], k="c"))
        run(spark, feed, tmp_path, dsn, prepared=way)
        assert [count for _, count in seen(dsn)] == [2, 1, 1, 1]
        assert server.psql(dsn, "SELECT gid FROM pg_prepared_xacts") == []


@contextmanager
def small_disk() -> Iterator[Path]:
    """A file system of 220 MB in memory."""
    disk = Path(tempfile.mkdtemp(prefix="sparkjet-disk-"))
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=220m,mode=777", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if done.returncode:
        disk.rmdir()
        why = "this machine lets nobody mount a small file system; run the tests as root outside a container"
        if os.environ.get(REQUIRED):
            pytest.fail(why)
        pytest.skip(why)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
        disk.rmdir()


def fill(disk: Path, filler: Path) -> None:
    """Fill up a file system, except for a little space."""
    free = os.statvfs(disk)
    with filler.open("wb") as file:
        for _ in range(max(0, free.f_bavail * free.f_frsize // 65_536 - 4)):
            file.write(bytes(65_536))
