"""The JDBC sink: rows wait in a staging table, and one transaction publishes an epoch after the decision."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import tenacity
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.jdbc import blames_rows, drivers_found, is_locked, may_pass, message_of
from sparkjet.connectors.jdbc.database import Connection, Database
from sparkjet.connectors.jdbc.statements import EPOCHS, NUMBER, ROW, Statements, is_orphan, staging_name
from sparkjet.connectors.jdbc.table import check_engine, check_keys, collated, family_of, names_in, new_columns
from sparkjet.errors import AnalysisError, LostTransactionError, RefusedRowsError, SinkError
from sparkjet.query_log import logger
from sparkjet.sinks.copies import check_run, origin
from sparkjet.sinks.naming import ListedTransaction, prefix_of
from sparkjet.sinks.pace import Pace
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.sinks.upserts import check_there

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparkjet.connectors.jdbc.settings import JdbcSettings
    from sparkjet.sinks.protocol import Sink

_PATIENCE = 30.0
"""Seconds for which rows are tried out while others hold locks; commits are repeated for as long."""
_REFUSED = re.compile(r"\.(?:\w*SQL\w*|BatchUpdate)Exception: (.*)")
"""The message of a task that a database has refused."""
_TWICE = re.compile("duplicate (?:entry|key)|unique (?:index|constraint)", re.IGNORECASE)
"""Databases' messages for duplicates; the table for the rows of an attempt has no key but the number of a row."""
_NO_NUMBER = re.compile("Unknown column '(?:NaN|-?Infinity)'")
"""The error when MariaDB's driver writes a number that its database lacks as a word."""
_NO_DRIVER = re.compile("No suitable driver|Did not find registered driver|: [\\w.]+Driver$")


class JdbcSink:
    """Appends to, or upserts into, a table of a database, exactly once.

    *Prepare*: Spark's JDBC writer puts the rows into a table next to the target that belongs to this attempt, with the
    target's types. *Commit*: one transaction notes the epoch in the output's row, which it locks first, and inserts the
    rows from there: a driver that was paused and its successor exclude each other by that row, and its content decides
    whether the epoch is there.

    Args:
        settings: The parsed options.
        session: The user's session.
    """

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, settings: JdbcSettings, session: SparkSession) -> None:
        self._settings, self._database = settings, Database(session, settings)
        self._family = ""
        self._names: Mapping[str, str] = {}
        self._required: Collection[str] = ()
        self._pace = Pace(settings.progress_interval)
        self._texts: tuple[str, ...] = ()
        self._schema: StructType

    @property
    def keys(self) -> tuple[str, ...]:
        """See :attr:`Keyed.keys`; empty with mode=append."""
        return self._settings.keys

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`."""
        self._schema = schema
        _check_names(schema)
        check_there(schema, self._settings.keys)
        try:
            with self._database.connected(as_executors=True) as connection:
                # Values are truncated where the executors write them.
                self._family = family_of(self._database.dialect, connection, self._settings)
            with self._database.connected() as connection:
                self._look(connection)
                new_columns(self._database.dialect, schema, self._settings)
        except SinkError as error:
            remedy = ""
            if _NO_DRIVER.search(str(error)):
                remedy = ' Add the jar of its driver, spark.jars.packages, and name the class: option("driver", "…").'
            elif "could not open a JDBC connection" in str(error):
                remedy = (
                    " The class in option driver does not take it; MariaDB's takes jdbc:mysql://…?permitMysqlScheme."
                )
            raise AnalysisError(f'start: format("jdbc") cannot use its database. {error}{remedy}') from error

    @property
    def required(self) -> Collection[str]:
        """See :attr:`Requiring.required`."""
        return self._required

    def create(self) -> None:
        """See :meth:`Creating.create`: creates the table, and the table of last published epochs."""
        settings = self._settings
        with self._database.connected() as connection:
            if not self._look(connection):
                columns = new_columns(self._database.dialect, self._schema, settings)
                statement = f"CREATE TABLE {settings.table} ({columns}) {settings.table_options}"
                connection.create(settings.table, statement)
                self._look(connection)
            statements = self._statements()
            if not connection.exists(statements.epochs):
                connection.create(statements.epochs, statements.create_epochs())

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        statements, name = self._statements(), staging_name(transaction)
        with self._database.connected() as connection:
            for statement in statements.create_staging(name):
                connection.execute(statement)
        # Named by position: a task that runs twice must not add its rows twice.
        numbered = rows.select(
            F.monotonically_increasing_id().alias(ROW),
            *(F.col(quoted(own)).alias(column) for own, column in self._names.items()),
        )
        self._write(numbered, statements.beside(name))
        with self._database.connected() as connection:
            [counts] = connection.query(statements.count(name))
            count, *keyed = map(int, counts)
            if not count:
                _drop(connection, statements, name)
                return None
        for key, found in zip(self._settings.keys, keyed, strict=True):
            if found < count:
                message = (
                    f"jdbc: {count - found} rows of the epoch have no value in {key!r}, by which "
                    f"{self._settings.table} identifies rows. Leave them out, "
                    f'where("{key} IS NOT NULL"), or give a value with coalesce.'
                )
                raise RefusedRowsError(message)
        return self._handle(statements, transaction, name, count)

    def _handle(self, statements: Statements, transaction: TransactionId, staging: str, rows: int) -> Handle:
        self._pace.note(transaction)
        return {
            **statements.describe(),
            "query": transaction.query,
            "sink": transaction.sink,
            "epoch": transaction.epoch,
            "gid": prefix_of(transaction.query, transaction.sink, transaction) + "rows",
            "staging": staging,
            "rows": rows,
            "watermark": transaction.told,
            **origin(transaction),
        }

    def tells(self, clock: int, watermark: int | None) -> bool:
        """See :meth:`Telling.tells`: with ``progressInterval``, of another watermark, now and then."""
        return self._pace.is_due(clock, watermark)

    def tell(self, transaction: TransactionId) -> Handle:
        """See :meth:`Telling.tell`: the row of the output alone."""
        return self._handle(self._statements(), transaction, "", 0)

    def try_out(self, handle: Handle, earlier: Sequence[tuple[Sink, Handle]]) -> None:
        """See :meth:`Trying.try_out`: publishes, and rolls it back; with tryOut=false it does nothing."""
        if not self._settings.tries or not handle["staging"]:
            return
        beside = [each for sink, each in earlier if isinstance(sink, JdbcSink) and sink.is_beside(self)]
        own = [each for each in beside if each["staging"]]
        # A deadlock or an outage that a commit would survive must not end the query because of this.
        patiently = tenacity.Retrying(
            stop=tenacity.stop_after_delay(_PATIENCE),
            wait=tenacity.wait_exponential(0.2, 5),
            retry=tenacity.retry_if_exception(lambda error: may_pass(error.__cause__)),
            before_sleep=tenacity.before_sleep_log(logger, logging.WARNING),
            reraise=True,
        )
        patiently(self._try_out, [*own, handle])

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`."""
        statements = self._statements_of(handle)
        output = handle["query"], handle["sink"]
        with self._database.connected() as connection:
            connection.begin()
            if not connection.execute(statements.lock_output(), *output):
                connection.roll_back()
                self._add_output(connection, statements, output)
                connection.execute(statements.lock_output(), *output)
            [(epoch, gid)] = connection.query(statements.published(), *output)
            if not self._is_published(handle, int(Decimal(epoch)), gid):
                if handle["staging"]:
                    self._publish(connection, handle)
                values = handle["epoch"], handle["gid"], handle["watermark"]
                connection.execute(statements.set_published(), *values, *output)
            connection.commit()
        between()
        if handle["staging"]:
            self._drop(statements, handle["staging"])

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        self._drop(self._statements(), staging_name(transaction))

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Sink.published_after`; only the configured table is asked."""
        del handle
        statements = self._statements()
        with self._database.connected() as connection:
            if not connection.exists(statements.epochs):
                return None
            found = connection.query(statements.published(), newest.query, newest.sink)
        epoch = max((int(Decimal(epoch)) for epoch, _ in found), default=0)
        if epoch <= newest.epoch:
            return None
        return (
            f"{statements.epochs} in {self._settings.shown} has epoch {epoch}. Restore the newest copy of the home, "
            f"with which nothing is lost or repeated. To go on from epoch {newest.epoch} instead, remove from "
            f"{self._settings.table} what later epochs have written, and set the epoch back: they are computed and "
            f"written again. {statements.set_back(newest)};"
        )

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`."""
        decided = {handle["staging"] for handle in keep if "staging" in handle}
        statements = self._statements()
        with self._database.connected() as connection:
            is_there = connection.exists(self._settings.table)
            place = connection.place(self._settings.table) if is_there else None
            for name in [] if place is None else connection.tables(place):
                if is_orphan(name, query, takeover) and name not in decided:
                    _drop(connection, statements, name)

    def is_beside(self, other: JdbcSink) -> bool:
        """Whether another sink writes into the same database as the same user."""
        return self._settings.account == other._settings.account

    def _look(self, connection: Connection) -> bool:
        """Check the table, if there is one; returns whether there is."""
        settings = self._settings
        if not connection.exists(settings.table):
            self._names, self._required = {name: name for name in self._schema.fieldNames()}, ()
            return False
        place = connection.place(settings.table)
        if place is None:
            message = f"dbtable: {settings.table} is not a table of {settings.shown} that rows can be written to."
            raise AnalysisError(message)
        check_engine(connection, self._family, place)
        columns = connection.columns(place)
        self._names = names_in(settings.table, columns, self._schema)
        there = {each.name for each in columns if not each.is_nullable}
        self._required = [own for own, name in self._names.items() if name in there]
        keys = [self._names[key] for key in settings.keys]
        check_keys(connection, self._family, place, keys)
        self._texts = collated(connection, self._family, place, keys)
        return True

    def _statements(self) -> Statements:
        keys = tuple(self._names.get(key, key) for key in self._settings.keys)
        quotes = self._database.dialect.quoted
        return Statements(quotes, self._family, self._settings.table, tuple(self._names.values()), keys, self._texts)

    def _statements_of(self, handle: Handle) -> Statements:
        """The statements for the table that rows were staged for, even if the options have changed."""
        columns, keys, texts = (tuple(handle.get(name, ())) for name in ("columns", "keys", "texts"))
        return Statements(self._database.dialect.quoted, self._family, handle["table"], columns, keys, texts)

    def _try_out(self, handles: Sequence[Handle]) -> None:
        with self._database.connected() as connection:
            connection.begin()
            for each in handles:
                try:
                    self._publish(connection, each)
                except LostTransactionError as error:
                    # Not lost: nothing is decided. A successor removes what this driver has prepared.
                    message = (
                        f"jdbc: the rows of epoch {each['epoch']} for {each['table']} are gone before its decision. "
                        "Nothing is lost: unless another driver of the query is running, start it again."
                    )
                    raise SinkError(message) from error
            connection.roll_back()

    def _write(self, rows: DataFrame, table: str) -> None:
        writer = rows.write.format("jdbc").options(**{**self._settings.spark, "dbtable": table})
        try:
            with drivers_found(rows.sparkSession):
                writer.mode("append").save()
        except (PySparkException, Py4JJavaError) as error:
            refused = _REFUSED.search(str(error))
            if refused is None:
                # For an error of the driver's own class, Spark may only know that there was one.
                said = message_of(error).partition(" Driver stacktrace:")[0].replace(self._settings.url, "…")
                message = f"jdbc: {self._settings.table}: {said} The logs of the executors say more."
                raise SinkError(message) from (None if self._settings.url in str(error) else error)
            why = f"jdbc: {self._settings.table}: {refused[1].strip()}"
            if _TWICE.search(refused[1]):
                why += (
                    " (a task was repeated that had written its rows: its executor was lost right after that. Nothing "
                    "of the epoch was published; start the query again)"
                )
                raise SinkError(why) from error
            no_number = _NO_NUMBER.search(why) is not None
            if no_number:
                why += (
                    " (there is no such number in this database: leave it out, or make it a null, "
                    "nullif(column, double('NaN')))"
                )
            raise (RefusedRowsError if no_number or blames_rows(error) else SinkError)(why) from error

    def _publish(self, connection: Connection, handle: Handle) -> None:
        statements = self._statements_of(handle)
        try:
            self._look_again(connection, handle["table"])
            _check_apart(connection, statements, handle)
            count = connection.execute(statements.publish(handle["staging"]))
        except Py4JJavaError as error:
            # Some databases answer nothing more in a transaction that has failed.
            connection.roll_back()
            if connection.exists(statements.beside(handle["staging"])):
                raise
            raise LostTransactionError(self._lost(handle, message_of(error))) from error
        if not handle["keys"] and count == handle["rows"]:
            return
        # For rows that replace others, or that a trigger skips or adds, the database's count differs.
        [(found, *_)] = connection.query(statements.count(handle["staging"]))
        if int(found) != handle["rows"]:
            raise LostTransactionError(self._lost(handle, f"{handle['staging']} has {found} rows"))

    def _look_again(self, connection: Connection, table: str) -> None:
        """Refuse a table that was given another engine since the start: the trial would not be rolled back there."""
        place = connection.place(table) if self._family else None
        if place is None:
            return
        try:
            check_engine(connection, self._family, place)
        except AnalysisError as error:
            raise SinkError(f"jdbc: {table} was changed while the query was running. {error.args[0]}") from error

    def _lost(self, handle: Handle, why: str) -> str:
        return (
            f"Epoch {handle['epoch']} was prepared with {handle['rows']} rows for {handle['table']}, but they are no "
            f"longer in {self._settings.shown} ({why}), and {EPOCHS} does not say that they were published. "
            "Nothing was published now. Point url at the database that they were prepared in; if the table was "
            "dropped, rerun the query from its input."
        )

    def _is_published(self, handle: Handle, epoch: int, gid: str) -> bool:
        if not gid:
            return False
        run = ListedTransaction(gid).run
        check_run(handle, epoch, run, f"{EPOCHS} in {self._settings.shown}")
        # Decided later, published later: an epoch after this one means that a successor has published it.
        return gid == handle["gid"] or epoch > int(handle["epoch"])

    def _add_output(self, connection: Connection, statements: Statements, output: tuple[Any, Any]) -> None:
        try:
            connection.execute(statements.add_output(), *output)
            connection.commit()
        except Py4JJavaError:
            # Another driver of the query was faster.
            connection.roll_back()
            if not connection.query(statements.published(), *output):
                raise
            connection.roll_back()

    def _drop(self, statements: Statements, name: str) -> None:
        with self._database.connected() as connection:
            _drop(connection, statements, name)


def _check_names(schema: StructType) -> None:
    """Refuse columns named like our own in the table of an attempt, in any case."""
    taken = next((name for name in schema.fieldNames() if name.lower() in {ROW, NUMBER}), None)
    if taken is not None:
        message = f'jdbc: "{taken}" is a column of the tables in which rows wait. Rename it, in the table too.'
        raise AnalysisError(message)


def _check_apart(connection: Connection, statements: Statements, handle: Handle) -> None:
    """Refuse keys that the database does not distinguish: a row would replace one with another key."""
    found = connection.query(statements.taken_for_one(handle["staging"])) if statements.texts else []
    if found:
        message = (
            f"jdbc: epoch {handle['epoch']} for {handle['table']} has rows of the keys {found[0][0]!r} and "
            f"{found[0][1]!r}, which are one by the collation of ({', '.join(statements.texts)}): one would replace "
            "the other. Give the columns of the key a collation that tells all texts apart (COLLATE "
            "utf8mb4_nopad_bin), or make the keys one in the query: lower(…), rtrim(…)."
        )
        raise SinkError(message)


def _drop(connection: Connection, statements: Statements, name: str) -> None:
    try:
        for statement in statements.drop(name):
            connection.execute(statement)
    except Py4JJavaError as error:
        if not is_locked(error):
            # It was never made, or another driver of the query has dropped it.
            if connection.exists(statements.beside(name)):
                raise
            return
        # If a task's machine has died, the database may believe for hours that it is still writing.
        logger.warning("table %s is left to the next start: %s", name, message_of(error))
