"""The target: a table, the columns that rows bring, and every statement about it, with identifiers quoted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed, Identifier

MARKERS = "_sparkjet_commits"
"""Table beside the target that tells a committed transaction from a lost one."""


@dataclass(frozen=True)
class Target:
    """Where rows go.

    Attributes:
        schema: The table's schema.
        table: The table.
        columns: Names of the columns, in the order in which rows bring them.
        keys: Those that identify a row where rows replace older ones; empty where they are added.
        instants: Positions of columns that arrive as microseconds since 1970.
    """

    schema: str
    table: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    instants: frozenset[int] = frozenset()

    def describe(self) -> dict[str, Any]:
        """What a record keeps: rows that are published later may meet other options."""
        return {
            "schema": self.schema,
            "table": self.table,
            "columns": list(self.columns),
            "keys": list(self.keys),
            "instants": sorted(self.instants),
        }

    @staticmethod
    def of(described: dict[str, Any]) -> Target:
        """The target that was described."""
        return Target(
            described["schema"],
            described["table"],
            tuple(described["columns"]),
            tuple(described["keys"]),
            frozenset(described["instants"]),
        )

    @property
    def name(self) -> Identifier:
        """The quoted table."""
        return sql.Identifier(self.schema, self.table)

    @property
    def markers(self) -> Identifier:
        """The quoted table of markers."""
        return sql.Identifier(self.schema, MARKERS)

    def create_markers(self) -> Composed:
        """Makes the table of markers."""
        return sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (gid text PRIMARY KEY, query text NOT NULL, sink text NOT NULL, "
            "epoch bigint NOT NULL, written timestamptz NOT NULL DEFAULT now())"
        ).format(self.markers)

    def mark(self, query: str, sink: str, epoch: int) -> Composed:
        """Begins the INSERT of a marker; ``'gid')`` ends it."""
        statement = "INSERT INTO {} (query, sink, epoch, gid) VALUES ({}, {}, {}, "
        return sql.SQL(statement).format(self.markers, query, sink, epoch)

    def mark_once(self, query: str, sink: str, epoch: int, gid: str) -> Composed:
        """Inserts a marker unless it is there."""
        return self.mark(query, sink, epoch) + sql.SQL("{}) ON CONFLICT DO NOTHING").format(gid)

    def forget(self, query: str, sink: str, epoch: int) -> Composed:
        """Removes the markers that a younger epoch's marker makes needless."""
        statement = "DELETE FROM {} WHERE query = {} AND sink = {} AND epoch < {}"
        return sql.SQL(statement).format(self.markers, query, sink, epoch)

    def settled(self, gid: str, query: str, sink: str, epoch: int) -> Composed:
        """Says whether a transaction was committed: its marker is there, or that of an epoch after it.

        Epochs of a sink are settled in their order, so a later one tells about all before it.
        """
        statement = "SELECT EXISTS (SELECT FROM {} WHERE gid = {} OR (query = {} AND sink = {} AND epoch > {}))"
        return sql.SQL(statement).format(self.markers, gid, query, sink, epoch)

    def newest(self, query: str, sink: str) -> Composed:
        """Says which epoch was settled last."""
        statement = "SELECT max(epoch) FROM {} WHERE query = {} AND sink = {}"
        return sql.SQL(statement).format(self.markers, query, sink)

    def settle_only(self, query: str, sink: str, known: int, newest: int, gids: Sequence[str]) -> Composed:
        """Makes the markers say that some transactions of epoch ``known`` were committed, and none after ``newest``."""
        statement = sql.SQL("DELETE FROM {} WHERE query = {} AND sink = {} AND epoch > {};")
        forget = statement.format(self.markers, query, sink, newest)
        if not gids:
            return forget
        rows = sql.SQL(", ").join(sql.SQL("({}, {}, {}, {})").format(gid, query, sink, known) for gid in gids)
        statement = sql.SQL("INSERT INTO {} (gid, query, sink, epoch) VALUES {} ON CONFLICT DO NOTHING; ")
        return statement.format(self.markers, rows) + forget

    def overtaken(self, query: str, sink: str, epoch: int) -> Composed:
        """Says whether a later epoch has been settled."""
        statement = "SELECT EXISTS (SELECT FROM {} WHERE query = {} AND sink = {} AND epoch > {})"
        return sql.SQL(statement).format(self.markers, query, sink, epoch)

    def copy(self, into: Composable | None = None) -> Composed:
        """Takes rows in, as UTF-8 whatever the database's encoding is."""
        statement = "COPY {} ({}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
        return sql.SQL(statement).format(into or self.name, _listed(self.columns))

    def stage(self, staged: Composable) -> Composed:
        """Makes a temporary table for the rows of one epoch."""
        return sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
            staged, _listed(self.columns), self.name
        )

    def merge(self, staged: Composable) -> Composed:
        """Replaces rows by those of the temporary table; of several with one key the greatest in its other columns."""
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


def _listed(names: Sequence[str]) -> Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
