"""``txns``: lists the transactions a query has left in PostgreSQL and Kafka, and settles them by its record."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.cli.homes import add_settings, home_at, newest_record
from sparkjet.errors import AnalysisError
from sparkjet.sinks.naming import ListedTransaction, prefix_of

if TYPE_CHECKING:
    from sparkjet.sinks.kafka.access import Access
    from sparkjet.snapshots.record import Record

DECIDED, ORPHAN, OPEN, UNKNOWN = "decided", "orphan", "open", "unknown"
MEANINGS = {
    DECIDED: "the record publishes it: is committed",
    ORPHAN: "no record will ever publish it: is rolled back",
    OPEN: "its epoch is not decided: left to its driver, or to the next start of the query",
    UNKNOWN: "of a later run than the record: left, as this checkpoint is not the newest copy",
}
_DESCRIPTION = (
    "Lists the transactions that a query has prepared, in PostgreSQL or with --kafka in Kafka, with age and "
    "state by its record. PostgreSQL's password comes from PGPASSWORD or libpq's password file."
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options to those of the command line."""
    txns = commands.add_parser("txns", help="prepared transactions of a query", description=_DESCRIPTION)
    txns.add_argument("checkpoint", help="the query's checkpointLocation")
    add_settings(txns)
    # One of them, explicitly: a query may write to both, and the other would silently be left unsettled.
    where = txns.add_mutually_exclusive_group()
    where.add_argument("--dsn", default="", help="libpq's connection string: host=… dbname=… user=…")
    where.add_argument(
        "--kafka", metavar="FILE", help="librdkafka's properties, one per line: bootstrap.servers=host:port"
    )
    txns.add_argument("--settle", action="store_true", help="commit or abort what the record decides, and nothing else")
    txns.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    if chosen.kafka is not None:
        return in_kafka(lambda: _record(chosen.checkpoint, chosen.conf), _access(chosen.kafka), settle=chosen.settle)
    return in_postgres(_record(chosen.checkpoint, chosen.conf), chosen.dsn, settle=chosen.settle)


def in_postgres(record: Record, dsn: str, *, settle: bool) -> int:
    """List a query's prepared transactions and, with ``settle``, end them by its newest record.

    May run beside the query: it only ends transactions that no driver can decide any more.

    Raises:
        AnalysisError: The server cannot be reached.
        SinkError: The server refuses.
    """
    try:
        import psycopg  # noqa: PLC0415 - the extra is optional

        from sparkjet.sinks.postgres.copying import connect, explain  # noqa: PLC0415 - as above
        from sparkjet.sinks.postgres.transactions import PostgresTransactions, prepared  # noqa: PLC0415
    except ImportError as error:
        message = f'txns needs {error.name}: pip install "sparkjet[postgres]".'
        raise AnalysisError(message) from error
    try:
        with closing(connect(dsn)) as connection:
            found = prepared(connection, prefix_of(record.query))
    except psycopg.ProgrammingError:
        # The cause quotes parts of the string, which may contain a password.
        message = "--dsn: this is not a PostgreSQL connection string."
        raise AnalysisError(message) from None
    except psycopg.Error as error:
        raise AnalysisError(explain(error)) from error
    server = PostgresTransactions(dsn)

    def commit() -> None:
        for decided in record.transactions:
            if decided.handle.get("way") == "prepared":
                server.commit(decided.handle, lambda: None)

    return _report(record, found, commit, server.roll_back, settle=settle)


def in_kafka(read: Callable[[], Record], access: Access, *, settle: bool) -> int:
    """Like :func:`in_postgres`, for open transactions in Kafka; ``read`` reads the newest record.

    Raises:
        AnalysisError: The extra ``kafka`` is not installed.
        SinkError: The brokers cannot be reached, or refuse.
    """
    try:
        from sparkjet.sinks.kafka.transactions import KafkaTransactions  # noqa: PLC0415 - the extra is optional
    except ImportError as error:
        message = f'txns --kafka needs {error.name}: pip install "sparkjet[kafka]".'
        raise AnalysisError(message) from error
    brokers = KafkaTransactions(access)
    found = brokers.open_of(read().query)
    # Read after the listing: what was open before the record was read cannot belong to an epoch after it.
    record = read()

    def commit() -> None:
        for decided in record.transactions:
            if decided.handle.get("way") == "kafka":
                brokers.commit(decided.handle, lambda: None)

    return _report(record, found, commit, brokers.abort, settle=settle)


def _report(
    record: Record,
    found: Sequence[ListedTransaction],
    commit: Callable[[], None],
    roll_back: Callable[[Sequence[str]], None],
    *,
    settle: bool,
) -> int:
    now = datetime.now(timezone.utc)
    print(f"query {record.query}, epoch {record.epoch}: {len(found)} prepared transactions")
    for each in found:
        kind = verdict(each, record)
        print(f"{kind:8} {str(now - each.since).partition('.')[0]:>16} {each.gid}  ({MEANINGS[kind]})")
    if not settle:
        return 0
    commit()
    orphans = [each.gid for each in found if verdict(each, record) == ORPHAN]
    roll_back(orphans)
    committed = sum(verdict(each, record) == DECIDED for each in found)
    print(f"committed {committed}, rolled back {len(orphans)}, left {len(found) - committed - len(orphans)}")
    return 0


def verdict(found: ListedTransaction, record: Record) -> str:
    """The state of a prepared transaction by the record: one of the keys of :data:`MEANINGS`."""
    decided = {gid for each in record.transactions for gid, _ in each.handle.get("slots", ())}
    decided |= {slot["id"] for each in record.transactions for slot in each.handle.get("transactions", ())}
    if found.gid in decided:
        return DECIDED
    if found.takeover > record.takeover:
        return UNKNOWN
    # A fenced driver decides nothing any more, and a recorded epoch is not decided again.
    if found.takeover < record.takeover:
        return ORPHAN
    if found.is_pooled:
        # A later epoch may use any other pool.
        return ORPHAN if found.prefix in {ListedTransaction(gid).prefix for gid in decided} else OPEN
    return ORPHAN if found.epoch <= record.epoch else OPEN


def _record(checkpoint: str, settings: Sequence[str]) -> Record:
    return newest_record(home_at(checkpoint, "checkpoint", settings), "txns")[1]


def _access(file: str) -> Access:
    # Parsed without librdkafka: sparkjet itself sends the requests that end transactions.
    from sparkjet.sinks.kafka.access import Access  # noqa: PLC0415 - on use only

    try:
        lines = [line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        message = f'--kafka: "{file}" cannot be read: {error.strerror if isinstance(error, OSError) else "not UTF-8"}.'
        raise AnalysisError(message) from error
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    # With or without the prefix of the options, as error messages show it.
    properties = {name.strip().removeprefix("kafka."): value.strip() for name, _, value in pairs}
    try:
        return Access.of(properties)
    except AnalysisError as error:
        message = f'--kafka: "{file}": {error}'
        raise AnalysisError(message) from error
