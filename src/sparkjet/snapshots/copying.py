"""Copying a snapshot: a record of a home, with everything that it names, to another home."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.known_types import known
from sparkjet.snapshots.directory import DirectoryStore
from sparkjet.snapshots.outbox_entries import OutboxEntries
from sparkjet.snapshots.record import EpochKind
from sparkjet.snapshots.record_log import RecordLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkjet.snapshots.record import Record, SavedStage
    from sparkjet.storage.directory import Directory

T = TypeVar("T")
ADOPTED_FILE = "adopted.json"
"""The file in a home that names the Spark query it has adopted, to whose directories it may write."""
_ATTEMPTS = 10


def copy_newest(source: Directory, target: Directory, option: str = "to") -> tuple[int, Record, int]:
    """Bring a home up to another home's newest record; returns its slot, the record and the number of new files.

    The query may keep running: files that a record names are removed once a later record does without them, and then
    that one is copied. Rows that were delivered from the outbox are not copied, and the copied record does not name
    them. An interrupted copy leaves the target as it was, apart from files that the next copy finds or removes.
    """
    there, here = RecordLog(DirectoryStore(source.below("snapshots"))), DirectoryStore(target.below("snapshots"))
    here.open(option)
    log = RecordLog(here)
    for _ in range(_ATTEMPTS):
        held, newest = log.newest(), there.newest()
        if newest is None:
            raise RecoveryError(f'copy: "{source}" contains no record of a query. Give its checkpointLocation.')
        slot, record = newest
        if held is not None and (held[1].query != record.query or held[0] > slot):
            message = (
                f'copy: "{target}" has record {held[0]} of query {held[1].query}, which is not an earlier one of '
                f"record {slot} of query {record.query}. Copy to a home without records."
            )
            raise RecoveryError(message)
        if held is not None and held[0] == slot and _has_all(target, held[1]):
            return slot, held[1], 0
        decided, record = record, _without_delivered(source, record)
        named = files_of(record)
        try:
            copied = sum(_copy(source, target, place, names) for place, names in named.items())
        except FileNotFoundError as error:
            following = there.newest()
            if (following is None or following[0] == slot) and _without_delivered(source, decided) == record:
                message = (
                    f"copy: record {slot} names {error.filename}, which is missing: {error.strerror}. Restore it, or "
                    "copy from a home that has it."
                )
                raise RecoveryError(message) from error
            continue
        if held is None:
            _copy_adoption(source, target)
        # Last: a record must only exist where everything that it names does.
        here.put(slot, record.encode())
        here.trim(log.pins.first(slot))
        _remove_others(target, [named, *map(files_of, log.pins.records())])
        # Of two copies at once, one may have removed what only the other one's record names: the later look sees it.
        newest = log.newest()
        if newest is not None and _has_all(target, newest[1]):
            return slot, record, copied
    message = (
        f'copy: query {record.query} replaces its snapshots faster than they can be copied to "{target}". Copy again '
        "when it has less to do, or has stopped."
    )
    raise RecoveryError(message)


def copied_state(
    source: Directory, target: Directory, stages: Mapping[str, SavedStage], prefix: str
) -> dict[str, SavedStage]:
    """Copy the deltas of some stages to another home, under new names; returns the stages with these.

    Raises:
        RecoveryError: A file is missing.
    """
    found = {}
    for name, stage in stages.items():
        deltas = []
        for number, delta in enumerate(stage.deltas):
            copied = f"{prefix}-{name}-{number}"
            there, here = (
                home.below("snapshots").below("state").below(each)
                for home, each in ((source, delta.name), (target, copied))
            )
            here.create()
            for file in delta.files:
                try:
                    here.write(file, there.read(file))
                except FileNotFoundError as error:
                    message = (
                        f"copy: {there.uri(file)} is missing. Restore it, and let nothing but the query remove files "
                        f"of {source}."
                    )
                    raise RecoveryError(message) from error
            deltas.append(msgspec.structs.replace(delta, name=copied))
        found[name] = msgspec.structs.replace(stage, deltas=deltas)
    return found


class Origin(msgspec.Struct, frozen=True):
    """The origin of a fork; in the fork's home, before its first record.

    Attributes:
        parent: Id of the query that was forked.
        pin: Name of the pinned record.
        slot: Slot of that record.
        epoch: Epoch of that record.
        query: Id of the fork.
        was_held: Whether the query waited for another one then, and held windows open; the fork does not.
    """

    parent: str
    pin: str
    slot: int
    epoch: int
    query: str
    was_held: bool = False


_ORIGIN = msgspec.json.Decoder(known(Origin))
_ORIGIN_FILE = "fork.json"


def fork_pinned(
    source: Directory,
    target: Directory,
    name: str,
    changed: Callable[[Record], Record] = lambda record: record,
) -> Origin:
    """Begin another query from a pinned record in a home without records, or return the fork that was begun there.

    The fork has its own id, and nothing to commit or acknowledge: that is up to the query that was forked. An
    interrupted fork leaves files that the next one into the same home finds. Two forks at once into the same home get
    the same fork. A fork that exists no longer needs the pin. The fork begins with the record as returned by
    ``changed``.

    Raises:
        AnalysisError: There is no such pin, or the target is taken.
        RecoveryError: Files that the record names are missing, or the query reads queues.
    """
    there, here = RecordLog(DirectoryStore(source.below("snapshots"))), DirectoryStore(target.below("snapshots"))
    held, origin = RecordLog(here).newest(), origin_of(target)
    if held is not None and (origin is None or origin.query != held[1].query):
        raise _taken(target, f"has records of query {held[1].query}")
    if held is not None and origin is not None and _has_lost_its_pin(origin, there, name):
        return origin
    pin = there.pins.get(name)
    record = there.pins.record(pin.slot)
    if record.queues:
        message = (
            f'fork: the query of "{source}" reads queues ({", ".join(sorted(record.queues))}), whose messages are gone '
            "once they are acknowledged: nothing could be read again. Fork a query that reads Kafka or files."
        )
        raise RecoveryError(message)
    if held is None:
        # A running fork has temporary files of its own.
        here.open("to")
    asked = Origin(record.query, name, pin.slot, pin.epoch, str(uuid.uuid4()), record.is_held)
    if origin is None:
        target.below("snapshots").put(_ORIGIN_FILE, msgspec.json.encode(asked))
        # Not the origin that was put: of two forks at once, one is first.
        origin = origin_of(target) or asked
    if msgspec.structs.replace(asked, query=origin.query) != origin:
        raise _taken(target, f'was forked from record {origin.slot}, "{origin.pin}", of query {origin.parent}')
    if held is None:
        _begin(source, target, origin, changed(record))
        # The records are another query's, if a snapshot was copied there in the meantime.
        held = RecordLog(here).newest()
        if held is None or held[1].query != origin.query:
            raise _taken(target, "now has records of another query")
    return origin


def _begin(source: Directory, target: Directory, origin: Origin, record: Record) -> None:
    # The takeover stays: names of deltas begin with it, and are never used twice.
    forked = msgspec.structs.replace(
        record, kind=EpochKind.SETTLED, query=origin.query, run=str(uuid.uuid4()), transactions=[], published=[]
    )
    if record.is_held:
        # It publishes nowhere, and no switch refers to it: it would be held forever.
        forked = msgspec.structs.replace(forked, after=None)
    try:
        for place, names in files_of(forked).items():
            _copy(source, target, place, names)
    except FileNotFoundError as error:
        message = (
            f'fork: record {origin.slot}, pinned as "{origin.pin}", names {error.filename}, which is missing. Restore '
            "it, or pin the query again and fork that."
        )
        raise RecoveryError(message) from error
    DirectoryStore(target.below("snapshots")).put(origin.slot, forked.encode())


def _has_lost_its_pin(origin: Origin, parent: RecordLog, name: str) -> bool:
    newest = parent.newest()
    is_of_it = origin.pin == name and newest is not None and newest[1].query == origin.parent
    return is_of_it and all(pin.name != name for pin in parent.pins.all())


def origin_of(home: Directory) -> Origin | None:
    """The origin of the fork in a home; None if it is not a fork."""
    return kept_note(home, _ORIGIN_FILE, _ORIGIN, "fork")


def kept_note(home: Directory, name: str, decoder: msgspec.json.Decoder[T], what: str) -> T | None:
    """A file that a home keeps beside its records, such as the origin of a fork; None if there is none.

    Raises:
        RecoveryError: It is damaged: without it nobody knows which query, or which directories, go on.
    """
    snapshots = home.below("snapshots")
    try:
        return decoder.decode(snapshots.read(name))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.MsgspecError as error:
        message = f"{what}: {snapshots.below(name)} cannot be read: {error}. Restore it from a copy of the home."
        raise RecoveryError(message) from error


def _taken(target: Directory, why: str) -> AnalysisError:
    return AnalysisError(f'to: "{target}" {why}. Give the fork its own place.')


def _without_delivered(source: Directory, record: Record) -> Record:
    """A record without transactions that were delivered from the outbox: their rows are gone, and no longer needed."""

    def is_delivered(handle: dict[str, Any]) -> bool:
        entries = OutboxEntries(source.below(f"snapshots/outbox/{handle['sink']}"))
        return entries.delivered(handle["box"])

    left = [each for each in record.transactions if "box" not in each.handle or not is_delivered(each.handle)]
    return msgspec.structs.replace(record, transactions=left)


def files_of(record: Record) -> dict[str, list[str]]:
    """The files that a record names, by the directory that contains them."""
    deltas = {delta.name: delta.files for stage in record.stages.values() for delta in stage.deltas}
    boxes = [each.handle for each in record.transactions if "box" in each.handle]
    return {
        "state": sorted(f"{name}/{file}" for name, files in deltas.items() for file in files),
        "blobs": sorted(record.names() - deltas.keys()),
        "outbox": sorted(f"{box['sink']}/{box['box']}/{name}" for box in boxes for name, *_ in box["files"]),
    }


def _copy(source: Directory, target: Directory, place: str, names: list[str]) -> int:
    """Copy files that are missing or incomplete; returns their number."""
    there, here = source.below(f"snapshots/{place}"), target.below(f"snapshots/{place}")
    sizes, held, count = there.files(), here.files(), 0
    for name in names:
        if name not in sizes:
            raise FileNotFoundError(errno.ENOENT, "no such file", there.uri(name))
        if held.get(name) == sizes[name]:
            continue
        # A killed copy has left a part of it.
        here.remove_files([name] if name in held else [])
        parent, _, last = name.rpartition("/")
        at = here.below(parent) if parent else here
        at.create()
        at.write(last, there.read(name))
        count += 1
    return count


def _copy_adoption(source: Directory, target: Directory) -> None:
    try:
        kept = source.below("snapshots").read(ADOPTED_FILE)
    except FileNotFoundError:
        return
    target.below("snapshots").put(ADOPTED_FILE, kept)


def _has_all(target: Directory, record: Record) -> bool:
    """Whether all files are there that a record names."""
    return all(
        target.below(f"snapshots/{place}").files().keys() >= set(names) for place, names in files_of(record).items()
    )


def _remove_others(target: Directory, named: Sequence[dict[str, list[str]]]) -> None:
    for place in named[0]:
        here, names = target.below(f"snapshots/{place}"), {name for each in named for name in each[place]}
        here.remove_files(sorted(here.files().keys() - names))
