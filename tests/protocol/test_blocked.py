"""Tasks that wait for each other, or for a foreign lock, time out and name what blocked them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sparkjet.connectors.postgres.copying import CopyError
from sparkjet.connectors.postgres.target import Target
from sparkjet.connectors.postgres.transactions import PostgresTransactions, outbox_handle, prepared
from sparkjet.errors import SinkError
from sparkjet.sinks.protocol import TransactionId
from tests.protocol.rows import batch

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

TARGET = Target("public", "out", ("k", "n"))
TRANSACTION = TransactionId("00000000-1111-2222-3333-444444444444", "results", 3, 7, 0)
SHARED_ROW = """
    CREATE TABLE counter (total int);
    INSERT INTO counter VALUES (0);
    CREATE FUNCTION add() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN UPDATE counter SET total = total + NEW.n; RETURN NEW; END';
    CREATE TRIGGER sum BEFORE INSERT ON out FOR EACH ROW EXECUTE FUNCTION add();
"""
UNIQUE_INDEX = "CREATE UNIQUE INDEX out_k ON out (k)"


@pytest.fixture
def dsn(postgres: PostgresServer) -> str:
    """A database with the table, for a user with a shorter lock timeout."""
    dsn = postgres.database(f"t{uuid.uuid4().hex}")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE out (k text, n int)")
        connection.execute(TARGET.create_markers())
    return make_conninfo(dsn, options="-c lock_timeout=300ms")


@pytest.mark.parametrize(
    ("obstacle", "named"),
    [(SHARED_ROW, 'relation "counter".*function add'), (UNIQUE_INDEX, 'relation "out_k"')],
    ids=["shared row", "unique index"],
)
def test_tasks_that_need_what_another_has_prepared_name_it_and_leave_nothing(
    dsn: str, obstacle: str, named: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(obstacle.encode())
        transactions = PostgresTransactions(dsn)
        writer = transactions.writer(TARGET, TRANSACTION)
        slot = writer.write("0-0", batch(("a", 1)))
        assert slot is not None
        with pytest.raises(CopyError, match=f"lock timeout.*{named}.*prepared=never") as blocked:
            writer.write("1-1", batch(("a", 1)))
        assert f"prepared transaction {slot[0]}" in str(blocked.value)
        assert "\n" not in str(blocked.value)
        # The way out in the error.
        transactions.abort(TRANSACTION)
        assert prepared(connection, "") == []
        assert transactions.publish(outbox_handle(TRANSACTION, TARGET), batch(("a", 1), ("b", 1)))
        assert connection.execute("SELECT k FROM out ORDER BY k").fetchall() == [("a",), ("b",)]


@pytest.mark.parametrize("way", ["prepared", "outbox"])
def test_a_locked_table_is_named_with_its_holder(dsn: str, way: str) -> None:
    ways: dict[str, Callable[[PostgresTransactions], object]] = {
        "prepared": lambda transactions: transactions.writer(TARGET, TRANSACTION).write("0-0", batch(("a", 1))),
        "outbox": lambda transactions: transactions.publish(outbox_handle(TRANSACTION, TARGET), batch(("a", 1))),
    }
    with psycopg.connect(dsn, application_name="nightly job") as holder:
        holder.execute("LOCK TABLE out IN SHARE MODE")
        with pytest.raises(
            (CopyError, SinkError),
            match=rf'ShareLock on "out" by process {holder.info.backend_pid} of user test \(nightly job\).*end the',
        ):
            ways[way](PostgresTransactions(dsn))
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT FROM out").rowcount == 0
        assert prepared(connection, "") == []


@pytest.mark.parametrize(("limit", "applied"), [("0", "1min"), ("7s", "7s")])
def test_a_limit_of_the_users_own_stays_as_it_is(dsn: str, limit: str, applied: str) -> None:
    dsn = make_conninfo(dsn, options=f"-c lock_timeout={limit}")
    with psycopg.connect(dsn, autocommit=True) as connection:
        # The server records the limit that applied to each row.
        connection.execute("ALTER TABLE out ADD applied text DEFAULT current_setting('lock_timeout')")
        transactions = PostgresTransactions(dsn)
        slot = transactions.writer(TARGET, TRANSACTION).write("0-0", batch(("a", 1)))
        assert slot is not None
        handle = transactions.fix(TARGET, TRANSACTION, [slot])
        assert handle is not None
        transactions.commit(handle, lambda: None)
        transactions.publish(outbox_handle(replace(TRANSACTION, epoch=8), TARGET), batch(("b", 1)))
        assert connection.execute("SELECT applied FROM out").fetchall() == [(applied,)] * 2


def test_an_attempt_is_undone_without_touching_any_other(dsn: str) -> None:
    transactions = PostgresTransactions(dsn)
    others = [
        replace(TRANSACTION, attempt=1),
        replace(TRANSACTION, epoch=8),
        replace(TRANSACTION, takeover=2),
        replace(TRANSACTION, sink="other"),
        replace(TRANSACTION, query="other"),
    ]
    for each in (TRANSACTION, *others):
        for task in range(2):
            assert transactions.writer(TARGET, each).write(f"{task}-0", batch(("a", 1)))
    for _ in range(2):
        transactions.abort(TRANSACTION)
    with psycopg.connect(dsn) as connection:
        left = {re.sub(r"/[^/]*$", "/", found.gid) for found in prepared(connection, "")}
    assert left == {transactions.writer(TARGET, each).prefix for each in others}


def test_rows_that_a_trigger_moves_to_another_table_are_not_forgotten(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            """
            CREATE TABLE part () INHERITS (out);
            CREATE FUNCTION route() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN INSERT INTO part SELECT NEW.*; RETURN NULL; END';
            CREATE TRIGGER route BEFORE INSERT ON out FOR EACH ROW EXECUTE FUNCTION route();
            """
        )
        transactions = PostgresTransactions(dsn)
        slot = transactions.writer(TARGET, TRANSACTION).write("0-0", batch(("a", 1)))
        assert slot is not None
        transactions.commit(transactions.fix(TARGET, TRANSACTION, [slot]) or {}, lambda: None)
        handle = {**outbox_handle(replace(TRANSACTION, epoch=8), TARGET), "rows": 1}
        assert transactions.publish(handle, batch(("b", 1)))
        assert connection.execute("SELECT k FROM out ORDER BY k").fetchall() == [("a",), ("b",)]
