"""Refused rows: the way out if a table refuses rows of a decided epoch, which keeps all others."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from sparkjet.connectors.postgres.copying import is_refusal
from sparkjet.connectors.postgres.transactions import STAGED, stage
from sparkjet.storage.paths import sync_path

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkjet.connectors.postgres.target import Target

_NUMBERED = sql.Identifier("pg_temp", "_sparkjet_numbered")


@dataclass
class RefusedRows:
    """Writes the rows that a table accepts, and collects the others as lines of JSON.

    Rows are tried together; those that fail together are halved, so that few refusals cost few statements. With an
    upsert, later rows replace earlier ones, so that among a key's rows the greatest accepted one stays.

    Attributes:
        lines: For each refused row: the server's message, and the row as printed by ``row_to_json``.
        accepted: The number of rows accepted.
    """

    lines: list[str] = field(default_factory=list)
    accepted: int = 0

    def write(self, cursor: psycopg.Cursor[Any], target: Target, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the accepted rows in the open transaction; a ``write`` for :meth:`PostgresTransactions.publish`."""
        # Deferred constraints would otherwise be refused by COMMIT, together with all other rows.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        stage(cursor, target, batches)
        cursor.execute(target.number(STAGED, _NUMBERED))
        cursor.execute(sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})").format(_NUMBERED, target.position))
        rows = cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(_NUMBERED)).fetchone()
        # Fails if no row at all could be written.
        cursor.execute(target.insert(_NUMBERED, 0, 0))
        waiting = [(1, 1 + int(rows[0] if rows else 0))]
        while waiting:
            first, end = waiting.pop()
            try:
                with cursor.connection.transaction():
                    cursor.execute(target.insert(_NUMBERED, first, end))
            except psycopg.Error as error:
                if not is_refusal(error):
                    raise
                if end - first > 1:
                    middle = (first + end) // 2
                    waiting += [(middle, end), (first, middle)]
                    continue
                cursor.execute(target.row(_NUMBERED, first))
                (row,) = cursor.fetchone() or ("null",)
                message = json.dumps(" ".join(str(error).split()), ensure_ascii=False)
                self.lines.append(f'{{"error": {message}, "row": {row}}}')
            else:
                self.accepted += end - first

    def save(self, path: Path) -> None:
        """Append the lines to a file, durably: they are nowhere else once the others have been committed."""
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in self.lines)
        sync_path(path)
        sync_path(path.parent)
