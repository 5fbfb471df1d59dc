"""The progress of the writers of a table, from the markers beside it."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg
from psycopg import sql

from sparkjet.connectors.postgres.copying import connect
from sparkjet.connectors.postgres.names import parsed
from sparkjet.connectors.postgres.target import MARKERS
from sparkjet.errors import AnalysisError

_NEWEST = (
    "SELECT DISTINCT ON (query, sink) progress || jsonb_build_object('query', query, 'output', sink, 'epoch', epoch) "
    "FROM {} WHERE progress -> 'table' = jsonb_build_array({}, {}) ORDER BY query, sink, epoch DESC"
)


def told_in(dsn: str, table: str) -> list[dict[str, Any]]:
    """The newest progress of each output that writes into a table."""
    try:
        with closing(connect(dsn)) as connection:
            # As the sink does: Orders is orders, and what is in quotes may have dots.
            schema, name = parsed(connection, table, "table")
            rows = connection.execute(sql.SQL(_NEWEST).format(sql.Identifier(schema, MARKERS), schema, name)).fetchall()
    except psycopg.errors.UndefinedTable:
        return []
    except psycopg.Error as error:
        raise AnalysisError(f"complete_until: {table}: {str(error).strip()}") from error
    return [told for (told,) in rows]
