"""Exporting: a checkpoint from which Spark's own query goes on, made from the newest record of a home, which ends."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sparkjet.connectors.formats import SOURCES
from sparkjet.engine.adopting import lists_of
from sparkjet.engine.moved_sources import recorded_sources
from sparkjet.engine.spark_checkpoint import SparkCheckpoint
from sparkjet.errors import AnalysisError, FencedError, RecoveryError
from sparkjet.known_types import known
from sparkjet.sinks.spark_list import SparkList
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.copying import kept_note
from sparkjet.snapshots.record import EpochKind, Record, SparkPosition
from sparkjet.snapshots.record_log import RecordLog, newest_record
from sparkjet.storage.schemes import directory_at, is_within, session_for

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

COMMAND = "export-checkpoint"
_GUARD = "This checkpoint is not complete: sparkjet export-checkpoint is writing it, or was ended. Run it again."
"""Spark takes it for a version of its log, and refuses to start with this line."""
_HOME_FILE = "exported.json"
_FIRST_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
_READABLE = "sparkjet-kafka"
"""Our only source that keeps nothing but offsets: a Spark query may read it too."""


class Exported(NamedTuple):
    """An export: the epoch of the record, and the batch after which Spark's query goes on."""

    epoch: int
    batch: int


class _Exported(msgspec.Struct, frozen=True):
    """The note in a home that it was exported."""

    to: str


_EXPORTED = msgspec.json.Decoder(known(_Exported))


def export_checkpoint(home: Directory, to: Directory, after: int | None = None) -> Exported:
    """Write the checkpoint, and end the home: queries can no longer start there, and one that runs is fenced.

    Ended in the middle, it is called again: until the checkpoint is whole, Spark refuses to start with it.

    Args:
        home: The home of the query.
        to: Where the checkpoint is written.
        after: The number that its last batch gets, for a sink of Spark's that knows numbers; by default the newest in
            the list of the directory that was taken over, or else the batch of the record.

    Raises:
        AnalysisError: The home cannot be read, or the target is taken.
        RecoveryError: The query has what no query of Spark's continues, or is not settled.
    """
    slot, record = newest_record(home, COMMAND)
    position = _committed(_position(home, record), _listed(home) if after is None else after)
    before = _exported(home)
    if before is not None and before.to != to.resolved():
        raise _refused(home, f'was exported to "{before.to}" already. Give that directory')
    if is_within(to.resolved(), home.resolved()) or is_within(home.resolved(), to.resolved()):
        message = f'{COMMAND}: "{to}" and the home "{home}" are one inside the other. Give a separate directory.'
        raise AnalysisError(message)
    offsets = to.below("offsets")
    # Directories alone are of an export that was ended before the guard.
    if to.files() and not any(_is_guard(offsets, name) for name in offsets.names()):
        told = f'"{home}" was exported there, and it is complete' if before is not None else "give a directory without"
        raise AnalysisError(f'{COMMAND}: "{to}" has files: {told}.')
    # First: Spark would take an empty directory for a new query's. And after all offsets, as Spark reads the last one.
    guard = str(position.batch + 1)
    offsets.create()
    offsets.put(guard, _GUARD.encode())
    # Of an export that was ended, perhaps with another number.
    to.remove_files(to.files().keys() - {f"offsets/{guard}"})
    _end(home, to, slot, record)
    with tempfile.TemporaryDirectory(prefix="sparkjet-export-") as place:
        # As every start makes the checkpoint of its run.
        made = SparkCheckpoint(Path(place, "made"))
        made.rebuild(str(uuid.uuid4()), position, DirectoryStore(home.below("snapshots")))
        for path in made.directory.rglob("*"):
            if path.is_file():
                *folders, name = path.relative_to(made.directory).parts
                folder = to.below("/".join(folders)) if folders else to
                folder.create()
                folder.write(name, path.read_bytes())
    offsets.remove_files([guard])
    return Exported(record.epoch, position.batch)


def check_exported(home: Directory) -> None:
    """Refuse to start in a home from which a query of Spark's goes on.

    Raises:
        RecoveryError: It was exported.
    """
    exported = _exported(home)
    if exported is not None:
        place = home.below("snapshots").below(_HOME_FILE)
        message = (
            f'start: "{home}" was exported to "{exported.to}", from where a query of Spark\'s goes on: both would read '
            f"the same rows. Run that one; or adopt its checkpoint with another checkpointLocation. If it has never "
            f"run, and never will, remove {place} and go on here."
        )
        raise RecoveryError(message)


def _listed(home: Directory) -> int | None:
    """The newest number in the list of the directory that was taken over from Spark's file sink."""
    lists = lists_of(home)
    at = (directory_at(each, COMMAND, lambda: session_for(COMMAND, None)) for each in lists)
    return next((SparkList(each).newest() for each in at), None)


def _position(home: Directory, record: Record) -> SparkPosition:
    """The record's position, if a query of Spark's can go on from there."""
    if record.stages or record.after is not None:
        stages = ", ".join(sorted(record.stages or record.outputs))
        raise _refused(
            home,
            f"has state of operators ({stages}), which Spark cannot read. Start Spark's query with a checkpoint and "
            "outputs of its own, from the beginning of what its sources still have",
        )
    if record.history is not None:
        raise _refused(home, "has begun with a history, after which its stream is cut, which no offset says")
    for source in recorded_sources(record) or ():
        name = source.reads.partition(" ")[0]
        if name in SOURCES and name != _READABLE:
            raise _refused(home, f"reads {name}, whose position is not in Spark's offsets alone")
    if record.spark is None:
        raise _refused(home, "has read nothing yet: start Spark's query without a checkpoint")
    if record.transactions:
        raise _refused(
            home,
            f"has decided epoch {record.epoch}, and does not say that it is published. Start the query once more, "
            "stop it, and export then",
        )
    return record.spark


def _committed(position: SparkPosition, after: int | None) -> SparkPosition:
    """The position with the commit of its last batch, under another number: here Spark must not run it again.

    >>> _committed(SparkPosition(7, {"metadata": "{}", "offsets/6": "5", "offsets/7": "6", "commits/6": "c"}, {}), 0)
    SparkPosition(batch=0, files={'metadata': '{}', 'offsets/0': '6', 'commits/0': 'c'}, sources={})
    """
    # Numbers of batches are in these names only; the logs of sources count for themselves.
    last = position.batch if after is None else after
    files = {}
    for name, text in position.files.items():
        folder, _, number = name.partition("/")
        moved = int(number) - position.batch + last if number else 0
        if moved >= 0:
            files[f"{folder}/{moved}" if number else name] = text
    commit = position.files.get(f"commits/{position.batch - 1}", _FIRST_COMMIT)
    return SparkPosition(last, {**files, f"commits/{last}": commit}, position.sources)


def _end(home: Directory, to: Directory, slot: int, record: Record) -> None:
    """Let no query start in the home, and fence one that runs."""
    snapshots = home.below("snapshots")
    # First: a driver that starts between the two would not see it.
    is_new = snapshots.put(_HOME_FILE, msgspec.json.encode(_Exported(to.resolved())))
    taken = msgspec.structs.replace(
        record, kind=EpochKind.TAKEOVER, takeover=record.takeover + 1, run=str(uuid.uuid4())
    )
    try:
        RecordLog(DirectoryStore(snapshots)).append(slot + 1, taken)
    except FencedError as error:
        if is_new:
            snapshots.remove_files([_HOME_FILE])
        raise _refused(home, "got a new record meanwhile: its query is running. Stop it, and then export") from error


def _exported(home: Directory) -> _Exported | None:
    return kept_note(home, _HOME_FILE, _EXPORTED, COMMAND)


def _is_guard(offsets: Directory, name: str) -> bool:
    try:
        return offsets.read(name) == _GUARD.encode()
    except FileNotFoundError:
        return False


def _refused(home: Directory, why: str) -> RecoveryError:
    return RecoveryError(f'{COMMAND}: "{home}" {why}.')
