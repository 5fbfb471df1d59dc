"""Published rows survive a crash of the server, even if settings of server, role or database do not require it."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from sparkjet.connectors.postgres.target import MARKERS, Target
from sparkjet.connectors.postgres.transactions import PostgresTransactions, outbox_handle
from sparkjet.sinks.protocol import Handle, TransactionId
from tests.protocol.rows import batch
from tests.servers.fixtures import serve
from tests.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.crash

APPENDED = Target("public", "out", ("k", "n"))
UPSERTED = replace(APPENDED, keys=("k",))
ROWS = batch(("a", 1), ("b", 2))
RESET = ("ALTER SYSTEM RESET synchronous_commit", "ALTER ROLE test RESET ALL")
LAZY = {
    "server": "ALTER SYSTEM SET synchronous_commit = off",
    "role": "ALTER ROLE test SET synchronous_commit = off",
    "database": "ALTER DATABASE {} SET synchronous_commit = off",
}
"""Settings, by scope, that make a server confirm commits before they are on its disk."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that this module may kill and configure."""
    yield from serve(8)


@pytest.fixture
def lazy(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with the table and the markers, on a server that commits asynchronously from then on."""
    dsn = server.database(name := f"t{uuid.uuid4().hex}")
    configure(server, *RESET)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE out (k text PRIMARY KEY, n int)")
        connection.execute(APPENDED.create_markers())
    configure(server, LAZY[request.param].format(name))
    # A reload takes its time.
    while server.psql(dsn, "SHOW synchronous_commit") != [["off"]]:
        pass
    yield dsn
    server.start()
    configure(server, *RESET)


def configure(server: PostgresServer, *statements: str) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        connection.execute("SELECT pg_reload_conf()")


def crash(server: PostgresServer, act: Callable[[], object]) -> None:
    """Run an action, and kill all processes before the WAL writer has flushed it."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        listing = connection.execute("SELECT pid, backend_type FROM pg_stat_activity").fetchall()
    others = [pid for pid, kind in listing if kind != "client backend"]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        act()
    finally:
        server.kill()
        for pid in others:
            os.kill(pid, signal.SIGKILL)
    server.start()


def transaction(epoch: int = 1) -> TransactionId:
    return TransactionId("00000000-1111-2222-3333-444444444444", "results", 0, epoch, 0)


def written(dsn: str, target: Target, way: str) -> Handle:
    if way == "outbox":
        return outbox_handle(transaction(), target)
    transactions = PostgresTransactions(dsn)
    slot = transactions.writer(target, transaction()).write("0-0", ROWS)
    assert slot is not None
    handle = transactions.fix(target, transaction(), [slot])
    assert handle is not None
    return handle


def publish(dsn: str, handle: Handle) -> None:
    if handle["way"] == "outbox":
        PostgresTransactions(dsn).publish(handle, ROWS)
    else:
        PostgresTransactions(dsn).commit(handle, lambda: None)


@pytest.mark.parametrize(
    ("lazy", "way", "target"),
    [
        ("server", "outbox", APPENDED),
        ("role", "outbox", APPENDED),
        ("database", "outbox", UPSERTED),
        ("server", "prepared", APPENDED),
    ],
    indirect=["lazy"],
    ids=["server", "role", "upsert", "prepared"],
)
def test_what_was_committed_is_there_after_a_crash(server: PostgresServer, lazy: str, way: str, target: Target) -> None:
    crash(server, lambda: publish(lazy, written(lazy, target, way)))
    assert server.psql(lazy, "SELECT k, n FROM out ORDER BY k") == [["a", "1"], ["b", "2"]]
    assert server.psql(lazy, f"SELECT epoch FROM {MARKERS}") == [["1"]]


@pytest.mark.parametrize("lazy", ["server"], indirect=True)
def test_the_crash_of_these_tests_does_lose_what_is_not_on_the_disk(server: PostgresServer, lazy: str) -> None:
    def act() -> None:
        with psycopg.connect(lazy, autocommit=True) as connection:
            connection.execute("INSERT INTO out VALUES ('a', 1)")

    crash(server, act)
    assert server.psql(lazy, "SELECT k FROM out") == []


@pytest.mark.parametrize("lazy", ["server"], indirect=True)
@pytest.mark.parametrize("way", ["outbox", "prepared"])
def test_a_standby_that_others_wait_for_is_waited_for(server: PostgresServer, lazy: str, way: str) -> None:
    handle, is_reset = written(lazy, APPENDED, way), threading.Event()

    def probe() -> None:
        with psycopg.connect(lazy, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = on")
            while not is_reset.is_set():
                connection.execute("SELECT pg_logical_emit_message(true, 'probe', '')")

    def waiting() -> int:
        return len(server.psql(server.dsn(), "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))

    with ThreadPoolExecutor(2) as pool:
        try:
            configure(server, "ALTER SYSTEM SET synchronous_standby_names = nobody")
            # Each server process rereads the setting at its own time; the relevant one has when this waits.
            probing = pool.submit(probe)
            while not waiting():
                assert not probing.done()
            publishing = pool.submit(publish, lazy, handle)
            while not publishing.done() and waiting() == 1:
                pass
            assert not publishing.done()
        finally:
            is_reset.set()
            configure(server, "ALTER SYSTEM RESET synchronous_standby_names")
    publishing.result()
    assert len(server.psql(lazy, "SELECT k FROM out")) == ROWS[0].num_rows
