"""Options of ``writeStream``: each name with its meaning, in one table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sparkjet.errors import AnalysisError, nearest

# Not from the package: that needs msgspec, which the workers of the Kafka source may not have.
from sparkjet.time.durations import parse_duration

_UNITS = {"us": "microseconds", "ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_UNITS["min"] = _UNITS["m"]
MOST_PARTITIONS = 2**31 - 1
"""The most partitions that Spark can count."""

QUERY_OPTIONS: Mapping[str, str] = {
    "checkpointLocation": "Directory of the query's snapshots and of Spark's derived checkpoint.",
    "snapshotStore": "grid, or grid://host:port,…: snapshots in the memory of a grid, not in a directory.",
    "queryId": "With snapshotStore: the query's name in the grid, if there is no checkpointLocation.",
    "snapshotBackup": "Another home, to which snapshots are copied in the background; a grid's copy in a directory.",
    "snapshotBackupEvery": "Number of epochs from one copy to the next (100).",
    "processingGuarantee": "exactly-once (default), at-least-once or none.",
    "closeWindowsAtEnd": "With trigger(availableNow=True): also emit the windows that are still open at the end.",
    "overlapEpochs": "Whether the next batch is read while the results of this one are still being written: auto "
    "(default: if every source is known to keep its rows, but with trigger(availableNow=True)), true or false.",
    "statePartitions": "Number of partitions of the state in this run; by default the cores of the application.",
}
"""Options of the query as a whole."""

OUTPUT_OPTIONS: Mapping[str, str] = {
    "lateRowsPath": "Directory for late rows and rows without event time, as Parquet files.",
    "deadLettersPath": "Directory for rows that have failed behind divert(errors=True), as Parquet files.",
    "earlyResultsPeriod": 'With outputMode("update"): how often rows of open windows are emitted (with every batch).',
    "isEarly": 'With outputMode("update"): a column is_early, and every final row even if it was sent before (false).',
}
"""Options of every output."""

FILE_OPTIONS: Mapping[str, str] = {
    "path": "Output directory, a path or a URI.",
    "fileFormat": "parquet (default), orc, json, csv or text; or name it in format(…).",
    "retention": "How long read_files lists an epoch's files, as in Spark's file sink: 12h, 7d, 30 days (for ever).",
    "compression": "Codec, as in Spark's writer.",
    "maxRecordsPerFile": "As in Spark's writer.",
    "header": "csv: whether files start with the column names.",
    "sep": "csv: separator.",
    "delimiter": "csv: the same.",
    "quote": "csv: quoting character.",
    "quoteAll": "csv: whether every value is quoted.",
    "escape": "csv: escaping character.",
    "escapeQuotes": "csv: whether values with quotes are quoted.",
    "charToEscapeQuoteEscaping": "csv: character that escapes the escape of a quote.",
    "ignoreLeadingWhiteSpace": "csv: whether values lose leading white space.",
    "ignoreTrailingWhiteSpace": "csv: whether values lose trailing white space.",
    "nullValue": "csv: text of a null.",
    "emptyValue": "csv: text of an empty string.",
    "encoding": "csv, json and text: character set.",
    "lineSep": "csv, json and text: line separator.",
    "dateFormat": "csv and json: pattern of dates.",
    "timestampFormat": "csv and json: pattern of timestamps.",
    "timestampNTZFormat": "csv and json: pattern of timestamps without time zone.",
    "timeZone": "csv and json: zone of timestamps; the session's by default.",
    "locale": "csv and json: language of dates and timestamps, such as en-US.",
    "ignoreNullFields": "json: whether to leave null fields out.",
}
"""Options of ``format("files")``; all but the first three are passed to Spark's writer."""

DELTA_OPTIONS: Mapping[str, str] = {
    "path": "The table: a path or a URI; it is created if there is none. Or give toTable a name.",
    "mode": "append (default) or upsert.",
    "keyColumns": "mode=upsert: columns, separated by commas, that identify the row to replace.",
    "commitEvery": "How many epochs the table is given at once (1), or an interval after which it is given them.",
    "mergeSchema": "Whether the start adds columns of the rows that the table lacks, as in Spark's writers (false).",
    "compression": "Codec of its Parquet files, as in Spark's writer.",
    "maxRecordsPerFile": "As in Spark's writer.",
}
"""Options of ``format("delta")``."""

ICEBERG_OPTIONS: Mapping[str, str] = {
    "path": "The table, by its directory: a path or a URI; it is created if there is none. Or give toTable a name.",
    "mode": "append (default) or upsert.",
    "keyColumns": "mode=upsert: columns, separated by commas, that identify the row to replace.",
    "commitEvery": "How many epochs the table is given at once (1), or an interval after which it is given them.",
    "branch": "The branch of the table that is given the rows, as in Iceberg's writer for Spark; main by default.",
    "mergeSchema": "Whether the start adds columns of the rows that the table lacks, as in Spark's writers (false).",
    "compression": "Codec of its Parquet files, as in Spark's writer; the table's own by default.",
    "maxRecordsPerFile": "As in Spark's writer.",
}
"""Options of ``format("iceberg")``."""

JDBC_OPTIONS: Mapping[str, str] = {
    "url": "The database, jdbc:…; what follows a ? or ; in it is never logged or recorded.",
    "driver": "Class of the driver; by default the one that is registered for the URL.",
    "user": "User name.",
    "password": "Password; never logged or recorded.",
    "dbtable": "Name of the table as it stands in SQL; it is created if it does not exist.",
    "mode": "append (default) or upsert.",
    "keyColumns": "mode=upsert: columns, separated by commas, that identify the row to replace.",
    "tryOut": "Whether the rows of an epoch are written and rolled back before its decision (true).",
    "batchsize": "Rows of a round trip, as in Spark's JDBC writer (1000).",
    "numPartitions": "Maximum number of connections, as in Spark's JDBC writer.",
    "isolationLevel": "Of the transactions in which tasks write, as in Spark's JDBC writer.",
    "queryTimeout": "Seconds that a statement may take, as in Spark's JDBC writer (for ever).",
    "sessionInitStatement": "Statement with which each connection that publishes rows begins.",
    "createTableOptions": "What CREATE TABLE ends with for a new table, as in Spark's JDBC writer.",
    "createTableColumnTypes": "Types of columns of a new table, as in Spark's JDBC writer: name VARCHAR(64), ….",
    "connectionProvider": "Name of the provider of connections, as in Spark's JDBC writer.",
    "keytab": "File with the Kerberos key, as in Spark's JDBC writer.",
    "principal": "Of Kerberos, as in Spark's JDBC writer.",
    "refreshKrb5Config": "As in Spark's JDBC writer.",
}
"""Options of ``format("jdbc")``."""

CONSOLE_OPTIONS: Mapping[str, str] = {
    "numRows": "Number of rows to print of each epoch (20).",
    "truncate": "Whether to truncate long values (true).",
}
"""Options of ``format("console")``."""

POSTGRES_OPTIONS: Mapping[str, str] = {
    "dsn": "Connection string of libpq; the next five options override it. Never logged or recorded.",
    "host": "Host name of the server.",
    "port": "Port of the server.",
    "dbname": "Name of the database.",
    "user": "User name.",
    "password": "Password; never logged or recorded. libpq also reads its password file.",
    "dbtable": "Name of the table, with or without its schema; it is created if it does not exist.",
    "mode": "append (default) or upsert.",
    "keyColumns": "mode=upsert: the columns, separated by commas, that identify the row to replace.",
    "prepared": "auto (default), always or never: whether rows wait in prepared transactions for the decision.",
    "numPartitions": "Maximum number of connections, as in Spark's JDBC writer.",
}
"""Options of ``format("postgres")``."""

KAFKA_OPTIONS: Mapping[str, str] = {
    "kafka.*": "Properties of librdkafka, at least kafka.bootstrap.servers. Never logged or recorded.",
    "topic": "Topic to write to; overrides a column topic.",
    "numPartitions": "Maximum number of transactions per epoch (16).",
    "commit": "staged (default) or prepared: whether rows wait for the decision in the home, or in open transactions.",
    "progressTopic": "commit=staged: compacted topic of the markers; named after query and output by default.",
    "onLostTransaction": "commit=prepared: fail (default) or continue, if the brokers have dropped what was decided.",
    "onRestoredBackup": "fail (default) or continue, if the topic has epochs that the snapshots do not know.",
}
"""Options of ``format("kafka")``."""

_BROKER_OPTIONS: Mapping[str, str] = {
    "password": "Password; never logged or recorded.",
    "tls": "Whether to connect over TLS (false).",
    "caFile": "tls: PEM file of the authorities to trust; the system's by default.",
    "certFile": "tls: PEM file of the client's certificate.",
    "keyFile": "tls: PEM file of its key.",
    "heartbeat": "Seconds after which broker and client take each other for dead (60).",
}

RABBITMQ_CONNECTION_OPTIONS: Mapping[str, str] = {
    "host": "Host name of the broker (localhost).",
    "port": "Port of the broker (5672; 5671 with tls).",
    "virtualHost": "Virtual host (/).",
    "user": "User name (guest).",
    **_BROKER_OPTIONS,
}
"""Options of ``format("rabbitmq")`` and ``format("sparkjet-rabbitmq")`` alike."""

RABBITMQ_OPTIONS: Mapping[str, str] = {
    "exchange": "Exchange to publish to (the default exchange, where keys are queues); overrides a column exchange.",
    "routingKey": "Routing key of every message; overrides a column routing_key.",
    "confirmTimeoutMs": "How long the broker may take to confirm a message (60000).",
    **RABBITMQ_CONNECTION_OPTIONS,
}
"""Options of ``format("rabbitmq")``."""

ARTEMIS_CONNECTION_OPTIONS: Mapping[str, str] = {
    "host": "Host name of the broker (localhost).",
    "port": "Port of an acceptor that takes STOMP (61616).",
    "user": "User name.",
    **_BROKER_OPTIONS,
}
"""Options of ``format("artemis")`` and ``format("sparkjet-artemis")`` alike."""

ARTEMIS_OPTIONS: Mapping[str, str] = {
    "queue": "Queue to send to: one consumer gets each message.",
    "topic": "Topic to send to instead: all subscribers get each message.",
    **ARTEMIS_CONNECTION_OPTIONS,
    "maxMessagesPerTransaction": "Messages that become visible together (10000); the broker holds them in memory.",
}
"""Options of ``format("artemis")``."""

GRID_JOURNAL_OPTIONS: Mapping[str, str] = {
    "path": "The journal: grid://host:port,…/name of some members; grid:///name for a grid on this machine.",
    "keys": "Columns, separated by commas: rows with the same values are in one partition (tasks take turns).",
    "numPartitions": "Partitions of a new journal (16).",
    "retentionBytes": "What rows may take that no reader needs, such as 2g (256m); the oldest go first.",
    "retentionAge": "How long they stay by the clock of their epoch: 12h, 7d, 30 days (for ever).",
    "maxBytes": "What rows may take that registered readers need (twice retentionBytes).",
    "onFull": "wait (default) for registered readers then, or trim what they need.",
    "fullTimeout": "onFull=wait: how long an epoch waits before it is refused (10 minutes).",
    "progressInterval": "Time between two epochs without rows that tell readers of the watermark (1 second).",
}
"""Options of ``format("grid-journal")``."""

GRID_MAP_OPTIONS: Mapping[str, str] = {
    "path": "The map: grid://host:port,…/name of some members; grid:///name for a grid on this machine.",
    "keys": "Columns, separated by commas, that identify the row to replace.",
    "deleted": "Boolean column: where it is true the row of the key is removed.",
    "timeToLive": "How long a row lasts by the clock of its epoch: 12h, 7d, 30 days (for ever).",
    "expireInterval": "How long a row may be there after that while nothing arrives (10s).",
    "maxBytes": "What the map may take in memory with the epochs that readers hold, such as 512m (no limit).",
    "journal": "Name of a journal of the same grid, to which each change goes: the keys, old and new row (none).",
    **{
        f"journal.{name}": f"journal: {text[0].lower()}{text[1:]}"
        for name, text in GRID_JOURNAL_OPTIONS.items()
        if name not in {"path", "keys"}
    },
}
"""Options of ``format("grid-map")``, with those of its journal."""

SINK_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "artemis": ARTEMIS_OPTIONS,
    "delta": DELTA_OPTIONS,
    "files": FILE_OPTIONS,
    "grid-journal": GRID_JOURNAL_OPTIONS,
    "grid-map": GRID_MAP_OPTIONS,
    "iceberg": ICEBERG_OPTIONS,
    "jdbc": JDBC_OPTIONS,
    "kafka": KAFKA_OPTIONS,
    "postgres": POSTGRES_OPTIONS,
    "rabbitmq": RABBITMQ_OPTIONS,
    "table": FILE_OPTIONS,
    "memory": {},
    "console": CONSOLE_OPTIONS,
    "foreach": {},
    "foreachBatch": {},
    "noop": {},
}


class Options:
    """Options as given; their names are case-insensitive, as in Spark.

    >>> Options({"Path": "/out"}).get("path")
    '/out'
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): (name, value) for name, value in given.items()}

    def check(self, sink: str) -> None:
        """Refuse names that the sink does not know; a user's own sink knows none."""
        self.only([*QUERY_OPTIONS, *OUTPUT_OPTIONS, *SINK_OPTIONS.get(sink, {})], sink)

    def only(self, known: Sequence[str], format: str) -> None:
        """Refuse names that a format does not know; a known name ending in ``.*`` stands for all with that prefix."""
        lowered = {name.lower() for name in known}
        families = tuple(name[:-1] for name in lowered if name.endswith(".*"))
        for lower, (name, _) in self._given.items():
            if lower not in lowered and not lower.startswith(families):
                message = f'option: "{name}" is not an option of format("{format}"); {nearest(name, known)}'
                raise AnalysisError(message)

    def get(self, name: str) -> str | None:
        """Text of an option, None if it was not given."""
        return self._given[name.lower()][1] if name.lower() in self._given else None

    def beginning_with(self, prefix: str) -> dict[str, str]:
        """Texts of the options whose names begin with a prefix, by the rest of the name in lower case.

        >>> Options({"Kafka.Linger.ms": "5", "topic": "out"}).beginning_with("kafka.")
        {'linger.ms': '5'}
        """
        return {lower[len(prefix) :]: text for lower, (_, text) in self._given.items() if lower.startswith(prefix)}

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A true-or-false option."""
        text = self.get(name)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            message = f'option: {name} must be true or false, not "{text}".'
            raise AnalysisError(message)
        return text.lower() == "true"

    def number(self, name: str, *, default: int, most: int | None = None) -> int:
        """A positive whole number, and no larger one than ``most``."""
        text = self.get(name)
        if text is None:
            return default
        if not text.isdecimal() or int(text) < 1:
            message = f'option: {name} must be a positive whole number, not "{text}".'
            raise AnalysisError(message)
        if most is not None and int(text) > most:
            message = f"option: {name} must be {most} at most, not {text}."
            raise AnalysisError(message)
        return int(text)

    def age(self, name: str) -> int | None:
        """A duration in microseconds, None if it was not given: an interval, or the short form of Spark's options.

        >>> Options({"retention": "12h"}).age("retention") == Options({"retention": "12 hours"}).age("retention")
        True
        """
        text = self.get(name)
        if text is None:
            return None
        short = re.fullmatch(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)\s*", text, re.IGNORECASE)
        if short is not None:
            text = f"{short[1]} {_UNITS[short[2].lower()]}"
        return parse_duration(text, name, minimum=1)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of several words."""
        text = (self.get(name) or default).lower()
        if text not in choices:
            message = f'option: {name}="{text}" is not one of {", ".join(choices)}; {nearest(text, choices)}'
            raise AnalysisError(message)
        return text


def file_writer_options(options: Options) -> dict[str, str]:
    """The options that are passed to Spark's file writers."""
    return _given(options, FILE_OPTIONS, "path", "fileFormat", "retention")


def parquet_writer_options(options: Options) -> dict[str, str]:
    """The options of ``format("delta")`` and ``format("iceberg")`` that are passed to Spark's writer of Parquet."""
    return _given(options, DELTA_OPTIONS, "path", "mode", "keyColumns", "commitEvery", "mergeSchema")


def upsert_keys(options: Options) -> tuple[str, ...]:
    """The columns of ``keyColumns``; empty with ``mode=append``."""
    given = options.get("keyColumns")
    names = tuple(name.strip() for name in (given or "").split(",") if name.strip())
    if options.choice("mode", ("append", "upsert"), "append") == "append":
        if given is not None:
            message = "keyColumns: with mode=append, rows have no keys. Use mode=upsert, or leave keyColumns out."
            raise AnalysisError(message)
        return ()
    if not names:
        message = 'mode=upsert needs option("keyColumns", "a, b"): the columns that identify the row to replace.'
        raise AnalysisError(message)
    return names


def jdbc_options(options: Options) -> dict[str, str]:
    """The options of ``format("jdbc")`` that are passed to Spark's data source."""
    own = ("mode", "keyColumns", "tryOut", "createTableOptions", "createTableColumnTypes", "sessionInitStatement")
    return _given(options, JDBC_OPTIONS, *own)


def _given(options: Options, known: Mapping[str, str], *but: str) -> dict[str, str]:
    found = {name: options.get(name) for name in known if name not in but}
    return {name: value for name, value in found.items() if value is not None}
