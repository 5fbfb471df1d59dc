"""Rows that a table refuses, without Spark: found in a trial, and left out where they were decided."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.sql import types as T

from sparkjet.connectors.postgres.copying import connect
from sparkjet.connectors.postgres.refused import RefusedRows
from sparkjet.connectors.postgres.table import look
from sparkjet.connectors.postgres.transactions import PostgresTransactions, outbox_handle
from sparkjet.connectors.postgres.types import columns_of
from sparkjet.errors import SinkError
from sparkjet.sinks.protocol import TransactionId
from tests.protocol.rows import batch

if TYPE_CHECKING:
    from sparkjet.connectors.postgres.target import Target
    from tests.servers.postgres import PostgresServer

TRANSACTION = TransactionId("00000000-1111-2222-3333-444444444444", "results", 3, 7, 0)
COLUMNS = columns_of(T.StructType([T.StructField("k", T.StringType()), T.StructField("n", T.IntegerType())]))
FUNCTION = """CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN IF NEW.n < 0 THEN RAISE ''no''; END IF; RETURN NEW; END'"""
TABLES = {
    "check": ("CREATE TABLE out (k text, n bigint CHECK (n >= 0))", 'constraint "out_n_check"'),
    "unique": ("CREATE TABLE out (k text, n bigint UNIQUE); INSERT INTO out VALUES ('', -1)", "duplicate key.*n.=.-1"),
    "foreign key": (
        (
            "CREATE TABLE known (n bigint PRIMARY KEY); INSERT INTO known SELECT generate_series(0, 9); "
            "CREATE TABLE out (k text, n bigint REFERENCES known DEFERRABLE INITIALLY DEFERRED)"
        ),
        "violates foreign key",
    ),
    "exclusion": (
        "CREATE TABLE out (k text, n bigint, EXCLUDE (n WITH =)); INSERT INTO out VALUES ('', -1)",
        "exclusion constraint",
    ),
    "trigger": (
        (
            f"CREATE TABLE out (k text, n bigint); {FUNCTION}; "
            "CREATE TRIGGER no BEFORE INSERT ON out FOR EACH ROW EXECUTE FUNCTION no()"
        ),
        "no CONTEXT",
    ),
    "deferred trigger": (
        (
            f"CREATE TABLE out (k text, n bigint); {FUNCTION}; CREATE CONSTRAINT TRIGGER no AFTER INSERT ON out "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no()"
        ),
        "no CONTEXT",
    ),
    "generated column": (
        "CREATE TABLE out (k text, n bigint, root double precision GENERATED ALWAYS AS (sqrt(n)) STORED)",
        "square root of a negative number",
    ),
    "partition": (
        (
            "CREATE TABLE out (k text, n bigint) PARTITION BY RANGE (n); "
            "CREATE TABLE low PARTITION OF out FOR VALUES FROM (0) TO (9)"
        ),
        "no partition of relation",
    ),
}


CASES = [*((case, ()) for case in TABLES), *((case, ("k",)) for case in ("check", "unique", "deferred trigger"))]
"""Tables and keys of an upsert."""


@pytest.fixture
def dsn(postgres: PostgresServer) -> str:
    return postgres.database(f"t{uuid.uuid4().hex}")


def execute(dsn: str, statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statements.encode())


def target_of(dsn: str, keys: tuple[str, ...]) -> Target:
    """The table, which is keyed if need be, and known to refuse rows."""
    if keys:
        execute(dsn, "ALTER TABLE out ADD PRIMARY KEY (k)")
    with connect(dsn) as connection:
        table = look(connection, "out", COLUMNS, keys, create=False)
        assert table.refusals.reasons
        connection.execute(table.target.create_markers())
        return table.target


def seen(dsn: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT k, n FROM out WHERE k <> '' ORDER BY k, n").fetchall()


@pytest.mark.parametrize(("case", "keys"), CASES)
def test_a_row_that_is_refused_is_found_in_a_trial_and_left_out_once_it_is_decided(
    dsn: str, tmp_path: Path, case: str, keys: tuple[str, ...]
) -> None:
    statements, message = TABLES[case]
    execute(dsn, statements)
    target, transactions, rows = target_of(dsn, keys), PostgresTransactions(dsn), [("a", 1), ("b", -1), ("c", 2)]
    with pytest.raises(SinkError, match=rf"{message}.*Correct or leave out such rows in the query"):
        transactions.try_out([(target, batch(*rows))])
    transactions.try_out([(target, batch(rows[0], rows[2]))])
    assert seen(dsn) == []
    handle = outbox_handle(TRANSACTION, target)
    with pytest.raises(SinkError, match=rf"{message}.*Change the table, or .*txns CHECKPOINT .* --refused FILE"):
        transactions.publish(handle, batch(*rows))
    assert seen(dsn) == []
    file, refused = tmp_path / "refused", RefusedRows()
    assert transactions.publish(handle, batch(*rows), partial(refused.save, file), refused.write)
    assert seen(dsn) == [("a", 1), ("c", 2)]
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["row"] == {"k": "b", "n": -1}
    # As the query does when it starts next.
    assert not transactions.publish(handle, batch(*rows))
    assert seen(dsn) == [("a", 1), ("c", 2)]


def test_many_refused_rows_are_left_out_and_all_others_are_there_in_their_order(dsn: str) -> None:
    execute(dsn, "CREATE TABLE out (k text, n bigint CHECK (n % 7 <> 3), i bigint GENERATED ALWAYS AS IDENTITY)")
    target, refused = target_of(dsn, ()), RefusedRows()
    handle = outbox_handle(TRANSACTION, target)
    PostgresTransactions(dsn).publish(handle, batch(*((str(n), n) for n in range(1000))), write=refused.write)
    assert [json.loads(line)["row"]["n"] for line in refused.lines] == [n for n in range(1000) if n % 7 == 3]
    with psycopg.connect(dsn) as connection:
        stored = [n for (n,) in connection.execute("SELECT n FROM out ORDER BY i")]
    assert stored == [n for n in range(1000) if n % 7 != 3]
    assert refused.accepted == len(stored)


def test_of_the_rows_of_a_key_the_greatest_that_is_accepted_stays(dsn: str) -> None:
    execute(dsn, "CREATE TABLE out (k text, n bigint CHECK (n < 5))")
    target, refused = target_of(dsn, ("k",)), RefusedRows()
    rows = batch(("a", 3), ("a", 9), ("a", 4), ("a", 1), ("b", 9), ("c", 2))
    PostgresTransactions(dsn).publish(outbox_handle(TRANSACTION, target), rows, write=refused.write)
    assert seen(dsn) == [("a", 4), ("c", 2)]
    assert sorted(json.loads(line)["row"]["k"] for line in refused.lines) == ["a", "b"]


def test_a_command_that_dies_before_its_commit_has_published_nothing_and_is_repeated(dsn: str, tmp_path: Path) -> None:
    execute(dsn, "CREATE TABLE out (k text, n bigint CHECK (n > 0))")
    target, transactions = target_of(dsn, ()), PostgresTransactions(dsn)
    handle, rows = outbox_handle(TRANSACTION, target), [("a", 1), ("b", -1)]

    def die(refused: RefusedRows) -> None:
        refused.save(tmp_path / "first")
        raise KeyboardInterrupt

    first, second = RefusedRows(), RefusedRows()
    with pytest.raises(KeyboardInterrupt):
        transactions.publish(handle, batch(*rows), partial(die, first), first.write)
    assert seen(dsn) == []
    transactions.publish(handle, batch(*rows), partial(second.save, tmp_path / "second"), second.write)
    assert seen(dsn) == [("a", 1)]
    assert (tmp_path / "first").read_text() == (tmp_path / "second").read_text()


def test_rows_that_are_not_to_blame_stay_as_they_are(dsn: str) -> None:
    execute(dsn, "CREATE TABLE out (k text, n bigint CHECK (n > 0))")
    target, transactions, refused = target_of(dsn, ()), PostgresTransactions(dsn), RefusedRows()
    handle = outbox_handle(TRANSACTION, target)
    obstacles: dict[str, Callable[[], None]] = {
        'relation "public.out" does not exist': lambda: execute(dsn, "ALTER TABLE out RENAME TO gone"),
        "permission denied": lambda: execute(
            dsn,
            "ALTER TABLE gone RENAME TO out; CREATE ROLE outsider LOGIN; GRANT ALL ON _sparkjet_commits TO outsider",
        ),
    }
    for message, hinder in obstacles.items():
        hinder()
        user = "outsider" if message == "permission denied" else "test"
        with pytest.raises(SinkError, match=message):
            PostgresTransactions(f"{dsn} user={user}").publish(handle, batch(("a", 1)), write=refused.write)
        assert (refused.lines, refused.accepted) == ([], 0)
    execute(dsn, "DROP OWNED BY outsider; DROP ROLE outsider")
    assert transactions.publish(handle, batch(("a", 1)), write=refused.write)
    assert seen(dsn) == [("a", 1)]


def test_rows_of_an_earlier_output_are_there_in_the_trial(dsn: str) -> None:
    execute(
        dsn, "CREATE TABLE parent (k text PRIMARY KEY, n int); CREATE TABLE out (k text REFERENCES parent, n bigint)"
    )
    target, transactions = target_of(dsn, ()), PostgresTransactions(dsn)
    parents = replace(target, table="parent")
    with pytest.raises(SinkError, match="violates foreign key"):
        transactions.try_out([(target, batch(("a", 1)))])
    transactions.try_out([(parents, batch(("a", 1))), (target, batch(("a", 1)))])
    with pytest.raises(SinkError, match="duplicate key"):
        transactions.try_out([(parents, batch(("a", 1))), (parents, batch(("a", 2)))])
