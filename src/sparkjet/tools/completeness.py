"""Whether a table, a directory or a topic has all rows up to a time, as its writers tell; without a Spark session."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

from sparkjet.connectors.iceberg.kafka_connect import connector_of, valid_through
from sparkjet.errors import AnalysisError
from sparkjet.storage.paths import local_path
from sparkjet.time import MIN

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, 23, 59, 59, 999_999, timezone.utc)
_OURS = re.compile(r"part-\d{9}-\d{5}-")
"""How the files of an epoch begin, of which a driver may be about to tell."""
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]+:(?=//)|jdbc:", re.IGNORECASE)
_HIDDEN = ("_", ".")
"""Prefixes of names that readers ignore, except for directories of partitions."""
_MOVING = {"OPTIMIZE", "VACUUM START", "VACUUM END", "REORG", "FSCK", "CLUSTER BY", "COMPUTE STATS", "MANUAL_UPDATE"}
_MOVING |= {
    "ADD FEATURE",
    "DROP FEATURE",
    "UPGRADE PROTOCOL",
    "ADD CONSTRAINT",
    "DROP CONSTRAINT",
    "DOMAIN METADATA CLEANUP",
}
_MOVING |= {"CREATE TABLE", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "UPDATE SCHEMA", "UPDATE COLUMN METADATA"}
_MOVING |= {f"{verb} COLUMN{plural}" for verb in ("ADD", "CHANGE", "DROP", "RENAME", "REPLACE") for plural in ("", "S")}
_MOVING |= {"UPDATE FIELD METADATA", "UPDATE TABLE METADATA", "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL"}
"""Operations of Delta's, and of delta-rs's, that neither add rows nor remove any."""


@dataclass(frozen=True)
class Writer:
    """A writer of a destination, and how far it is.

    Attributes:
        name: Of one of sparkjet's, its query and output: ``QUERY/OUTPUT``.
        epoch: Its newest epoch that is there; None for others.
        until: Up to when all its rows are there, but for late ones; None as long as it has no watermark.
    """

    name: str
    epoch: int | None
    until: datetime | None


@dataclass(frozen=True)
class Completeness:
    """The answer of :func:`complete_until`.

    Attributes:
        writers: Who tells how far it is.
        others: Who has written too and tells nothing.
    """

    writers: tuple[Writer, ...]
    others: tuple[str, ...] = ()

    @property
    def until(self) -> datetime | None:
        """All rows whose event time is before it are there, but for late ones; None where somebody does not tell."""
        times = [each.until for each in self.writers]
        known = [each for each in times if each is not None]
        return min(known) if known and len(known) == len(times) and not self.others else None

    @property
    def why(self) -> str:
        """Why nothing is known, or who is least far; for people."""
        if self.others:
            return f"rows of other writers, which report no watermark: {', '.join(self.others)}"
        if not self.writers:
            return "no query has written there yet"
        silent = [each.name for each in self.writers if each.until is None]
        if silent:
            return f"no watermark yet, or none at all: {', '.join(silent)}"
        least = min(self.writers, key=lambda each: each.until or _EPOCH)
        return f"complete until {least.until}, by {least.name}, epoch {least.epoch}"

    def has(self, end: datetime) -> bool:
        """Whether all rows before a time are there: of the hour from 10 to 11, with 11 o'clock.

        Raises:
            AnalysisError: It is not a datetime, or has no zone.
        """
        given: object = end
        if not isinstance(given, datetime):
            raise AnalysisError(f"end = {given!r} is not a datetime; give one with a zone: datetime.now(timezone.utc)")
        if end.tzinfo is None:
            message = f"end = {end!r} has no time zone, so it is not a point in time: end.replace(tzinfo=timezone.utc)"
            raise AnalysisError(message)
        return self.until is not None and self.until >= end

    def without(self, *names: str) -> Completeness:
        """The same without writers and others whose rows do not count: by their names, or of a query all outputs."""
        writers = tuple(each for each in self.writers if not {each.name, each.name.split("/")[0]} & {*names})
        return Completeness(writers, tuple(each for each in self.others if each not in names))


def complete_until(
    place: Any, *, table: str = "", progress_topics: str | Sequence[str] = (), **client: Any
) -> Completeness:
    """Up to when a place has all rows that sparkjet's queries write there, by the watermarks beside their rows.

    Needs no Spark session and starts nothing, so that an orchestrator may ask often. Event times are those of the
    writer: of results with windows the windows' ends.

    Args:
        place: A directory that ``format("files")`` writes into, or of a Delta table (which needs ``deltalake``); a
            ``deltalake.DeltaTable``; a table of ``pyiceberg``; a ``Journal`` or ``Map`` of a grid; the ``dsn`` of
            PostgreSQL with ``table``; of other databases that ``format("jdbc")`` writes into a connection of Python's
            DB API, whose transaction is rolled back, or in a driver of Spark ``jdbc:…``, with ``table``; or
            ``kafka://host:9092/topic`` with ``progress_topics``.
        table: As the query names it. All outputs beside it count with JDBC, also those into other tables of the same
            schema.
        progress_topics: Of Kafka, the progress topics of the queries that write there, or the only one.
        client: Of Kafka, more properties of librdkafka's, with ``_`` for each dot; of ``jdbc:…`` Spark's options, such
            as ``user`` and ``password``.

    Raises:
        AnalysisError: There is nothing of the kind, or a package is missing.

    >>> import tempfile
    >>> complete_until(tempfile.mkdtemp()).why
    'no query has written there yet'
    """
    told = _asked(place, table, [progress_topics] if isinstance(progress_topics, str) else progress_topics, client)
    if told is not None:
        return Completeness(tuple(map(_writer, told)))
    if isinstance(place, str | os.PathLike):
        _check_directory(os.fspath(place))
        return _of_directory(local_path(os.fspath(place), "complete_until"))
    if hasattr(place, "history") and hasattr(place, "transaction_version"):
        return _of_delta(place)
    if hasattr(place, "snapshots") and hasattr(place, "properties"):
        return _of_iceberg(place)
    known = (
        "a directory, deltalake.DeltaTable, table of pyiceberg, Journal or Map of a grid, dsn or connection with "
        "table=…, or kafka://…"
    )
    raise AnalysisError(f"complete_until: {place!r} is not {known}")


def _asked(
    place: Any, table: str, progress_topics: Sequence[str], client: Mapping[str, Any]
) -> list[dict[str, Any]] | None:
    """The progress of the writers of a place that knows of no others; None of any other place."""
    is_text = isinstance(place, str)
    if is_text and place.lower().startswith("kafka://"):
        from sparkjet.connectors.kafka.completeness import told_of  # noqa: PLC0415 - confluent-kafka is optional

        return told_of(place, progress_topics, client)
    if table and is_text and not place.lower().startswith("jdbc:"):
        from sparkjet.connectors.postgres.progress import told_in  # noqa: PLC0415 - psycopg is optional

        return told_in(place, table)
    if table and (is_text or hasattr(place, "cursor")):
        return _by_jdbc(place, table, client)
    if hasattr(place, "told"):
        told = place.told()
        return [] if told is None else [told]
    return None


def _by_jdbc(place: Any, table: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    from sparkjet.connectors.jdbc.progress import told_by, told_in  # noqa: PLC0415 - as those above

    if not isinstance(place, str):
        return told_by(place, table)
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - connections of Python need none
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    try:
        # In a thread of the user's none is active.
        session = SparkSession.active()
    except PySparkRuntimeError as error:
        message = "complete_until: jdbc:… is asked through Spark, and there is no session. Give a connection instead."
        raise AnalysisError(message) from error
    return told_in(session, place, table, options)


def _check_directory(place: str) -> None:
    # Not the location itself: it may have a password.
    scheme = _SCHEME.match(place)
    if scheme is not None and scheme[0].lower() != "file:":
        message = (
            f"complete_until: {scheme[0]}… is not a directory of this machine. Of a database, give table=… as well; of "
            'a table in a store, the table: DeltaTable("s3://…"), or one of pyiceberg.'
        )
        raise AnalysisError(message)


def _of_directory(path: Path) -> Completeness:
    if not path.is_dir():
        message = f"complete_until: there is no directory {path}. Of a table in a store, give the table: DeltaTable(…)."
        raise AnalysisError(message)
    if (path / "_delta_log").is_dir():
        try:
            from deltalake import DeltaTable  # noqa: PLC0415 - optional
        except ImportError as error:
            message = f"complete_until: {path} is a Delta table, and reading it needs: pip install deltalake"
            raise AnalysisError(message) from error
        return _of_delta(DeltaTable(str(path)))
    from sparkjet.sinks.manifest import Manifest  # noqa: PLC0415 - needs PySpark, which other places do not

    manifests = Manifest.all_of(path)
    found = [(manifest, manifest.last()) for manifest in manifests]
    writers = [
        _writer({"query": manifest.query, "output": manifest.sink, "epoch": entry.epoch, **(entry.progress or {})})
        for manifest, entry in found
        if entry is not None
    ]
    foreign = sorted(_foreign(path))
    more = [f"{len(foreign) - 1} other files"] if foreign[1:] else []
    return Completeness(tuple(writers), (*foreign[:1], *more))


def _foreign(path: Path) -> Iterator[str]:
    """Files that readers of a directory get and that no epoch has, or is about to have."""
    # Not below what is hidden: drivers make directories there and remove them meanwhile.
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if "=" in name or not name.startswith(_HIDDEN)]
        here = Path(folder).relative_to(path)
        yield from (str(here / name) for name in files if not name.startswith(_HIDDEN) and not _OURS.match(name))


def _of_delta(table: Any) -> Completeness:
    newest: dict[str, dict[str, Any]] = {}
    told, others = told_by_delta(table.history())
    for each in told:
        newest.setdefault(f"{each['query']}/{each['output']}", each)
    return Completeness(tuple(map(_writer, newest.values())), tuple(others))


def told_by_delta(history: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The progress that the versions of a Delta table announce, the newest first, and who else has written rows."""
    told: list[dict[str, Any]] = []
    others: dict[str, None] = {}
    for info in history:
        ours = _ours(info.get("userMetadata"))
        if ours is not None:
            told.append(ours)
        elif info.get("operation") not in _MOVING:
            by = info.get("engineInfo") or info.get("clientVersion") or "an unknown engine"
            others[f"{info.get('operation')} by {by}"] = None
    return told, list(others)


def _ours(metadata: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return None
    told = found.get("sparkjet") if isinstance(found, dict) else None
    return told if isinstance(told, dict) and "query" in told else None


class Snapshot(NamedTuple):
    """One of an Iceberg table's: which it is, which it follows, when it was made, and what a query of ours tells."""

    id: int
    parent: int | None
    at: Any
    told: Mapping[str, Any] | None


def rolled_back(snapshots: Iterable[Snapshot], current: int | None) -> list[Mapping[str, Any]]:
    """The traces of epochs that an Iceberg table no longer has: it was rolled back to a snapshot before them.

    Nothing is said of those before the oldest one that leads to the current one: what is between them has expired.
    """
    known = {each.id: each for each in snapshots}
    kept = _leading_to(known, current)
    there = [_epoch_of(each.told) for each in kept if each.told]
    since = [each for each in known.values() if kept and each.at >= kept[-1].at]
    # Those of another branch were never there.
    gone = [each.told for each in since if each.told and _epoch_of(each.told) not in there]
    return [told for told in gone if "branch" not in told]


def _leading_to(known: Mapping[int, Snapshot], current: int | None) -> list[Snapshot]:
    """A snapshot and those before it, the newest first."""
    found: list[Snapshot] = []
    while current is not None and current in known:
        found.append(known[current])
        current = found[-1].parent
    return found


def _epoch_of(told: Mapping[str, Any]) -> tuple[Any, ...]:
    return told.get("query"), told.get("output"), told.get("epoch")


def _of_iceberg(table: Any) -> Completeness:
    connectors: dict[str, Mapping[str, Any]] = {}
    others: dict[str, None] = {}
    known = []
    for snapshot in table.snapshots():
        summary = _summary(snapshot)
        connector = connector_of(summary)
        told = json.loads(summary.get("sparkjet", "null"))
        known.append(Snapshot(snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.timestamp_ms, told))
        if connector is not None:
            connectors[connector] = summary
        elif "sparkjet" not in summary and summary.get("operation") != "replace":
            others[f"{summary.get('operation')} by {summary.get('engine-name', 'an unknown engine')}"] = None
    last = table.current_snapshot()
    current = None if last is None else last.snapshot_id
    writers = _by_properties(table.properties, _leading_to({each.id: each for each in known}, current))
    newest = {each.name: each.epoch or 0 for each in writers}
    for told in rolled_back(known, current):
        name = f"{told.get('query')}/{told.get('output')}"
        # The properties, which say how far a writer is, are not rolled back.
        if told.get("epoch", 0) <= newest.get(name, 0):
            others[f"{name}, whose epoch {told.get('epoch')} was rolled back"] = None
    # Its newest snapshot: without the property its tasks have not told one time.
    writers += [Writer(name, None, valid_through(summary)) for name, summary in connectors.items()]
    return Completeness(tuple(writers), tuple(others))


def _by_properties(properties: Mapping[str, str], there: Sequence[Snapshot]) -> list[Writer]:
    """The writers by an Iceberg table's properties; those of another branch by the snapshots that it has taken over."""
    writers = []
    for key, text in properties.items():
        if not key.startswith("sparkjet/"):
            continue
        query, output = key.split("/", 2)[1:]
        told: Mapping[str, Any] | None = json.loads(text)
        if told and "branch" in told:
            ours = (each.told for each in there if each.told)
            told = next((each for each in ours if (each.get("query"), each.get("output")) == (query, output)), None)
        if told is not None:
            writers.append(_writer({**told, "query": query, "output": output}))
    return writers


def _summary(snapshot: Any) -> Mapping[str, Any]:
    found = snapshot.summary
    if found is None:
        return {}
    operation = getattr(found.operation, "value", found.operation)
    return {**found.additional_properties, "operation": operation}


def _writer(told: Mapping[str, Any]) -> Writer:
    watermark = told.get("watermark")
    until = None if watermark in {None, MIN} else _time_of(watermark)
    return Writer(f"{told['query']}/{told['output']}", told["epoch"], until)


def _time_of(micros: int) -> datetime:
    """A point in time; a window of the year 9999 ends in the next one, which Python's calendar does not have."""
    since = (_FIRST - _EPOCH, _LAST - _EPOCH)
    return _EPOCH + min(max(timedelta(microseconds=micros), since[0]), since[1])
