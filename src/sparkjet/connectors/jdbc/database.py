"""A database, accessed from the driver through Java: transactions, statements with values, and its tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from sparkjet.catalyst.jdbc import Dialect, blames_rows, is_locked, message_of
from sparkjet.errors import RefusedRowsError, SinkError
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.connectors.jdbc.settings import JdbcSettings

_NULL = 0
"""``java.sql.Types.NULL``."""
_UNIQUE, _APPROXIMATE = True, True
_VALID_WITHIN = 10
"""Seconds to wait for a response."""


@dataclass(frozen=True)
class Place:
    """Where a table is, in terms of the database's own catalog.

    Attributes:
        catalog: Its catalog; None if the database has none.
        schema: Its schema; likewise.
        table: Its name.
    """

    catalog: str | None
    schema: str | None
    table: str


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    Attributes:
        name: Its name.
        is_required: Whether an INSERT has to provide a value: it is NOT NULL, and nothing else provides one.
        is_generated: Whether the database computes it.
        is_nullable: Whether it takes nulls, as far as the database says.
    """

    name: str
    is_required: bool
    is_generated: bool
    is_nullable: bool


class Connection:
    """An open connection; errors are the driver's own, as ``Py4JJavaError``."""

    def __init__(self, java: Any) -> None:
        self._java = java
        self._has_begun = False

    def execute(self, statement: str, *values: str | int | None) -> int:
        """Execute a statement; returns the number of rows it has changed, -1 if it has a result instead."""
        prepared = self._prepared(statement, values)
        try:
            # Not executeUpdate, which refuses the user's SELECT set_config(…) or CALL.
            prepared.execute()
            return int(prepared.getUpdateCount())
        finally:
            prepared.close()

    def query(self, statement: str, *values: str | int | None) -> list[tuple[Any, ...]]:
        """The rows of a query, as text; None for null."""
        prepared = self._prepared(statement, values)
        try:
            return _rows(prepared.executeQuery())
        finally:
            prepared.close()

    def begin(self) -> None:
        """Begin a transaction with the next statement."""
        self._java.setAutoCommit(False)
        self._has_begun = True

    def commit(self) -> None:
        """Commit the transaction."""
        self._java.commit()

    def roll_back(self) -> None:
        """Roll the transaction back."""
        self._java.rollback()

    def close(self) -> None:
        """Close it; an open transaction is rolled back."""
        # It may be lost already: what was committed is looked up when needed.
        with contextlib.suppress(Py4JJavaError):
            if self._has_begun:
                # Some drivers, such as Oracle's, commit what is open: rows without their epoch.
                self._java.rollback()
        with contextlib.suppress(Py4JJavaError):
            self._java.close()

    def product(self) -> tuple[str, str]:
        """Name and version of the database."""
        data = self._java.getMetaData()
        return str(data.getDatabaseProductName()), str(data.getDatabaseProductVersion())

    def has_transactions(self) -> bool:
        """Whether the driver reports support for transactions."""
        return bool(self._java.getMetaData().supportsTransactions())

    def place(self, table: str) -> Place | None:
        """The place of an existing table, by its name in SQL."""
        prepared = self._prepared(f"SELECT * FROM {table} WHERE 1 = 0", ())
        try:
            data = prepared.executeQuery().getMetaData()
            catalog, schema, name = data.getCatalogName(1), data.getSchemaName(1), data.getTableName(1)
            return Place(catalog or None, schema or None, str(name)) if name else None
        finally:
            prepared.close()

    def exists(self, table: str) -> bool:
        """Whether there is a readable table of this name in SQL."""
        try:
            self.place(table)
        except Py4JJavaError as error:
            # If a table cannot be looked for, nobody must believe that its rows are lost.
            if is_locked(error) or not self._java.isValid(_VALID_WITHIN):
                raise
            return False
        return True

    def create(self, table: str, statement: str) -> None:
        """Create a table, unless another query that starts at the same time is faster."""
        try:
            self.execute(statement)
        except Py4JJavaError:
            if not self.exists(table):
                raise

    def columns(self, place: Place) -> list[TableColumn]:
        """The columns of a table, in order."""
        wanted = "COLUMN_NAME", "IS_NULLABLE", "COLUMN_DEF", "IS_AUTOINCREMENT", "IS_GENERATEDCOLUMN"
        schema, table = _escaped(self._java, place.schema), _escaped(self._java, place.table)
        found = self._java.getMetaData().getColumns(place.catalog, schema, table, None)
        return [
            TableColumn(
                name,
                nullable == "NO" and default is None and automatic != "YES" and generated != "YES",
                generated == "YES",
                nullable != "NO",
            )
            for name, nullable, default, automatic, generated in _rows(found, wanted)
        ]

    def unique_keys(self, place: Place) -> list[frozenset[str]]:
        """The columns of each unique index of a table."""
        data = self._java.getMetaData()
        found = data.getIndexInfo(place.catalog, place.schema, place.table, _UNIQUE, _APPROXIMATE)
        keys: dict[str, set[str]] = {}
        for index, column in _rows(found, ("INDEX_NAME", "COLUMN_NAME")):
            if index is not None and column is not None:
                keys.setdefault(index, set()).add(column)
        return [frozenset(columns) for columns in keys.values()]

    def tables(self, place: Place) -> list[str]:
        """Names of the tables in the same place."""
        schema = _escaped(self._java, place.schema)
        found = self._java.getMetaData().getTables(place.catalog, schema, "%", None)
        return [str(name) for (name,) in _rows(found, ("TABLE_NAME",))]

    def _prepared(self, statement: str, values: tuple[str | int | None, ...]) -> Any:
        prepared = self._java.prepareStatement(statement)
        for number, value in enumerate(values, 1):
            if value is None:
                prepared.setNull(number, _NULL)
            elif isinstance(value, int):
                prepared.setLong(number, value)
            else:
                prepared.setString(number, value)
        return prepared


class Database:
    """A database to which connections can be opened.

    Args:
        session: The user's session.
        settings: The sink's settings.
    """

    def __init__(self, session: SparkSession, settings: JdbcSettings) -> None:
        self._settings = settings
        self.dialect = Dialect(session, settings.url)

    @contextlib.contextmanager
    def connected(self, *, as_executors: bool = False) -> Iterator[Connection]:
        """A connection; refusals of the database are raised as :class:`SinkError`, refusals of rows as its subclass."""
        settings = self._settings
        try:
            connection = Connection(self.dialect.connection({**settings.spark, "dbtable": settings.table}))
            try:
                if settings.initial is not None and not as_executors:
                    connection.execute(settings.initial)
                yield connection
            finally:
                connection.close()
        except JAVA_ERRORS as error:
            # Spark and some drivers quote the URL; so does the cause, and with it every log that shows causes.
            cause = None if settings.url in str(error) else error
            message = message_of(error).replace(settings.url, settings.shown)
            kind = RefusedRowsError if blames_rows(error) else SinkError
            raise kind(f"jdbc: {settings.shown}: {message}") from cause


def _escaped(java: Any, name: str | None) -> str | None:
    """A name as a pattern that matches only it."""
    escape = str(java.getMetaData().getSearchStringEscape() or "")
    return name.replace("_", f"{escape}_").replace("%", f"{escape}%") if name and escape else name


def _rows(found: Any, wanted: tuple[str, ...] | None = None) -> list[tuple[Any, ...]]:
    """The rows of a ``ResultSet`` as text."""
    labels: Sequence[str | int] = wanted or range(1, int(found.getMetaData().getColumnCount()) + 1)
    rows = []
    while found.next():
        rows.append(tuple(found.getString(label) for label in labels))
    found.close()
    return rows
