"""The statements of the JDBC sink: a table, its staged rows and the row that tells what was published, as SQL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import TransactionId

EPOCHS = "sparkjet_epochs"
"""Table next to the target with a row for each output of a query: its last published epoch."""
ROW, NUMBER = "sparkjet_row", "sparkjet_number"
"""The first is the column that numbers staged rows, as the key: if a task runs twice, the second run fails."""
_PATIENCE = 5
"""Seconds."""
_STAGED = re.compile(r"sparkjet_(?P<query>[0-9a-f]{12})_[0-9a-f]{8}_(?P<takeover>\d+)_\d+_\d+(?:_[0-9a-f]*)?")
_QUALIFIER = re.compile(r'(?:(?:"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[^."`\[\]]+)\.)*')


def staging_name(transaction: TransactionId) -> str:
    """The name of the table for the rows of an attempt at an epoch: below 64 characters, for MySQL.

    >>> from sparkjet.sinks.protocol import TransactionId
    >>> staging_name(TransactionId("q", "results", 1, 7, 0, "0b5e2f8a"))
    'sparkjet_8e35c2cd3bf6_c099142b_1_7_0_0b5e2f8a'
    """
    query, sink = _hash(transaction.query, 12), _hash(transaction.sink, 8)
    name = f"sparkjet_{query}_{sink}_{transaction.takeover}_{transaction.epoch}_{transaction.attempt}"
    return f"{name}_{transaction.run}" if transaction.run else name


def is_orphan(name: str, query: str, takeover: int) -> bool:
    """Whether a table has rows staged by a driver of a query before a takeover."""
    found = _STAGED.fullmatch(name.lower())
    return found is not None and found["query"] == _hash(query, 12) and int(found["takeover"]) < takeover


def qualifier_of(table: str) -> str:
    """The part before the name of a table, including the dot.

    >>> qualifier_of('shop."a.b"'), qualifier_of("orders")
    ('shop.', '')
    """
    found = _QUALIFIER.match(table)
    return "" if found is None else found[0]


@dataclass(frozen=True)
class Statements:
    """All statements about one target.

    Attributes:
        quoted: Quotes a name as an identifier.
        family: ``mysql``, or empty for standard SQL.
        table: The target, as written in SQL.
        columns: Names of the columns, as the table has them.
        keys: Columns that identify a row if rows replace older ones; empty if they are appended.
        texts: The keys that MySQL compares by a collation, under which ``Shop`` and ``shop`` may be equal.
    """

    quoted: Callable[[str], str]
    family: str
    table: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def describe(self) -> dict[str, Any]:
        """The description kept in the record, as the options may have changed when the rows are published."""
        return {"table": self.table, "columns": [*self.columns], "keys": [*self.keys], "texts": [*self.texts]}

    @property
    def epochs(self) -> str:
        """The table with the last published epochs."""
        return self.beside(EPOCHS)

    def beside(self, name: str) -> str:
        """A table of that name next to the target."""
        return f"{qualifier_of(self.table)}{self.quoted(name)}"

    def create_epochs(self) -> str:
        """Creates the table with the last published epochs."""
        query, sink, epoch, gid, watermark = map(self.quoted, ("query", "output", "epoch", "gid", "watermark"))
        return (
            f"CREATE TABLE {self.epochs} ({query} VARCHAR(64) NOT NULL, {sink} VARCHAR(128) NOT NULL, "
            f"{epoch} NUMERIC(19) NOT NULL, {gid} VARCHAR(128) NOT NULL, {watermark} NUMERIC(19), "
            f"PRIMARY KEY ({query}, {sink})){self._engine}"
        )

    def create_staging(self, name: str) -> Sequence[str]:
        """Create an empty table for staged rows, with the types of the target: values that do not fit fail there."""
        table, row, key = self.beside(name), self.quoted(ROW), f"PRIMARY KEY ({self.quoted(ROW)})"
        rows = f"SELECT {self._listed(self.columns)} FROM {self.table} WHERE 1 = 0"
        if self.family == "mysql":
            numbered = rows.replace("SELECT ", f"SELECT 0 AS {row}, ", 1)
            return [f"CREATE TABLE {table} ({row} BIGINT NOT NULL, {key}){self._engine} AS {numbered}"]
        return [
            f"CREATE TABLE {table} AS {rows}",
            f"ALTER TABLE {table} ADD {row} NUMERIC(19) DEFAULT 0 NOT NULL",
            f"ALTER TABLE {table} ADD {key}",
        ]

    def drop(self, name: str) -> Sequence[str]:
        """Drop a table of staged rows; MySQL would wait for a day, or a year, for a task that holds it."""
        dropped = f"DROP TABLE {self.beside(name)}"
        return [f"SET lock_wait_timeout = {_PATIENCE}", dropped] if self.family == "mysql" else [dropped]

    def count(self, name: str) -> str:
        """Counts staged rows, and those with a value in each of the keys."""
        each = ", ".join(["COUNT(*)", *(f"COUNT({self.quoted(key)})" for key in self.keys)])
        return f"SELECT {each} FROM {self.beside(name)}"

    def add_output(self) -> str:
        """Adds the row of an output that has published nothing; takes query and output."""
        columns = self._listed(("query", "output", "epoch", "gid"))
        return f"INSERT INTO {self.epochs} ({columns}) VALUES (?, ?, 0, '')"

    def lock_output(self) -> str:
        """Locks the row of an output until the transaction ends."""
        return f"UPDATE {self.epochs} SET {self.quoted('epoch')} = {self.quoted('epoch')}{self._output}"

    def published(self) -> str:
        """Selects epoch and id of what an output has published last."""
        return f"SELECT {self._listed(('epoch', 'gid'))} FROM {self.epochs}{self._output}"

    def set_published(self) -> str:
        """Notes what an output has published last; takes epoch, id, watermark, query and output."""
        values = ", ".join(f"{self.quoted(name)} = ?" for name in ("epoch", "gid", "watermark"))
        return f"UPDATE {self.epochs} SET {values}{self._output}"

    def set_back(self, newest: TransactionId) -> str:
        """For people: sets an output back to an older epoch, after its home was restored."""
        epoch, query, sink = map(self.quoted, ("epoch", "query", "output"))
        return (
            f"UPDATE {self.epochs} SET {epoch} = {newest.epoch} WHERE {query} = '{newest.query}' AND {sink} = "
            f"'{newest.sink}'"
        )

    def taken_for_one(self, name: str) -> str:
        """Selects two keys, in staged rows and in the table, that are equal to the database but not to Spark."""

        def whole(row: str) -> str:
            return f"CONCAT_WS(', ', {', '.join(f'BINARY {row}.{self.quoted(text)}' for text in self.texts)})"

        def shown(value: str) -> str:
            return f"CONVERT({value} USING utf8mb4)"

        staged, old, new = self.beside(name), whole("t"), whole("s")
        same = " AND ".join(f"t.{q} = s.{q}" for q in map(self.quoted, self.keys))
        grouped = ", ".join(f"s.{self.quoted(key)}" for key in self.keys)
        return (
            f"(SELECT {shown(old)}, {shown(new)} FROM {self.table} t JOIN {staged} s ON {same} WHERE {old} <> {new} "
            f"LIMIT 1) UNION ALL (SELECT {shown(f'MIN({new})')}, {shown(f'MAX({new})')} FROM {staged} s GROUP BY "
            f"{grouped} HAVING MIN({new}) <> MAX({new}) LIMIT 1)"
        )

    def publish(self, name: str) -> str:
        """Appends or upserts the staged rows; among several with one key, the one with the greatest other columns."""
        columns = self._listed(self.columns)
        if not self.keys:
            return f"INSERT INTO {self.table} ({columns}) SELECT {columns} FROM {self.beside(name)}"
        others = [each for each in self.columns if each not in self.keys]
        order = ", ".join(f"CASE WHEN {q} IS NULL THEN 1 ELSE 0 END, {q} DESC" for q in map(self.quoted, others))
        number = self.quoted(NUMBER)
        ranked = (
            f"SELECT {columns}, ROW_NUMBER() OVER (PARTITION BY {self._listed(self.keys)} "
            f"ORDER BY {order or self._listed(self.keys)}) AS {number} FROM {self.beside(name)}"
        )
        rows = f"SELECT {columns} FROM ({ranked}) ranked WHERE {number} = 1"
        if self.family == "mysql":
            changes = ", ".join(f"{q} = VALUES({q})" for q in map(self.quoted, others or self.keys))
            return f"INSERT INTO {self.table} ({columns}) {rows} ON DUPLICATE KEY UPDATE {changes}"
        same = " AND ".join(f"t.{q} = s.{q}" for q in map(self.quoted, self.keys))
        changes = ", ".join(f"{q} = s.{q}" for q in map(self.quoted, others))
        values = ", ".join(f"s.{q}" for q in map(self.quoted, self.columns))
        matched = f" WHEN MATCHED THEN UPDATE SET {changes}" if changes else ""
        return (
            f"MERGE INTO {self.table} t USING ({rows}) s ON ({same}){matched} "
            f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
        )

    @property
    def _engine(self) -> str:
        return " ENGINE=InnoDB" if self.family == "mysql" else ""

    @property
    def _output(self) -> str:
        return f" WHERE {self.quoted('query')} = ? AND {self.quoted('output')} = ?"

    def _listed(self, names: Sequence[str]) -> str:
        return ", ".join(map(self.quoted, names))


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
