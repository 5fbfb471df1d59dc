"""The markers' memory of a query: epochs that are missing in a checkpoint restored from a backup."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg

from sparkjet.connectors.postgres.copying import connect
from sparkjet.connectors.postgres.transactions import gids_of

if TYPE_CHECKING:
    from sparkjet.connectors.postgres.target import Target
    from sparkjet.sinks.protocol import Handle, TransactionId


def published_after(
    conninfo: str, newest: TransactionId, handle: Handle | None, targets: Iterable[Target]
) -> str | None:
    """See :meth:`Sink.published_after`; queries the markers next to each target.

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
