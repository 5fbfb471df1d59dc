"""The server that tests start: it starts, survives being killed, and leaves nothing behind."""

from __future__ import annotations

import uuid
from pathlib import Path

import psycopg
import pytest

from tests.servers.fixtures import REQUIRED, serve
from tests.servers.postgres import NoServerError, PostgresServer, binaries


def test_what_was_prepared_outlives_a_killed_server(postgres: PostgresServer) -> None:
    dsn = postgres.database(f"t{uuid.uuid4().hex}")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n int)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("PREPARE TRANSACTION 'kept'")
    killed = postgres.pid
    postgres.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
    postgres.start()
    assert postgres.pid != killed
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("COMMIT PREPARED 'kept'")
    assert postgres.psql(dsn, "SELECT n FROM t") == [["1"]]


def test_a_server_as_it_comes_prepares_nothing(postgres_unprepared: PostgresServer) -> None:
    assert postgres_unprepared.psql(postgres_unprepared.dsn(), "SHOW max_prepared_transactions") == [["0"]]


def test_without_a_server_the_test_is_skipped_and_in_ci_it_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql"):
        next(serve(64, lambda: binaries(tmp_path)))
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(NoServerError, match="apt-get install postgresql"):
        next(serve(64, lambda: binaries(tmp_path)))


def test_root_without_a_user_for_the_server_is_told_so(postgres: PostgresServer) -> None:
    # Programs that were put on the PATH come without the user that Debian's package makes.
    with pytest.raises(NoServerError, match=r"no user nobody-has-this-name .*useradd"):
        binaries(root=True, user="nobody-has-this-name")
    assert (binaries(root=False, user="nobody-has-this-name") / "initdb").exists()
