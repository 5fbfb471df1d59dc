"""Sessions: no setting changes what is written, read or ended, and what one may not do has a way out that works."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo

from sparkjet.connectors.postgres.copying import CopyError, connect
from sparkjet.connectors.postgres.target import Target
from sparkjet.connectors.postgres.transactions import PostgresTransactions, outbox_handle
from sparkjet.errors import SinkError
from sparkjet.sinks.protocol import TransactionId
from tests.protocol.rows import batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers.postgres import PostgresServer

TRANSACTION = TransactionId("00000000-1111-2222-3333-444444444444", "results", 3, 7, 0)
OUT = Target("public", "out", ("k", "n"))
STRANGE = {
    "DateStyle": ["German, DMY", "SQL, MDY", "Postgres, YMD"],
    "IntervalStyle": ["sql_standard", "iso_8601"],
    "TimeZone": ["Asia/Kathmandu"],
    "standard_conforming_strings": ["off"],
    "array_nulls": ["off"],
    "bytea_output": ["escape"],
    "extra_float_digits": ["-15"],
    "quote_all_identifiers": ["on"],
    "default_transaction_isolation": ["serializable"],
    "search_path": ["elsewhere, pg_temp"],
}
"""Settings that change what a statement means or how a value is printed, with values other than the server's."""
COLUMNS = "t timestamptz, u timestamp, d date, i interval, b bytea, a text[], f double precision, j jsonb, k text"
ROW = {
    "t": pa.array([1], pa.int64()),
    "u": pa.array([1], pa.timestamp("us")),
    "d": pa.array([1], pa.date32()),
    "i": pa.array(["-1 day -2 hour -3 minute -4.000005 second "]),
    "b": pa.array(["\\x00FF"]),
    "a": pa.array(['{"\\\\",NULL}']),
    "f": pa.array([0.1 + 0.2]),
    "j": pa.array(['{"s":"\\\\"}']),
    "k": pa.array(["\\"]),
}
"""A row as the tasks get it: bytes, arrays and intervals are text."""
SHOWN = """SELECT extract(epoch FROM t), extract(epoch FROM u), d - date '1970-01-01', extract(epoch FROM i),
                  encode(b, 'hex'), a[1], a[2] IS NULL, f = 0.1::float8 + 0.2::float8, j->>'s', k FROM "o\\ut" """
EXPECTED = ["0.000001", "0.000001", "1", "-93784.000005", "00ff", "\\", "t", "t", "\\", "\\"]


def settings() -> list[tuple[str, str]]:
    return [(name, value) for name, values in STRANGE.items() for value in values]


def database(server: PostgresServer, *statements: str) -> str:
    dsn = server.database(f"t{uuid.uuid4().hex}")
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in ("CREATE TABLE out (k text, n int)", *statements):
            connection.execute(statement.encode())
        connection.execute(OUT.create_markers())
    return dsn


def write(dsn: str, way: str, target: Target, rows: Sequence[pa.RecordBatch]) -> None:
    transactions = PostgresTransactions(dsn)
    if way == "prepared":
        slot = transactions.writer(target, TRANSACTION).write("0-0", rows)
        assert slot is not None
        # Lists what is prepared, as do commit and the start of a driver.
        handle = transactions.fix(target, TRANSACTION, [slot])
        assert handle is not None
        transactions.commit(handle, lambda: None)
        transactions.abort_orphans(TRANSACTION.query, 4, [])
    else:
        transactions.publish(outbox_handle(TRANSACTION, target), rows)


@pytest.mark.parametrize("way", ["prepared", "outbox", "upsert"])
def test_no_setting_changes_what_is_stored(postgres: PostgresServer, way: str) -> None:
    dsn = database(
        postgres,
        "CREATE SCHEMA elsewhere",
        # What a search path before the temporary tables would find in place of our own.
        "CREATE TABLE elsewhere._sparkjet_rows (k text)",
        f'CREATE TABLE "o\\ut" ({COLUMNS} PRIMARY KEY)',
    )
    target = Target("public", "o\\ut", tuple(ROW), ("k",) if way == "upsert" else (), frozenset({0}))
    rows = [pa.RecordBatch.from_pydict(ROW)]
    all_at_once = " ".join(f"-c {name}={values[0].replace(' ', chr(92) + ' ')}" for name, values in STRANGE.items())
    each = [f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings()]
    for options in [all_at_once, *each]:
        write(make_conninfo(dsn, options=options), way, target, rows)
        assert postgres.psql(dsn, SHOWN) == [EXPECTED], options
        postgres.psql(dsn, 'DELETE FROM "o\\ut"; DELETE FROM _sparkjet_commits')


def test_what_a_role_or_a_database_sets_is_overridden_where_a_statement_depends_on_it(
    postgres: PostgresServer,
) -> None:
    dsn = database(postgres)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for name, value in settings():
            if name != "search_path":
                connection.execute(f"ALTER DATABASE \"{connection.info.dbname}\" SET {name} = '{value}'".encode())
    expected = {
        "DateStyle": "ISO, MDY",
        "IntervalStyle": "postgres",
        "TimeZone": "UTC",
        "standard_conforming_strings": "on",
        "array_nulls": "on",
        "bytea_output": "hex",
        "extra_float_digits": "1",
        "quote_all_identifiers": "off",
        "transaction_isolation": "read committed",
    }
    with connect(dsn) as connection:
        for name, value in expected.items():
            assert connection.execute(f"SHOW {name}".encode()).fetchone() == (value,)


@pytest.mark.parametrize("does", ["NOTIFY news", "CREATE TEMPORARY TABLE scratch () ON COMMIT DROP"])
def test_a_trigger_that_does_what_cannot_be_prepared_is_answered_with_the_option_that_lets_it(
    postgres: PostgresServer, does: str
) -> None:
    function = f"CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {does}; RETURN NEW; END'"
    trigger = "CREATE TRIGGER act BEFORE INSERT ON out FOR EACH ROW EXECUTE FUNCTION act()"
    dsn = database(postgres, function, trigger)
    with pytest.raises(CopyError, match=r"cannot PREPARE.*prepared=never"):
        write(dsn, "prepared", OUT, batch(("a", 1)))
    write(dsn, "outbox", OUT, batch(("a", 1)))
    assert postgres.psql(dsn, "SELECT k FROM out") == [["a"]]


def test_what_another_user_has_prepared_is_named_with_the_user_who_can_end_it(postgres: PostgresServer) -> None:
    owner, other = (f"u{uuid.uuid4().hex}" for _ in range(2))
    grants = [f"CREATE ROLE {name} LOGIN; GRANT ALL ON out, _sparkjet_commits TO {name}" for name in (owner, other)]
    dsn = database(postgres, OUT.create_markers().as_string(), *grants)
    theirs, ours = (PostgresTransactions(make_conninfo(dsn, user=name)) for name in (owner, other))
    slot = theirs.writer(OUT, TRANSACTION).write("0-0", batch(("a", 1)))
    assert slot is not None
    handle = theirs.fix(OUT, TRANSACTION, [slot])
    assert handle is not None
    for end in (lambda: ours.commit(handle, lambda: None), lambda: ours.abort(TRANSACTION)):
        with pytest.raises(SinkError, match=rf'"{owner}".*option user back.*--dsn "user={owner} .*--settle'):
            end()
    theirs.commit(handle, lambda: None)
    assert postgres.psql(dsn, "SELECT k FROM out") == [["a"]]
