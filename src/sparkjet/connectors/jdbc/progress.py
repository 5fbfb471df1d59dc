"""The progress of the writers of a table, from the rows of outputs beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkjet.connectors.jdbc.statements import EPOCHS, qualifier_of
from sparkjet.errors import AnalysisError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOLD = ("query", "output", "epoch", "watermark")
_QUOTES = ('"', "`", "")
"""The quotes of standard SQL, of MySQL, and none: Python connections do not say which their database uses."""


def told_in(session: SparkSession, url: str, table: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The newest progress of each output beside a table; ``options`` are those of Spark's data source."""
    from sparkjet.connectors.jdbc.database import Database  # noqa: PLC0415 - connections of Python need no Spark
    from sparkjet.connectors.jdbc.settings import JdbcSettings  # noqa: PLC0415 - as above

    given = {**{name: str(value) for name, value in options.items()}, "url": url, "dbtable": table}
    database = Database(session, JdbcSettings(given, table))
    quoted = database.dialect.quoted
    columns = ", ".join(map(quoted, _TOLD))
    try:
        with database.connected() as connection:
            rows = connection.query(f"SELECT {columns} FROM {qualifier_of(table)}{quoted(EPOCHS)}")
    except SinkError as error:
        raise _unknown(table, error) from error
    return _read(_TOLD, rows)


def told_by(connection: Any, table: str) -> list[dict[str, Any]]:
    """The same by a connection of Python's DB API; its transaction is rolled back."""
    failure: Exception | None = None
    for quote in _QUOTES:
        try:
            return _read(*_answer(connection, f"SELECT * FROM {qualifier_of(table)}{quote}{EPOCHS}{quote}"))
        except Exception as error:  # noqa: BLE001 - each driver has its own
            failure = error
    raise _unknown(table, failure) from failure


def _answer(connection: Any, query: str) -> tuple[list[str], list[Sequence[Any]]]:
    cursor = connection.cursor()
    try:
        cursor.execute(query)
        names, rows = [each[0] for each in cursor.description], cursor.fetchall()
        # Cursors of dictionaries would be read as their keys.
        return names, [[row[name] for name in names] if isinstance(row, Mapping) else row for row in rows]
    finally:
        with contextlib.suppress(Exception):
            cursor.close()
        # In some databases an open transaction would see the same forever, and a failed one nothing.
        connection.rollback()


def _read(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    told = [dict(zip([name.lower() for name in names], row, strict=True)) for row in rows]
    return [
        {
            "query": each["query"],
            "output": each["output"],
            "epoch": int(each["epoch"]),
            "watermark": None if each["watermark"] is None else int(each["watermark"]),
        }
        for each in told
    ]


def _unknown(table: str, error: Exception | None) -> AnalysisError:
    return AnalysisError(
        f"complete_until: {table}: the table {EPOCHS} beside it cannot be read: no query has written there, or the "
        f"user may not read it. {error}"
    )
