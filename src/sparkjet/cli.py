"""The command line: what a query has left in PostgreSQL, and its settlement by the record."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sparkjet.engine.log import RecordLog
from sparkjet.errors import AnalysisError, RecoveryError, SparkjetError
from sparkjet.paths import local_path
from sparkjet.snapshots import DirectoryStore

if TYPE_CHECKING:
    from sparkjet.engine.record import Record
    from sparkjet.sinks.postgres.transactions import Found

DECIDED, STRAY, OPEN, UNKNOWN = "decided", "stray", "open", "unknown"
MEANINGS = {
    DECIDED: "the record publishes it: is committed",
    STRAY: "no record will ever publish it: is rolled back",
    OPEN: "its epoch is not decided: left to its driver, or to the next start of the query",
    UNKNOWN: "of a later run than the record: left, as this checkpoint is not the newest copy",
}
_DESCRIPTION = (
    "Lists the transactions that a query has prepared in PostgreSQL, with their age and what its record says of them. "
    "The password comes from PGPASSWORD or libpq's password file."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sparkjet")
    commands = parser.add_subparsers(dest="command", required=True)
    txns = commands.add_parser("txns", help="prepared transactions of a query", description=_DESCRIPTION)
    txns.add_argument("checkpoint", help="the query's checkpointLocation")
    txns.add_argument("--dsn", default="", help="how to connect, as libpq has it: host=… dbname=… user=…")
    txns.add_argument("--settle", action="store_true", help="end what the record decides about, and nothing else")
    chosen = parser.parse_args(arguments)
    try:
        return transactions(chosen.checkpoint, chosen.dsn, settle=chosen.settle)
    except SparkjetError as error:
        print(f"sparkjet: {error}", file=sys.stderr)
        return 1


def transactions(checkpoint: str, dsn: str, *, settle: bool) -> int:
    """List a query's prepared transactions, and settle them by its newest record if told to.

    It may run beside the query: it only ends what no driver can decide about any more.

    Raises:
        RecoveryError: There is no record.
        SinkError: The server cannot be reached, or refuses.
    """
    try:
        import psycopg  # noqa: PLC0415 - the extra is optional

        from sparkjet.sinks.postgres.copying import connect, explain  # noqa: PLC0415 - as above
        from sparkjet.sinks.postgres.transactions import PostgresTransactions, prefix_of, prepared  # noqa: PLC0415
    except ImportError as error:
        message = f'txns needs {error.name}: pip install "sparkjet[postgres]".'
        raise AnalysisError(message) from error
    record = _record(checkpoint)
    try:
        with closing(connect(dsn)) as connection:
            found = prepared(connection, prefix_of(record.query))
    except psycopg.ProgrammingError:
        # Its text quotes parts of the string, which may hold a password.
        message = "--dsn: this is no connection string of PostgreSQL."
        raise AnalysisError(message) from None
    except psycopg.Error as error:
        raise AnalysisError(explain(error)) from error
    now = datetime.now(timezone.utc)
    print(f"query {record.query}, epoch {record.epoch}: {len(found)} prepared transactions")
    for each in found:
        kind = verdict(each, record)
        print(f"{kind:8} {str(now - each.since).partition('.')[0]:>16} {each.gid}  ({MEANINGS[kind]})")
    if not settle:
        return 0
    server = PostgresTransactions(dsn)
    for decided in record.transactions:
        if decided.handle.get("way") == "prepared":
            server.commit(decided.handle, lambda: None)
    strays = [each.gid for each in found if verdict(each, record) == STRAY]
    server.roll_back(strays)
    committed = sum(verdict(each, record) == DECIDED for each in found)
    print(f"committed {committed}, rolled back {len(strays)}, left {len(found) - committed - len(strays)}")
    return 0


def verdict(found: Found, record: Record) -> str:
    """What a record says of a prepared transaction: one of the keys of :data:`MEANINGS`."""
    decided = {gid for each in record.transactions for gid, _ in each.handle.get("slots", ())}
    if found.gid in decided:
        return DECIDED
    if found.takeover > record.takeover:
        return UNKNOWN
    # A driver that was taken over decides nothing any more, and an epoch that is recorded is not decided again.
    return STRAY if found.takeover < record.takeover or found.epoch <= record.epoch else OPEN


def _record(checkpoint: str) -> Record:
    home = local_path(checkpoint, "checkpoint")
    newest = RecordLog(DirectoryStore(home / "snapshots")).newest() if (home / "snapshots").is_dir() else None
    if newest is None:
        message = f'txns: "{checkpoint}" holds no record of a query. Give its checkpointLocation.'
        raise RecoveryError(message)
    return newest[1]
