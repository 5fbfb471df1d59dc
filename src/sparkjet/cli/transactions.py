"""``txns``: lists the transactions a query has left in PostgreSQL and Kafka, and settles them by its record."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.cli.homes import add_settings, home_at, newest_record
from sparkjet.errors import AnalysisError, LostTransactionError, SparkjetError
from sparkjet.sinks.naming import ListedTransaction, prefix_of
from sparkjet.snapshots.outbox_entries import OutboxEntries

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from sparkjet.sinks.kafka.access import Access
    from sparkjet.sinks.protocol import Handle
    from sparkjet.snapshots.record import Record
    from sparkjet.storage.directory import Directory

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
    how = txns.add_mutually_exclusive_group()
    how.add_argument("--settle", action="store_true", help="commit or abort what the record decides, and nothing else")
    how.add_argument(
        "--refused",
        metavar="FILE",
        help="publish the decided rows that wait in the outbox for PostgreSQL, except those that the table refuses: "
        "write these into a new file, one JSON object a line",
    )
    txns.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    if chosen.kafka is not None:
        if chosen.refused is not None:
            message = (
                "--refused: this is for rows that a table in PostgreSQL refuses: pass --dsn. What a topic refuses "
                "waits in the home: change the topic so that it takes the rows, and start the query."
            )
            raise AnalysisError(message)
        return in_kafka(lambda: _record(chosen.checkpoint, chosen.conf), _access(chosen.kafka), settle=chosen.settle)
    if chosen.refused is not None:
        home = home_at(chosen.checkpoint, "checkpoint", chosen.conf)
        return publish_accepted(newest_record(home, "txns")[1], home, chosen.dsn, Path(chosen.refused))
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
        raise _not_installed(error, "postgres") from error
    _check(dsn)
    try:
        with closing(connect(dsn)) as connection:
            found = prepared(connection, prefix_of(record.query))
    except psycopg.Error as error:
        raise AnalysisError(explain(error)) from error
    server = PostgresTransactions(dsn)

    def commit() -> None:
        for decided in record.transactions:
            if decided.handle.get("way") == "prepared":
                server.commit(decided.handle, lambda: None)

    return _report(record, found, commit, server.roll_back, settle=settle)


def publish_accepted(record: Record, home: Directory, dsn: str, path: Path) -> int:
    """Publish what is decided and waits in the outbox, except the rows that the table refuses: these go into a file.

    May run beside the query, and repeatedly: rows and marker are committed together, after the file is durable.

    Returns:
        The exit status: 1 if an output's rows could not be published.

    Raises:
        AnalysisError: The extra ``postgres`` is not installed, or the file exists or cannot be written.
    """
    try:
        from sparkjet.sinks.postgres.refused import RefusedRows  # noqa: PLC0415 - the extra is optional
        from sparkjet.sinks.postgres.transactions import PostgresTransactions, decided_rows  # noqa: PLC0415
    except ImportError as error:
        raise _not_installed(error, "postgres") from error
    _check(dsn)
    try:
        path.open("x").close()
    except OSError as error:
        message = f'--refused: "{path}" cannot be created: {error.strerror}. Name a new file.'
        raise AnalysisError(message) from error
    status, waiting = 0, [each.handle for each in record.transactions if each.handle.get("way") == "outbox"]
    print(f"query {record.query}, epoch {record.epoch}: {len(waiting)} transactions wait in the outbox")
    for handle in waiting:
        entries = OutboxEntries(home.below("snapshots").below("outbox").below(handle["sink"]))
        refused = RefusedRows()
        try:
            rows = _undamaged(entries, handle, decided_rows)
            is_new = PostgresTransactions(dsn).publish(handle, rows, partial(refused.save, path), refused.write)
        except (SparkjetError, OSError) as error:
            status, done = 1, f"nothing was published: {error}"
        else:
            done = f"{refused.accepted} rows published, {len(refused.lines)} refused" if is_new else "published before"
        print(f"epoch {handle['epoch']} of output {handle['sink']!r}: {done}")
    return status


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
    for decided in record.transactions:
        if decided.handle.get("way") == "kafka-staged":
            print(
                f"epoch {decided.handle['epoch']} of output {decided.sink!r}: its rows are in the home, and the next "
                "start of the query publishes what is missing"
            )

    def commit() -> None:
        for decided in record.transactions:
            if decided.handle.get("way") == "kafka":
                brokers.commit(decided.handle, lambda: None)

    return _report(record, found, commit, brokers.abort, settle=settle)


def _undamaged(
    entries: OutboxEntries, handle: Handle, rows: Callable[[Directory, Handle], Iterator[RecordBatch]]
) -> Iterator[RecordBatch]:
    """The rows of an entry; read on demand, as what was published before has been removed."""
    damage = entries.damage(handle)
    if damage is not None:
        message = f"{damage}. Restore the outbox."
        raise LostTransactionError(message)
    yield from rows(entries.at(handle["box"]), handle)


def _not_installed(error: ImportError, extra: str) -> AnalysisError:
    return AnalysisError(f'txns needs {error.name}: pip install "sparkjet[{extra}]".')


def _check(dsn: str) -> None:
    from psycopg import ProgrammingError  # noqa: PLC0415 - the extra is optional
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - as above

    try:
        conninfo_to_dict(dsn)
    except ProgrammingError:
        # The cause quotes parts of the string, which may contain a password.
        message = "--dsn: this is not a PostgreSQL connection string."
        raise AnalysisError(message) from None


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
