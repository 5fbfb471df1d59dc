"""The two-phase protocol with PostgreSQL, without Spark: ids, commits, markers and orphans."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from sparkjet.connectors.postgres.batches import copy_batches
from sparkjet.connectors.postgres.copying import (
    BEGIN,
    CORRECT,
    DURABLE,
    PreparedWriter,
    blames_rows,
    connect,
    explain,
    explain_blocked,
)
from sparkjet.connectors.postgres.target import Target
from sparkjet.errors import CopiedHomeError, LostTransactionError, RefusedRowsError, SinkError
from sparkjet.sinks.copies import check_run, origin
from sparkjet.sinks.naming import ListedTransaction, prefix_of
from sparkjet.sinks.outbox_rows import batches_of
from sparkjet.sinks.protocol import Handle, TransactionId

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkjet.storage.directory import Directory

_OUTBOX = "outbox"
_PATIENCE = "5s"
"""How long to wait for another driver that publishes the same epoch."""
_NAME_SESSION = "SELECT set_config('application_name', left(%s, 63), false)"
_LIMIT_PAUSES = "SET idle_in_transaction_session_timeout TO '60s'"
"""A driver that is paused in a transaction must not keep its locks forever."""
_END_PAUSED = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND usename = current_user AND application_name = left(%s, 63) AND pid <> pg_backend_pid() "
    "AND wait_event = 'ClientRead'"
)
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
# With its schema: a search path may name another one before that of temporary tables.
STAGED = sql.Identifier("pg_temp", "_sparkjet_rows")
"""Temporary table for the rows of one epoch."""
Write = Callable[["psycopg.Cursor[Any]", Target, Iterable["pa.RecordBatch"]], None]
"""Writes rows into a target, in the open transaction."""
_REFUSED = (
    "The epoch was decided before the table, or another writer, made it so. Change the table, or publish the other "
    "rows: python -m sparkjet txns CHECKPOINT --dsn … --refused FILE writes those that are refused into a file."
)


def prepared(connection: psycopg.Connection[Any], prefix: str) -> list[ListedTransaction]:
    """Prepared transactions of this database whose ids begin with exactly ``prefix``, oldest first."""
    # Not LIKE: "_" would match anything. The view also lists other databases' ids, which cannot be ended from here.
    listing = connection.execute(
        "SELECT gid, prepared FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, %s) "
        "ORDER BY prepared, gid",
        [prefix],
    )
    return [ListedTransaction(gid, since) for gid, since in listing]


def write_rows(cursor: psycopg.Cursor[Any], target: Target, batches: Iterable[pa.RecordBatch]) -> None:
    """Append rows to a table, or merge them into it, in the open transaction."""
    if not target.keys:
        copy_batches(cursor, target.copy().as_string(), target.types().as_string(), batches, target.instants)
        return
    stage(cursor, target, batches)
    cursor.execute(target.merge(STAGED))
    # Several outputs of an epoch are tried out in one transaction, and the next one needs the name.
    cursor.execute(sql.SQL("DROP TABLE {}").format(STAGED))


def stage(cursor: psycopg.Cursor[Any], target: Target, batches: Iterable[pa.RecordBatch]) -> None:
    """Write rows into the temporary table :data:`STAGED`, which refuses none that fit the target's types."""
    cursor.execute(target.stage(STAGED))
    copy_batches(cursor, target.copy(STAGED).as_string(), target.types().as_string(), batches, target.instants)


@dataclass(frozen=True)
class PostgresTransactions:
    """Transactions of one server. Every method may run in any process and repeatedly; only drivers end transactions.

    Attributes:
        conninfo: The connection string; includes the password and is never shown.
    """

    conninfo: str = field(repr=False)

    def writer(self, target: Target, transaction: TransactionId) -> PreparedWriter:
        """The writer for the tasks of a transaction."""
        return PreparedWriter(
            self.conninfo,
            target.copy().as_string(),
            target.types().as_string(),
            target.mark(transaction.query, transaction.sink, transaction.epoch, transaction.to_tell(0)).as_string(),
            prefix_of(transaction.query, transaction.sink, transaction),
            target.instants,
        )

    def fix(self, target: Target, transaction: TransactionId, written: Sequence[tuple[str, int]]) -> Handle | None:
        """Fix which task attempts belong to the epoch, and roll back all others; None if there were no rows.

        Call it when every task has succeeded: from then on a late attempt can neither publish nor destroy anything.
        What it prepares after this is rolled back by the commit of a later epoch, or at the next start.
        """
        counting = {gid for gid, _ in written}
        with self.connected() as connection:
            for found in prepared(connection, prefix_of(transaction.query, transaction.sink)):
                ours = found.run == transaction.run or found.takeover < transaction.takeover
                if ours and found.epoch == transaction.epoch and found.gid not in counting:
                    _roll_back(connection, found.gid)
        if not written:
            return None
        counted = {
            "rows": sum(rows for _, rows in written),
            "slots": [list(each) for each in sorted(written)],
        }
        return {**_identity(transaction, target), "way": "prepared", **counted}

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """Commit all transactions but those already committed; afterwards nothing of the epoch is left prepared."""
        target, query, sink, epoch = _unpack(handle)
        with self.connected() as connection:
            _check_copies(connection, handle)
            # COMMIT PREPARED always waits for the disk; a standby that PREPARE waited for must confirm this too.
            connection.execute(DURABLE.replace("true", "false").encode())
            for gid, _ in handle["slots"]:
                try:
                    _finish(connection, "COMMIT", gid)
                except psycopg.errors.UndefinedObject as error:
                    # Committed, rolled back and never prepared raise the same error: the marker distinguishes them.
                    if not _is_committed(connection, gid, handle):
                        raise LostTransactionError(_lost(handle, gid)) from error
                between()
            try:
                # Again: of two that commit at the same time, the later one finds the other's markers.
                _check_copies(connection, handle)
            except CopiedHomeError as error:
                message = f"{error} Both were committed at the same moment, so remove the rows of one from the table."
                raise CopiedHomeError(message) from error
            connection.execute(target.delete_older_markers(query, sink, epoch))
            own = ListedTransaction(handle["slots"][0][0])
            for found in prepared(connection, prefix_of(query, sink)):
                # Left by a task slower than its retry: everything decided up to here is committed.
                if found.epoch <= epoch and (found.run == own.run or found.takeover < own.takeover):
                    _roll_back(connection, found.gid)

    def try_out(self, parts: Iterable[tuple[Target, Iterable[pa.RecordBatch]]]) -> None:
        """Write rows in one transaction that is rolled back."""
        with self.connected() as connection, connection.cursor() as cursor:
            cursor.execute(f"{_LIMIT_PAUSES}; {BEGIN}".encode())
            for target, batches in parts:
                write_rows(cursor, target, batches)
            # Deferred constraints would only be checked by COMMIT.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; ROLLBACK")

    def publish(
        self,
        handle: Handle,
        batches: Iterable[pa.RecordBatch],
        between: Callable[[], None] = lambda: None,
        write: Write = write_rows,
    ) -> bool:
        """Write the rows of a decided epoch and its marker in one transaction; False if that was done before."""
        target, query, sink, epoch = _unpack(handle)
        with self.connected(refused=_REFUSED) as connection, connection.cursor() as cursor:
            cursor.execute(_NAME_SESSION, [prefix_of(query, sink)])
            cursor.execute(f"{_LIMIT_PAUSES}; {BEGIN}".encode())
            # The user's limit is restored for the table: others may lock it for longer than a rival locks the marker.
            lock_timeout = cursor.execute("SHOW lock_timeout").fetchone()
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [_PATIENCE])
            try:
                # The marker alone would not keep a copy of the home waiting, as it has another name there.
                cursor.execute(_LOCK, [prefix_of(query, sink)])
                cursor.execute(target.mark_once(query, sink, epoch, handle["gid"], handle.get("progress")))
            except psycopg.errors.LockNotAvailable as error:
                # A driver that was paused in the middle of this would block its successor forever.
                cursor.execute("ROLLBACK")
                cursor.execute(_END_PAUSED, [prefix_of(query, sink)])
                raise SinkError(f"Another driver is publishing epoch {epoch} at this moment.") from error
            is_new = cursor.rowcount == 1
            try:
                _check_copies(connection, handle)
            except CopiedHomeError:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", lock_timeout)
            # A paused driver whose successor has continued finds its own marker removed, but not the later ones.
            if not is_new or _first(cursor.execute(target.superseded(query, sink, epoch))):
                cursor.execute("ROLLBACK")
                return False
            write(cursor, target, batches)
            cursor.execute(target.delete_older_markers(query, sink, epoch))
            between()
            cursor.execute(f"{DURABLE}; COMMIT".encode())
        return True

    def abort(self, transaction: TransactionId) -> None:
        """Roll back what was prepared for exactly this attempt at a transaction."""
        with self.connected() as connection:
            for found in prepared(connection, prefix_of(transaction.query, transaction.sink, transaction)):
                _roll_back(connection, found.gid)

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """Roll back what drivers before ``takeover`` prepared for a query, except for the decided ``keep``."""
        decided = {gid for handle in keep for gid, _ in handle.get("slots", ())}
        with self.connected() as connection:
            for found in prepared(connection, prefix_of(query)):
                if found.takeover < takeover and found.gid not in decided:
                    _roll_back(connection, found.gid)

    def is_published(self, handle: Handle) -> bool:
        """Whether everything in a handle is committed by the markers; also False if the table of markers is gone."""
        with self.connected() as connection:
            _check_copies(connection, handle)
            return all(_is_committed(connection, gid, handle) for gid in gids_of(handle))

    def roll_back(self, gids: Sequence[str]) -> None:
        """Roll back transactions by their ids; those that are gone are left alone."""
        with self.connected() as connection:
            for gid in gids:
                _roll_back(connection, gid)

    @contextlib.contextmanager
    def connected(self, refused: str = CORRECT) -> Iterator[psycopg.Connection[Any]]:
        """A connection in autocommit; errors of the server are raised as :class:`SinkError`, see :func:`explain`."""
        try:
            with closing(connect(self.conninfo)) as connection:
                try:
                    yield connection
                except psycopg.errors.LockNotAvailable as error:
                    raise SinkError(explain_blocked(error, connection)) from error
        except psycopg.Error as error:
            kind = RefusedRowsError if blames_rows(error) else SinkError
            raise kind(explain(error, refused=refused)) from error


def decided_rows(entry: Directory, handle: Handle) -> Iterator[pa.RecordBatch]:
    """The rows of an outbox entry; raises, and so rolls back the transaction, unless their number is the decided one.

    Counted here, as COPY's own count omits rows that a trigger has skipped or redirected to another table.
    """
    rows = 0
    for batch in batches_of(entry, handle):
        rows += batch.num_rows
        yield batch
    if rows != handle["rows"]:
        message = (
            f"Epoch {handle['epoch']} was decided with {handle['rows']} rows for PostgreSQL, but the outbox "
            f"has {rows}. Nothing of the epoch was published. Restore the outbox."
        )
        raise LostTransactionError(message)


def outbox_handle(transaction: TransactionId, target: Target, rows: int = 0) -> Handle:
    """The handle of rows that are stored with the snapshot until they are published."""
    prefix = prefix_of(transaction.query, transaction.sink, transaction)
    identity = {**_identity(transaction, target), "progress": transaction.to_tell(rows)}
    return {**identity, "way": _OUTBOX, "gid": f"{prefix}{_OUTBOX}"}


def gids_of(handle: Handle) -> list[str]:
    """The ids of a handle's markers."""
    return [gid for gid, _ in handle["slots"]] if handle["way"] == "prepared" else [handle["gid"]]


def _identity(transaction: TransactionId, target: Target) -> Handle:
    identity = {"query": transaction.query, "sink": transaction.sink, "epoch": transaction.epoch}
    return {**identity, **origin(transaction), "target": target.describe()}


def _unpack(handle: Handle) -> tuple[Target, str, str, int]:
    return Target.of(handle["target"]), handle["query"], handle["sink"], handle["epoch"]


def _check_copies(connection: psycopg.Connection[Any], handle: Handle) -> None:
    """Refuse to continue if another copy of the home has published; see :func:`sparkjet.sinks.copies.check_run`."""
    target, query, sink, _ = _unpack(handle)
    try:
        marked = connection.execute(target.marked_after(query, sink, handle.get("since", 0))).fetchall()
    except psycopg.errors.UndefinedTable:
        return
    for epoch, gid in marked:
        check_run(handle, epoch, ListedTransaction(gid).run, f"{target.markers.as_string()} in PostgreSQL")


def _is_committed(connection: psycopg.Connection[Any], gid: str, handle: Handle) -> bool:
    target, query, sink, epoch = _unpack(handle)
    try:
        return _first(connection.execute(target.is_committed(gid, query, sink, epoch)))
    except psycopg.errors.UndefinedTable:
        return False


def _roll_back(connection: psycopg.Connection[Any], gid: str) -> None:
    # Gone, or being ended concurrently: the next start or epoch checks again.
    with contextlib.suppress(psycopg.errors.UndefinedObject, psycopg.errors.ObjectNotInPrerequisiteState):
        _finish(connection, "ROLLBACK", gid)


def _finish(connection: psycopg.Connection[Any], how: str, gid: str) -> None:
    try:
        connection.execute(sql.SQL("{} PREPARED {}").format(sql.SQL(how), gid))
    except psycopg.errors.InsufficientPrivilege as error:
        # No GRANT would help: who may finish it was fixed when it was prepared.
        found = connection.execute("SELECT owner FROM pg_prepared_xacts WHERE gid = %s", [gid]).fetchone()
        owner = "its owner" if found is None else found[0]
        message = (
            f'PostgreSQL: {gid} was prepared by user "{owner}", and user "{connection.info.user}" may not finish it. '
            "Set the option user back until the query has started once more and was stopped with query.stop(), or end "
            f'it with python -m sparkjet txns CHECKPOINT --dsn "user={owner} …" --settle.'
        )
        raise SinkError(message) from error
    except psycopg.errors.FeatureNotSupported as error:
        # Its other meaning, for which there is a general remedy: something that cannot be prepared.
        message = f"PostgreSQL: {gid} was prepared in another database. Point the options at that one."
        raise SinkError(message) from error


def _first(cursor: psycopg.Cursor[Any]) -> bool:
    row = cursor.fetchone()
    return bool(row is not None and row[0])


def _lost(handle: Handle, gid: str) -> str:
    rows = next(count for each, count in handle["slots"] if each == gid)
    return (
        f"Epoch {handle['epoch']} was decided, but PostgreSQL has neither the prepared transaction {gid!r} nor its "
        f"marker: {rows} rows are lost, or this is not the database they were prepared in. Point the options at that "
        "database; if the transaction was rolled back by hand, rerun the query from its input."
    )
