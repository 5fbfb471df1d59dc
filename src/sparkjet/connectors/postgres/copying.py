"""COPY of batches into a transaction that is then prepared: the part of the sink that runs in the executors.

Spark ships this module to its workers, where sparkjet need not be installed, so it imports nothing from sparkjet
except what is shipped with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from sparkjet.connectors.postgres.batches import copy_batches
from sparkjet.sinks.attempt import attempt

IMPATIENT = "SELECT set_config('lock_timeout', '60s', true) WHERE current_setting('lock_timeout') = '0'"
"""Limits how long this transaction waits for locks; a limit that the user has set is kept.

Otherwise tasks that need the same row would deadlock: they wait until the driver ends what one of them has prepared,
and the driver waits for them."""
BEGIN = f"BEGIN; {IMPATIENT}"
"""Begins a transaction for rows."""
DURABLE = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
"""Makes the end of this transaction wait for the server's disk.

Otherwise a server crash could lose what the server has confirmed, after the stored rows have been removed. Only "off"
is overridden: all other levels wait for the disk, and which standbys to wait for is the user's choice."""
_PINNED = {
    # How rows are read: times without a zone, intervals with a sign, "NULL" in arrays.
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "array_nulls": "on",
    # How statements are read: backslashes in quoted names.
    "standard_conforming_strings": "on",
    # How answers are printed: ages, types by name, and rows that a table refuses.
    "quote_all_identifiers": "off",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    # A snapshot from before a rival's commit would not show that the rival has published the epoch.
    "default_transaction_isolation": "read committed",
}
"""Settings that every session relies on, whatever the dsn, the role or the database sets.

All others are the user's: ``search_path`` resolves the table's name at the start, and the names in trigger functions;
``lock_timeout`` and other timeouts are limits. Names in our statements have a schema; built-in functions and types are
found in any case."""

_BLOCKED = (
    "If transactions of this query block each other (a trigger that updates a row which all of them need, or a unique "
    "index that was created while it ran), start it with prepared=never, which writes with one connection. Otherwise "
    "end the transaction that holds the lock, or set a longer lock_timeout in the dsn: options='-c lock_timeout=10min'."
)
_REMEDIES = {
    "0A000": "What cannot be prepared (a trigger that sends NOTIFY or uses temporary tables, a foreign table) can be "
    "written with the option prepared=never.",
    "22021": "PostgreSQL cannot store the character NUL or invalid UTF-8 in text. Use F.translate or "
    "F.make_valid_utf8.",
    "22P05": "PostgreSQL cannot store the character NUL in jsonb. Remove it before it gets into a struct or map.",
    "40P01": _BLOCKED,
    "28000": "Check the option user and the server's pg_hba.conf.",
    "28P01": "Check the options user and password.",
    "3D000": "Check the option dbname, or create the database.",
    "42501": "Grant it to the user of this query.",
    "42P01": "The table is gone: create it again, or restart the query, which creates it.",
    "42703": "The table has changed: give it the column back, or start with another dbtable.",
    "42804": "The table has changed: give the column its type back, or start with another dbtable.",
    "53100": "The server's disk is full: make room there.",
    "53200": "Raise max_prepared_transactions on the server (writers x 2 at least), or lower the option numPartitions.",
    "53300": "Raise max_connections on the server, or lower the option numPartitions.",
    "55P03": _BLOCKED,
    "55000": "Set max_prepared_transactions on the server, or option prepared=never.",
}
_ELSEWHERE = frozenset({"08", "25", "40", "53", "55", "57", "58", "XX"})
"""Classes of errors that come from the connection, the load or other transactions, not from what is written."""
_STATEMENTS = frozenset({"0A", "0L", "0P", "28", "3D", "3F", "42"})
"""Classes of errors about the login, or about statements whatever their rows; in a trigger, they may depend on them."""
CORRECT = "Correct or leave out such rows in the query, e.g. with where, or change the table."
OF_ROWS = (CORRECT, _REMEDIES["22021"], _REMEDIES["22P05"])
"""Remedies for refused rows, by which the text of a task's error is recognized."""
_UNTRANSLATABLE = "22P05"
_NUL = "\\u0000"
_ENCODING = (
    "The encoding of this database is {}. Use a database that was created with ENCODING 'UTF8', or replace what it "
    "cannot store, e.g. with F.regexp_replace."
)
_HOLDERS = """
SELECT format('%s on %s by %s', mode, relation::regclass,
              coalesce(format('process %s of user %s (%s)', pid, usename, application_name), 'a prepared transaction'))
FROM pg_locks LEFT JOIN pg_stat_activity USING (pid)
WHERE granted AND locktype = 'relation' AND relation >= 16384 AND pid IS DISTINCT FROM pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
UNION ALL (SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts WHERE database = current_database() LIMIT 3)
"""
"""Possible holders of a lock that was not granted: the server names a row, but not its owner."""
_TEXTS = {
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    "pg_hba.conf": "28000",
    "role .* does not exist": "28000",
    "database .* does not exist": "3D000",
    "No space left on device": "53100",
}


class CopyError(Exception):
    """PostgreSQL rejected the rows of a task, or could not be reached; the message says what to do."""


def is_refusal(error: psycopg.Error) -> bool:
    """Whether the server refuses what it was sent, and would refuse it again."""
    return error.sqlstate is not None and error.sqlstate[:2] not in _ELSEWHERE


def blames_rows(error: psycopg.Error) -> bool:
    """Whether the server refuses what it was sent because of the rows, and would accept others."""
    return is_refusal(error) and (error.sqlstate or "")[:2] not in _STATEMENTS


def explain(error: psycopg.Error, noticed: str = "", refused: str = CORRECT) -> str:
    """The server's message and ``noticed``, on one line, and the way out; never the connection string."""
    text = " ".join(f"{error} {noticed}".split())
    state = error.sqlstate or next((state for pattern, state in _TEXTS.items() if re.search(pattern, text)), None)
    if state is None and isinstance(error, psycopg.OperationalError):
        remedy = "Check that the server runs and that the options host and port are right."
    elif state == _UNTRANSLATABLE and _NUL not in text:
        # The message may be in another language, but always ends with the database's own encoding.
        *_, encoding = "another one", *re.findall(r"[A-Z][A-Z0-9_]+", error.diag.message_primary or "")
        remedy = _ENCODING.format(encoding)
    else:
        remedy = _REMEDIES.get(state or "", refused if blames_rows(error) else "")
    return f"PostgreSQL: {text}{'' if text.endswith('.') else '.'} {remedy}".rstrip()


def explain_blocked(error: psycopg.errors.LockNotAvailable, connection: psycopg.Connection[Any]) -> str:
    """Like :func:`explain`, with the possible holders of the lock; rolls back the transaction that waited for it."""
    connection.execute("ROLLBACK")
    noticed = "; ".join(holder for (holder,) in connection.execute(_HOLDERS))
    return explain(error, f"Locks held now: {noticed}." if noticed else "")


def connect(conninfo: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection in autocommit whose session means the same whatever the dsn, the environment or the server sets."""
    connection = psycopg.connect(conninfo, autocommit=True, client_encoding="UTF8")
    try:
        connection.execute("; ".join(f"SET {name} TO {value!r}" for name, value in _PINNED.items()).encode())
    except BaseException:
        connection.close()
        raise
    return connection


@dataclass(frozen=True)
class PreparedWriter:
    """Writes each task's rows into a separate transaction and prepares it; stateless, so any task may run it.

    Attributes:
        conninfo: The connection string; includes the password and is never shown.
        copy: The COPY statement, without its options.
        types: The query for the types of its columns.
        mark: The beginning of the INSERT of a transaction's marker; ``'gid')`` ends it.
        prefix: The prefix of the ids of this epoch's transactions.
        instants: Positions of the columns that are microseconds since 1970.
    """

    conninfo: str = field(repr=False)
    copy: str
    types: str
    mark: str
    prefix: str
    instants: frozenset[int] = frozenset()

    def write(
        self, writer: str, batches: Iterable[pa.RecordBatch], before_prepare: Callable[[], None] = lambda: None
    ) -> tuple[str, int] | None:
        """Prepare a transaction with the rows; returns its id and the number of rows, None without rows.

        A failure before the end leaves nothing behind; a prepared transaction is an orphan unless the driver names it.
        """
        gid = f"{self.prefix}{writer}"
        try:
            with closing(connect(self.conninfo)) as connection:
                try:
                    return self._prepare(connection, gid, batches, before_prepare)
                except psycopg.errors.LockNotAvailable as error:
                    raise CopyError(explain_blocked(error, connection)) from error
        except psycopg.Error as error:
            raise CopyError(explain(error)) from error

    def _prepare(
        self,
        connection: psycopg.Connection[Any],
        gid: str,
        batches: Iterable[pa.RecordBatch],
        before_prepare: Callable[[], None],
    ) -> tuple[str, int] | None:
        with connection.cursor() as cursor:
            cursor.execute(BEGIN)
            rows = copy_batches(cursor, self.copy, self.types, batches, self.instants)
            if rows is None:
                return None
            cursor.execute(f"{self.mark}{sql.Literal(gid).as_string()})".encode())
            before_prepare()
            cursor.execute(sql.SQL(f"{DURABLE}; PREPARE TRANSACTION {{}}").format(gid))
        return gid, rows

    def task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The body of a Spark task, for ``mapInArrow``."""
        return attempt(self.write, batches)
