"""Progress that the writers of an Iceberg table announced up to a snapshot, for those who read its stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from sparkjet.connectors.iceberg.kafka_connect import EPOCH, connector_of, valid_through
from sparkjet.known_types import known
from sparkjet.sinks.naming import BEGINNING
from sparkjet.sources.carrying import warn_of_others
from sparkjet.time import MIN, Heard

TOLD = "sparkjet"
"""Our entry in a snapshot's summary."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot: its id, that of the one before, its operation and its summary."""

    id: int
    parent: int | None
    operation: str | None
    summary: Mapping[str, str]


@dataclass(frozen=True)
class Snapshots:
    """A table as it is now.

    Attributes:
        table: Its UUID.
        newest: Id of its newest snapshot; None without any.
        properties: Its properties.
        look_up: Returns a snapshot by its id, None if it has expired.
    """

    table: str
    newest: int | None
    properties: Mapping[str, str]
    look_up: Callable[[int], Snapshot | None] = field(repr=False)

    def ancestors(self, newest: int | None) -> Iterator[Snapshot]:
        """A snapshot and those before it, the newest first, as far as they have not expired."""
        found = None if newest is None else self.look_up(newest)
        while found is not None:
            yield found
            found = None if found.parent is None else self.look_up(found.parent)


class _End(msgspec.Struct, frozen=True):
    """The end of a batch of Iceberg's connector: so many files of a snapshot, of all or of those that it has added."""

    snapshot_id: int
    position: int
    scan_all_files: bool = False


class IcebergWriters:
    """The writers of a table, heard by a stream of its connector.

    Args:
        look: Returns the table as it is now.
    """

    def __init__(self, look: Callable[[], Snapshots]) -> None:
        self._look = look

    def heard(self, offset: Any, before: Heard | None) -> Heard | None:
        """The progress announced up to the end of a batch; None as long as no snapshot has been read to its end."""
        end, found = msgspec.convert(offset, known(_End)), self._look()
        reached = self._reached(found, end)
        if reached is None:
            return before
        mine = before if before is not None and before.table == found.table else None
        told, others = _told_since(found, reached, None if mine is None else mine.version)
        if mine is None:
            # Whatever was written up to the first end cannot be late, so others up to there do not count.
            return Heard(table=found.table, version=reached, writers=_merged(self._expired(found, reached), told))
        new = [each for each in others if each not in mine.others]
        warn_of_others(f"Iceberg's table {found.table}", new)
        writers = _merged(mine.writers, told)
        return Heard(table=found.table, version=reached, writers=writers, others=[*mine.others, *new])

    def _reached(self, found: Snapshots, end: _End) -> int | None:
        """The last snapshot of which all rows have been read."""
        snapshot = found.look_up(end.snapshot_id)
        if snapshot is None:
            return None
        files = "total-data-files" if end.scan_all_files else "added-data-files"
        if end.position >= int(snapshot.summary.get(files, "0")):
            return snapshot.id
        # In the first snapshot, the rows of all that were before it are mixed up.
        return None if end.scan_all_files else snapshot.parent

    def _expired(self, found: Snapshots, reached: int) -> dict[str, int | None]:
        """The writers by the table's properties, for those whose snapshots have expired."""
        since: set[str] = set()
        for snapshot in found.ancestors(found.newest):
            if snapshot.id == reached:
                break
            since |= told_by(snapshot)[0].keys()
        writers: dict[str, int | None] = {}
        for key, text in found.properties.items():
            if key.startswith(BEGINNING):
                name = key.removeprefix(BEGINNING)
                told = json.loads(text)
                if name in since:
                    # It has told a later one since: its next snapshot tells its own.
                    writers[name] = MIN
                elif "branch" not in told:
                    # Of a branch's rows, what has become the main one's is told by its snapshots.
                    writers[name] = told.get("watermark")
        return writers


def _told_since(found: Snapshots, reached: int, version: int | None) -> tuple[dict[str, int | None], list[str]]:
    """The progress that snapshots after a version and up to another one announce, and who else has written in them."""
    told: dict[str, int | None] = {}
    others: dict[str, None] = {}
    for snapshot in found.ancestors(reached):
        if snapshot.id == version:
            break
        here, other = told_by(snapshot)
        told = _merged(here, told)
        others |= {} if other is None else {other: None}
    return told, [*others]


def _merged(older: Mapping[str, int | None], newer: Mapping[str, int | None]) -> dict[str, int | None]:
    """The newest that each writer has told."""
    # Connect tells none in a commit for which not all of its tasks have answered: what it has told before still holds.
    return {**older, **{name: mark for name, mark in newer.items() if mark != MIN or name not in older}}


def told_by(snapshot: Snapshot) -> tuple[dict[str, int | None], str | None]:
    """The watermark that a snapshot tells, by its writer, in microseconds; or else who else has added rows in it.

    >>> told_by(Snapshot(1, None, "append", {"kafka.connect.valid-through-ts": "1970-01-01T00:00:01Z"}))
    ({'Kafka Connect': 1000000}, None)
    >>> told_by(Snapshot(1, None, "append", {"engine-name": "spark"})), told_by(Snapshot(2, 1, "replace", {}))
    (({}, 'append by spark'), ({}, None))
    """
    summary = snapshot.summary
    if TOLD in summary:
        told = json.loads(summary[TOLD])
        return {f"{told['query']}/{told['output']}": told.get("watermark")}, None
    connector = connector_of(summary)
    if connector is not None:
        until = valid_through(summary)
        return {connector: MIN if until is None else (until - EPOCH) // timedelta(microseconds=1)}, None
    if snapshot.operation != "append":
        # A stream gets no rows of what changes or only moves rows.
        return {}, None
    return {}, f"append by {summary.get('engine-name', 'an unknown engine')}"


def java_snapshots(table: Any) -> Snapshots:
    """Iceberg's table in the JVM, refreshed."""
    table.refresh()

    def look_up(number: int) -> Snapshot | None:
        found = table.snapshot(number)
        if found is None:
            return None
        parent, operation = found.parentId(), found.operation()
        summary = {str(key): str(value) for key, value in (found.summary() or {}).items()}
        return Snapshot(
            int(found.snapshotId()), None if parent is None else int(parent), operation and str(operation), summary
        )

    newest = table.currentSnapshot()
    properties = {str(key): str(value) for key, value in table.properties().items()}
    return Snapshots(str(table.uuid()), None if newest is None else int(newest.snapshotId()), properties, look_up)
