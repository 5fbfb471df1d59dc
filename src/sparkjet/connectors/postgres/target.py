"""The target: a table, the columns of the rows, and every statement about it, with quoted identifiers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed, Identifier

MARKERS = "_sparkjet_commits"
"""Table next to the target that distinguishes committed from lost transactions."""


@dataclass(frozen=True)
class Target:
    """The table that rows are written to.

    Attributes:
        schema: The table's schema.
        table: The table.
        columns: Names of the columns, in the order of the rows' columns.
        keys: Columns that identify a row if rows replace older ones; empty if they are appended.
        instants: Positions of the columns that are sent as microseconds since 1970.
    """

    schema: str
    table: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    instants: frozenset[int] = frozenset()

    def describe(self) -> dict[str, Any]:
        """The description kept in the record, as the options may have changed when the rows are published."""
        return {
            "schema": self.schema,
            "table": self.table,
            "columns": list(self.columns),
            "keys": list(self.keys),
            "instants": sorted(self.instants),
        }

    @staticmethod
    def of(described: dict[str, Any]) -> Target:
        """The target in a description."""
        return Target(
            described["schema"],
            described["table"],
            tuple(described["columns"]),
            tuple(described["keys"]),
            frozenset(described["instants"]),
        )

    @property
    def place(self) -> tuple[str, str]:
        """Its schema and table."""
        return self.schema, self.table

    @property
    def name(self) -> Identifier:
        """The table's quoted name."""
        return sql.Identifier(self.schema, self.table)

    @property
    def markers(self) -> Identifier:
        """The quoted name of the table of markers."""
        return sql.Identifier(self.schema, MARKERS)

    def create_markers(self) -> Composed:
        """Creates the table of markers."""
        return sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (gid text PRIMARY KEY, query text NOT NULL, sink text NOT NULL, "
            "epoch bigint NOT NULL, written timestamptz NOT NULL DEFAULT now(), progress jsonb)"
        ).format(self.markers)

    def mark(self, query: str, sink: str, epoch: int, progress: Mapping[str, Any] | None = None) -> Composed:
        """Begins the INSERT of a marker, with what readers of the table are told; ``'gid')`` ends it."""
        if progress is None:
            statement = "INSERT INTO {} (query, sink, epoch, gid) VALUES ({}, {}, {}, "
            return sql.SQL(statement).format(self.markers, query, sink, epoch)
        offsets = {source: _in_ascii(offset) for source, offset in progress["offsets"].items()}
        # Names of the database are in its encoding. Escapes would be refused after the decision, where it has none.
        told = json.dumps({"table": [self.schema, self.table], **progress, "offsets": offsets}, ensure_ascii=False)
        statement = "INSERT INTO {} (query, sink, epoch, progress, gid) VALUES ({}, {}, {}, {}::jsonb, "
        return sql.SQL(statement).format(self.markers, query, sink, epoch, told)

    def mark_once(
        self, query: str, sink: str, epoch: int, gid: str, progress: Mapping[str, Any] | None = None
    ) -> Composed:
        """Inserts a marker unless it exists."""
        return self.mark(query, sink, epoch, progress) + sql.SQL("{}) ON CONFLICT DO NOTHING").format(gid)

    def delete_older_markers(self, query: str, sink: str, epoch: int) -> Composed:
        """Deletes the markers of earlier epochs, which the marker of ``epoch`` replaces."""
        statement = "DELETE FROM {} WHERE query = {} AND sink = {} AND epoch < {}"
        return sql.SQL(statement).format(self.markers, query, sink, epoch)

    def is_committed(self, gid: str, query: str, sink: str, epoch: int) -> Composed:
        """Selects whether a transaction was committed: its own marker exists, or that of a later epoch.

        A sink's epochs are committed in order, so a later marker implies all epochs before it.
        """
        statement = "SELECT EXISTS (SELECT FROM {} WHERE gid = {} OR (query = {} AND sink = {} AND epoch > {}))"
        return sql.SQL(statement).format(self.markers, gid, query, sink, epoch)

    def marked_after(self, query: str, sink: str, epoch: int) -> Composed:
        """Selects epoch and id of what was committed after an epoch, the newest last."""
        statement = "SELECT epoch, gid FROM {} WHERE query = {} AND sink = {} AND epoch > {} ORDER BY epoch"
        return sql.SQL(statement).format(self.markers, query, sink, epoch)

    def newest(self, query: str, sink: str) -> Composed:
        """Selects the last committed epoch."""
        statement = "SELECT max(epoch) FROM {} WHERE query = {} AND sink = {}"
        return sql.SQL(statement).format(self.markers, query, sink)

    def reset_markers(self, query: str, sink: str, known: int, newest: int, gids: Sequence[str]) -> Composed:
        """Marks some transactions of epoch ``known`` as committed, and none after epoch ``newest``."""
        statement = sql.SQL("DELETE FROM {} WHERE query = {} AND sink = {} AND epoch > {};")
        forget = statement.format(self.markers, query, sink, newest)
        if not gids:
            return forget
        rows = sql.SQL(", ").join(sql.SQL("({}, {}, {}, {})").format(gid, query, sink, known) for gid in gids)
        statement = sql.SQL("INSERT INTO {} (gid, query, sink, epoch) VALUES {} ON CONFLICT DO NOTHING; ")
        return statement.format(self.markers, rows) + forget

    def superseded(self, query: str, sink: str, epoch: int) -> Composed:
        """Selects whether a later epoch has been committed."""
        statement = "SELECT EXISTS (SELECT FROM {} WHERE query = {} AND sink = {} AND epoch > {})"
        return sql.SQL(statement).format(self.markers, query, sink, epoch)

    def copy(self, into: Composable | None = None) -> Composed:
        """Copies rows in; its options follow."""
        return sql.SQL("COPY {} ({}) FROM STDIN").format(into or self.name, _listed(self.columns))

    def types(self) -> Composed:
        """Selects the types of the columns, in their order; null for one that is gone."""
        return sql.SQL(
            "SELECT (SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass({}) AND attname = name AND NOT attisdropped) "
            "FROM unnest({}::text[]) WITH ORDINALITY AS listed (name, number) ORDER BY number"
        ).format(self.name.as_string(), list(self.columns))

    def stage(self, staged: Composable) -> Composed:
        """Creates a temporary table for the rows of one epoch."""
        return sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
            staged, _listed(self.columns), self.name
        )

    def merge(self, staged: Composable) -> Composed:
        """Upserts the rows of the temporary table; of several with one key, the one with the greatest other columns."""
        others = [name for name in self.columns if name not in self.keys]
        order: list[Composable] = [sql.Identifier(name) for name in self.keys]
        order += [sql.SQL("{} DESC NULLS LAST").format(sql.Identifier(name)) for name in others]
        change: Composable = sql.SQL("NOTHING")
        if others:
            each = [sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others]
            change = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(each))
        return sql.SQL(
            "INSERT INTO {table} ({columns}) SELECT DISTINCT ON ({keys}) {columns} FROM {staged} ORDER BY {order} "
            "ON CONFLICT ({keys}) DO {change}"
        ).format(
            table=self.name,
            columns=_listed(self.columns),
            keys=_listed(self.keys),
            staged=staged,
            order=sql.SQL(", ").join(order),
            change=change,
        )

    def number(self, staged: Composable, numbered: Composable) -> Composed:
        """Creates a temporary table that numbers rows from 1: as they came or, for an upsert, from the least up."""
        others = [name for name in self.columns if name not in self.keys]
        order = [sql.SQL("{} NULLS FIRST").format(sql.Identifier(name)) for name in (*self.keys, *others)]
        return sql.SQL(
            "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT row_number() OVER ({}) AS {}, * FROM {}"
        ).format(
            numbered,
            sql.SQL("ORDER BY {}").format(sql.SQL(", ").join(order)) if self.keys else sql.SQL(""),
            self.position,
            staged,
        )

    @property
    def position(self) -> Identifier:
        """The column with the number of a row."""
        return sql.Identifier("_sparkjet_number")

    def insert(self, numbered: Composable, first: int, end: int) -> Composed:
        """Appends or upserts the numbered rows from ``first`` to before ``end``."""
        rows = sql.SQL("(SELECT * FROM {} WHERE {number} >= {} AND {number} < {} ORDER BY {number}) AS part").format(
            numbered, first, end, number=self.position
        )
        if self.keys:
            return self.merge(rows)
        # Like COPY, which overrides the numbers of an identity column.
        return sql.SQL("INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {rows}").format(
            table=self.name, columns=_listed(self.columns), rows=rows
        )

    def row(self, numbered: Composable, number: int) -> Composed:
        """Selects a numbered row as JSON."""
        return sql.SQL("SELECT row_to_json(part)::text FROM (SELECT {} FROM {} WHERE {} = {}) AS part").format(
            _listed(self.columns), numbered, self.position, number
        )


def _listed(names: Sequence[str]) -> Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _in_ascii(text: str) -> str:
    """The same JSON without letters that the encoding of a database may lack."""
    return re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)
