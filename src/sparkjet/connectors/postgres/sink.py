"""The PostgreSQL sink: how an epoch is committed, and Spark's part of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import tenacity
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import Observation
from pyspark.sql import functions as F

from sparkjet.connectors.postgres import batches, copying
from sparkjet.connectors.postgres.characters import ALL, check_characters
from sparkjet.connectors.postgres.copying import connect, explain, is_refusal
from sparkjet.connectors.postgres.refusals import LONGEST
from sparkjet.connectors.postgres.table import Table, look
from sparkjet.connectors.postgres.target import Target
from sparkjet.connectors.postgres.transactions import (
    PostgresTransactions,
    decided_rows,
    gids_of,
    outbox_handle,
    write_rows,
)
from sparkjet.connectors.postgres.types import PostgresColumn, columns_of, faults, length
from sparkjet.errors import AnalysisError, RefusedRowsError, SinkError
from sparkjet.query_log import logger
from sparkjet.sinks.outbox import Outbox
from sparkjet.sinks.pace import Pace
from sparkjet.sinks.protocol import Guarantee, Handle, Later, TransactionId
from sparkjet.sinks.tasks import run_tasks
from sparkjet.sinks.upserts import check_there
from sparkjet.storage.written import metrics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkjet.connectors.postgres.settings import PostgresSettings
    from sparkjet.sinks.protocol import Sink
    from sparkjet.storage.directory import Directory


MOST_WRITERS = 16
"""Concurrent connections, unless the option numPartitions is set."""
_PATIENCE = 30.0
"""Seconds for which rows are tried out while the server cannot be reached; commits are repeated for as long."""
PACKAGES = {"psycopg": "psycopg[binary]", "pyarrow": "pyarrow"}
"""Packages that the executors need, by import name."""


class PostgresSink(Outbox):
    """Writes the rows of each epoch into a table, exactly once, in one of two ways.

    *Prepared*: the executors COPY into transactions and prepare them; the driver commits them after the decision.
    *Outbox*: rows are stored with the snapshot and written after the decision, in one transaction with a marker. This
    needs no server setting; ``prepared="auto"`` uses it if transactions cannot be prepared, or if rows could conflict
    (a unique index): the orphan of a retried task would block its retry forever.

    Args:
        settings: The parsed options.
    """

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, settings: PostgresSettings) -> None:
        super().__init__()
        self._settings = settings
        self._columns: list[PostgresColumn] = []
        self._table: Table
        self._prepares = False
        self._writers = 1
        self._pace = Pace(settings.progress_interval)

    @property
    def way(self) -> str:
        """``prepared`` or ``outbox``, known once :meth:`check` has been called; also part of each handle."""
        return "prepared" if self._prepares else "outbox"

    @property
    def keys(self) -> tuple[str, ...]:
        """See :attr:`Keyed.keys`; empty with mode=append."""
        return self._settings.keys

    @property
    def packages(self) -> Mapping[str, str]:
        """See :attr:`NeedsPackages.packages`; without prepared transactions, only the driver connects."""
        return PACKAGES if self._prepares else {}

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`; a missing table is created in a transaction that is rolled back."""
        self._columns = columns_of(schema)
        check_there(schema, self._settings.keys)
        self._look(create=False)

    @property
    def required(self) -> Collection[str]:
        """See :attr:`Requiring.required`."""
        return self._table.required

    def create(self) -> None:
        """See :meth:`Creating.create`: creates the table, and the table of markers."""
        self._look(create=True)
        obstacle = self._obstacle() if self._settings.prepared == "auto" else None
        logger.info("table %s: %s%s", self._settings.table, self.way, "" if obstacle is None else f" ({obstacle})")
        if not self._prepares and self._table.refusals.reasons:
            reasons = ", ".join(self._table.refusals.reasons)
            logger.info("table %s: rows are tried out before each decision (%s)", self._settings.table, reasons)

    def _look(self, *, create: bool) -> None:
        """Inspect the table and choose the way; repeated on creation, as it may have changed since the check."""
        settings = self._settings
        try:
            with copying.connect(settings.conninfo) as connection:
                self._table = look(connection, settings.table, self._columns, settings.keys, create=create)
        except psycopg.Error as error:
            raise AnalysisError(f'start: format("postgres") cannot use its table. {explain(error)}') from error
        obstacle = self._obstacle()
        if settings.prepared == "always" and obstacle is not None:
            message = f"prepared=always: {obstacle}. Use prepared=auto, which publishes after the decision instead."
            raise AnalysisError(message)
        self._prepares = settings.prepared != "never" and obstacle is None
        limit = self._table.can_prepare
        if self._prepares and settings.writers is not None and settings.writers > limit:
            message = f"numPartitions: {settings.writers} writers, but max_prepared_transactions is {limit}. Use fewer."
            raise AnalysisError(message)
        self._writers = settings.writers or max(1, min(MOST_WRITERS, limit // 2))

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        handle = self._written(rows, transaction)
        if handle is not None:
            self._pace.note(transaction)
        return handle

    def _written(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        if self._prepares:
            # The server itself rejects what it cannot store, before the decision.
            return self._prepare(self._encoded(rows), transaction)
        noticed, wrong = Observation(), faults(self._columns, self._table.required)
        counts = [F.count_if(condition).alias(f"fault{n}") for n, (_, _, condition) in enumerate(wrong)]
        counts.append(F.count_if(length(self._table.refusals.measured) > LONGEST).alias("long"))
        watched = rows.observe(noticed, F.count(F.lit(1)).alias("rows"), *counts)
        handle = super().prepare(self._encoded(watched), transaction)
        found = metrics(noticed, f"table {self._settings.table}", SinkError)
        for number, (name, fault, _) in enumerate(wrong):
            if found.get(f"fault{number}"):
                message = f"postgres: column {name!r} has {fault}, in {found[f'fault{number}']} rows of the epoch."
                raise RefusedRowsError(message)
        if handle is None:
            return None
        if self._table.encoding not in ALL:
            # After the decision, rows that the server rejects would fail the query at every start.
            with self._transactions.connected() as connection:
                check_characters(
                    connection, self._entries(handle["sink"]).at(handle["box"]), self._table.target.columns
                )
        may_refuse = bool(self._table.refusals.reasons or found.get("long"))
        return handle | outbox_handle(transaction, self._table.target, handle["rows"]) | {"mayRefuse": may_refuse}

    def tells(self, clock: int, watermark: int | None) -> bool:
        """See :meth:`Telling.tells`: with ``progressInterval``, of another watermark, now and then."""
        return self._pace.is_due(clock, watermark)

    def tell(self, transaction: TransactionId) -> Handle:
        """See :meth:`Telling.tell`: a marker alone, in the way of the outbox."""
        self._pace.note(transaction)
        stored = {"sink": transaction.sink, "box": str(transaction), "epoch": transaction.epoch, "rows": 0, "files": []}
        return stored | outbox_handle(transaction, self._table.target)

    def try_out(self, handle: Handle, earlier: Sequence[tuple[Sink, Handle]]) -> None:
        """See :meth:`Trying.try_out`; reads the rows a second time if something in the table can refuse them.

        Together with the rows of earlier outputs with which these could conflict, or to which they may refer.
        """
        if not handle.get("mayRefuse"):
            return
        together = [*(each for sink, each in earlier if self._precedes(sink, each)), handle]
        # An outage that a commit would survive must not end the query because of this.
        patiently = tenacity.Retrying(
            stop=tenacity.stop_after_delay(_PATIENCE),
            wait=tenacity.wait_exponential(0.2, 5),
            retry=tenacity.retry_if_exception(_may_pass),
            before_sleep=tenacity.before_sleep_log(logger, logging.WARNING),
            reraise=True,
        )
        patiently(lambda: self._transactions.try_out(map(self._decided, together)))

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`; uses the way in the handle, whatever the options are now."""
        if handle["way"] == "prepared":
            self._transactions.commit(handle, between)
        else:
            super().commit(handle, between)

    def deliver(self, entry: Directory, handle: Handle) -> None:
        """See :meth:`Outbox.deliver`; runs on the driver."""
        write = write_rows if handle["rows"] else _nothing
        self._transactions.publish(handle, decided_rows(entry, handle), write=write)

    def has_arrived(self, handle: Handle) -> bool:
        """See :meth:`Outbox.has_arrived`: the marker is written in the transaction of the rows."""
        return self._transactions.is_published(handle)

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`; covers both ways, of which at most one has left something."""
        self._transactions.abort(transaction)
        super().abort(transaction)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Later:
        """See :meth:`Sink.published_after`; queries the markers of the target and of the last target."""
        targets = [self._table.target] if handle is None else [self._table.target, Target.of(handle["target"])]
        return published_after(self._settings.conninfo, newest, handle, targets)

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`; covers both ways, as the options may have changed."""
        self._transactions.abort_orphans(query, takeover, keep)
        super().abort_orphans(query, takeover, keep)

    @property
    def _transactions(self) -> PostgresTransactions:
        return PostgresTransactions(self._settings.conninfo)

    def _decided(self, handle: Handle) -> tuple[Target, Iterator[pa.RecordBatch]]:
        return Target.of(handle["target"]), decided_rows(self._entries(handle["sink"]).at(handle["box"]), handle)

    def _precedes(self, sink: Sink, handle: Handle) -> bool:
        """Whether another output's rows are written, after the decision, where those of this one may meet them."""
        # Not the whole string: limits and names of sessions may differ.
        if not isinstance(sink, PostgresSink) or _server(sink._settings.conninfo) != _server(self._settings.conninfo):  # noqa: SLF001
            return False
        has_rows = handle["way"] == "outbox" and bool(handle["rows"])
        return has_rows and Target.of(handle["target"]).place in self._table.refusals.related

    def _encoded(self, rows: DataFrame) -> DataFrame:
        return rows.select(*(column.value.alias(f"column{n}") for n, column in enumerate(self._columns)))

    def _prepare(self, encoded: DataFrame, transaction: TransactionId) -> Handle | None:
        task = self._transactions.writer(self._table.target, transaction).task
        encoded = encoded.coalesce(self._writers)
        try:
            answered = run_tasks(encoded, task, (copying, batches), copying.CopyError, PACKAGES)
        except SinkError as error:
            # For errors raised on an executor, there is only the text.
            is_of_rows = any(remedy in str(error) for remedy in copying.OF_ROWS)
            raise (RefusedRowsError(str(error)) if is_of_rows else error) from error
        return self._transactions.fix(self._table.target, transaction, [(row["id"], row["rows"]) for row in answered])

    def _obstacle(self) -> str | None:
        """Why transactions cannot be prepared, None if they can."""
        if self._settings.keys:
            return "mode=upsert merges rows in a temporary table, which a prepared transaction cannot use"
        if self._table.can_prepare == 0:
            return "max_prepared_transactions is 0 on this server"
        if self._table.refusals.is_unique:
            return f"{self._settings.table} has a unique index, where an orphaned transaction would block its retry"
        return None


def _nothing(*_: object) -> None:
    """Write no rows beside the marker of an epoch that has none."""


def _server(conninfo: str) -> list[object]:
    """The server that a connection string leads to, and the user: another user may not write what this one does."""
    given = conninfo_to_dict(conninfo)
    return [given.get(name) for name in ("service", "host", "hostaddr", "port", "dbname", "user")]


def _may_pass(error: BaseException) -> bool:
    """Whether an error is the server's, and not about what it was sent."""
    return isinstance(error.__cause__, psycopg.Error) and not is_refusal(error.__cause__)


def published_after(
    conninfo: str, newest: TransactionId, handle: Handle | None, targets: Iterable[Target]
) -> str | None:
    """Markers next to the targets of epochs that a checkpoint restored from a backup lacks, and the way out; or None.

    A server that cannot be reached, or whose markers cannot be read, is reported by the sink's own checks.
    """
    for target in targets:
        try:
            with closing(connect(conninfo)) as connection:
                row = connection.execute(target.newest(newest.query, newest.sink)).fetchone()
        except (
            psycopg.OperationalError,
            psycopg.errors.UndefinedTable,
            psycopg.errors.InsufficientPrivilege,
        ):
            continue
        if row is not None and row[0] is not None and row[0] > newest.epoch:
            return _finding(target, newest, handle, row[0])
    return None


def _finding(target: Target, newest: TransactionId, handle: Handle | None, epoch: int) -> str:
    gids = [] if handle is None else gids_of(handle)
    known = newest.epoch if handle is None else handle["epoch"]
    change = target.reset_markers(newest.query, newest.sink, known, newest.epoch, gids).as_string()
    if target.keys:
        rows = (
            f"mode=upsert then replaces those rows of {target.name.as_string()} whose keys are computed again; remove "
            "the other rows written after the backup"
        )
    else:
        rows = (
            f"remove the rows written after the backup from {target.name.as_string()}, or they will be there twice. "
            "Rows do not carry their epoch: find them by their own columns, such as the window's end"
        )
    return (
        f"{target.markers.as_string()} in PostgreSQL says that epoch {epoch} was published. Restore the newest "
        f"copy of the home, or restore the database to the moment of the backup. Otherwise: {rows}. Then remove the "
        f"markers of the later epochs, with no driver of the query running: BEGIN; {change} COMMIT;"
    )
