"""``txns``: lists the transactions a query has left in PostgreSQL and Kafka, and settles them by its record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkjet.cli.arguments import show
from sparkjet.cli.homes import home_at
from sparkjet.errors import AnalysisError, LostTransactionError, SparkjetError
from sparkjet.sinks.naming import ListedTransaction, prefix_of
from sparkjet.snapshots.outbox_entries import OutboxEntries
from sparkjet.snapshots.record_log import newest_record

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from sparkjet.connectors.kafka.access import Access
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


def settled(
    checkpoint: str,
    settings: Sequence[str],
    dsn: str,
    kafka: Path | None,
    refused: Path | None,
    *,
    settle: bool,
    as_json: bool,
) -> int:
    """List, settle or publish what a query has left; returns the exit status.

    Raises:
        AnalysisError: An argument is wrong, or a server cannot be reached.
    """
    if kafka is not None:
        if refused is not None:
            message = (
                "--refused: this is for rows that a table in PostgreSQL refuses: pass --dsn. What a topic refuses "
                "waits in the home: change the topic so that it takes the rows, and start the query."
            )
            raise AnalysisError(message)
        in_kafka(lambda: _record(checkpoint, settings), _access(kafka), settle=settle, as_json=as_json)
        return 0
    if refused is not None:
        home = home_at(checkpoint, "checkpoint", settings)
        return publish_accepted(newest_record(home, "txns")[1], home, dsn, refused, as_json=as_json)
    in_postgres(_record(checkpoint, settings), dsn, settle=settle, as_json=as_json)
    return 0


def in_postgres(record: Record, dsn: str, *, settle: bool, as_json: bool) -> None:
    """List a query's prepared transactions and, with ``settle``, end them by its newest record.

    May run alongside the query: it only ends transactions that no driver can still decide.

    Raises:
        AnalysisError: The server cannot be reached.
        SinkError: The server refuses.
    """
    try:
        import psycopg  # noqa: PLC0415 - the extra is optional

        from sparkjet.connectors.postgres.copying import connect, explain  # noqa: PLC0415 - as above
        from sparkjet.connectors.postgres.transactions import PostgresTransactions, prepared  # noqa: PLC0415
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

    _report(record, found, commit, server.roll_back, settle=settle, as_json=as_json)


def publish_accepted(record: Record, home: Directory, dsn: str, path: Path, *, as_json: bool) -> int:
    """Publish decided rows that wait in the outbox, except those that the table refuses, which go into a file.

    May run alongside the query, and repeatedly: rows and marker are committed together, after the file is durable.

    Returns:
        The exit status: 1 if an output's rows could not be published.

    Raises:
        AnalysisError: The extra ``postgres`` is not installed, or the file exists or cannot be written.
    """
    try:
        from sparkjet.connectors.postgres.refused import RefusedRows  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.postgres.transactions import PostgresTransactions, decided_rows  # noqa: PLC0415
    except ImportError as error:
        raise _not_installed(error, "postgres") from error
    _check(dsn)
    try:
        path.open("x").close()
    except OSError as error:
        raise AnalysisError(f'--refused: "{path}" cannot be created: {error.strerror}. Name a new file.') from error
    result: dict[str, object]
    status, waiting = 0, [each.handle for each in record.transactions if each.handle.get("way") == "outbox"]
    told: dict[str, Any] = {"query": record.query, "epoch": record.epoch, "outbox": []}
    lines = [f"query {record.query}, epoch {record.epoch}: {len(waiting)} transactions wait in the outbox"]
    for handle in waiting:
        entries = OutboxEntries(home.below("snapshots").below("outbox").below(handle["sink"]))
        refused = RefusedRows()
        try:
            rows = _undamaged(entries, handle, decided_rows)
            is_new = PostgresTransactions(dsn).publish(handle, rows, partial(refused.save, path), refused.write)
        except (SparkjetError, OSError) as error:
            status, done, result = 1, f"nothing was published: {error}", {"error": str(error)}
        else:
            done = f"{refused.accepted} rows published, {len(refused.lines)} refused" if is_new else "published before"
            result = {"published": refused.accepted, "refused": len(refused.lines)} if is_new else {}
        lines.append(f"epoch {handle['epoch']} of output {handle['sink']!r}: {done}")
        told["outbox"].append({"epoch": handle["epoch"], "output": handle["sink"], **result})
    show(lines, told, as_json=as_json)
    return status


def in_kafka(read: Callable[[], Record], access: Access, *, settle: bool, as_json: bool) -> None:
    """Like :func:`in_postgres`, for open transactions in Kafka; ``read`` reads the newest record.

    Raises:
        AnalysisError: The extra ``kafka`` is not installed.
        SinkError: The brokers cannot be reached, or refuse.
    """
    try:
        from sparkjet.connectors.kafka.transactions import KafkaTransactions  # noqa: PLC0415 - the extra is optional
    except ImportError as error:
        raise AnalysisError(f'txns --kafka needs {error.name}: pip install "sparkjet[kafka]".') from error
    brokers = KafkaTransactions(access)
    found = brokers.open_of(read().query)
    # Read after the listing: what was open before the record was read cannot belong to a later epoch.
    record = read()
    staged = [
        {"epoch": decided.handle["epoch"], "output": decided.sink}
        for decided in record.transactions
        if decided.handle.get("way") == "kafka-staged"
    ]

    def commit() -> None:
        for decided in record.transactions:
            if decided.handle.get("way") == "kafka":
                brokers.commit(decided.handle, lambda: None)

    _report(record, found, commit, brokers.abort, settle=settle, as_json=as_json, staged=staged)


def _undamaged(
    entries: OutboxEntries, handle: Handle, rows: Callable[[Directory, Handle], Iterator[RecordBatch]]
) -> Iterator[RecordBatch]:
    """The rows of an entry; read on demand, as rows already published have been removed."""
    damage = entries.damage(handle)
    if damage is not None:
        raise LostTransactionError(f"{damage}. Restore the outbox.")
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
        raise AnalysisError("--dsn: this is not a PostgreSQL connection string.") from None


def _report(
    record: Record,
    found: Sequence[ListedTransaction],
    commit: Callable[[], None],
    roll_back: Callable[[Sequence[str]], None],
    *,
    settle: bool,
    as_json: bool,
    staged: Sequence[dict[str, Any]] = (),
) -> None:
    """Print what was found and, with ``settle``, what was done with it."""
    now = datetime.now(timezone.utc)
    verdicts = [verdict(each, record) for each in found]
    lines = [
        *(
            f"epoch {each['epoch']} of output {each['output']!r}: its rows are in the home, and the next start of the "
            "query publishes what is missing"
            for each in staged
        ),
        f"query {record.query}, epoch {record.epoch}: {len(found)} prepared transactions",
        *(
            f"{kind:8} {str(now - each.since).partition('.')[0]:>16} {each.gid}  ({MEANINGS[kind]})"
            for kind, each in zip(verdicts, found, strict=True)
        ),
    ]
    told: dict[str, Any] = {
        "query": record.query,
        "epoch": record.epoch,
        "transactions": [
            {"id": each.gid, "state": kind, "since": each.since.isoformat()}
            for kind, each in zip(verdicts, found, strict=True)
        ],
        "staged": staged,
    }
    if settle:
        if not as_json:
            # Before it is tried: those that refuse to end are among them.
            show(lines, told, as_json=False)
            lines = []
        commit()
        orphans = [each.gid for kind, each in zip(verdicts, found, strict=True) if kind == ORPHAN]
        roll_back(orphans)
        committed = verdicts.count(DECIDED)
        left = len(found) - committed - len(orphans)
        lines.append(f"committed {committed}, rolled back {len(orphans)}, left {left}")
        told["settled"] = {"committed": committed, "rolledBack": len(orphans), "left": left}
    show(lines, told, as_json=as_json)


def verdict(found: ListedTransaction, record: Record) -> str:
    """The state of a prepared transaction according to the record: one of the keys of :data:`MEANINGS`."""
    decided = {gid for each in record.transactions for gid, _ in each.handle.get("slots", ())}
    decided |= {one["id"] for each in record.transactions for one in each.handle.get("transactions", ())}
    if found.gid in decided:
        return DECIDED
    if found.takeover > record.takeover:
        return UNKNOWN
    # A fenced driver decides nothing, and a recorded epoch is not decided again.
    if found.takeover < record.takeover:
        return ORPHAN
    if found.is_pooled:
        # A later epoch may use any other pool.
        return ORPHAN if found.prefix in {ListedTransaction(gid).prefix for gid in decided} else OPEN
    return ORPHAN if found.epoch <= record.epoch else OPEN


def _record(checkpoint: str, settings: Sequence[str]) -> Record:
    return newest_record(home_at(checkpoint, "checkpoint", settings), "txns")[1]


def _access(file: Path) -> Access:
    # Parsed without librdkafka: sparkjet itself sends the requests that end transactions.
    from sparkjet.connectors.kafka.access import Access  # noqa: PLC0415 - on use only

    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        message = f'--kafka: "{file}" cannot be read: {error.strerror if isinstance(error, OSError) else "not UTF-8"}.'
        raise AnalysisError(message) from error
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    # With or without the prefix of the options, as error messages show it.
    properties = {name.strip().removeprefix("kafka."): value.strip() for name, _, value in pairs}
    try:
        return Access.of(properties)
    except AnalysisError as error:
        raise AnalysisError(f'--kafka: "{file}": {error}') from error
