"""Adopting: a query begins where a Spark query has stopped, from its checkpoint, and fences it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import msgspec

from sparkjet.engine.adopted_sources import is_below, unlike
from sparkjet.engine.replayed_windows import NotReplayedError, Replay, is_of_windows, replay_of, states_of
from sparkjet.engine.spark_checkpoint import VOID, SparkCheckpoint, check_readable, ends_of
from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.known_types import known
from sparkjet.options import ADOPT, ADOPT_REPLAY
from sparkjet.plan.spark_sources import options_given, read_sources
from sparkjet.query_log import logger
from sparkjet.sinks.protocol import Adopting
from sparkjet.sinks.spark_list import LIST
from sparkjet.snapshots.copying import ADOPTED_FILE, kept_note
from sparkjet.snapshots.record import Border, SparkPosition
from sparkjet.storage.directory import Directory

if TYPE_CHECKING:
    from sparkjet.plan.plan import Plan
    from sparkjet.snapshots import SnapshotStore

NOTE = "This checkpoint was adopted by sparkjet."
"""How a note begins: Spark quotes the line when it refuses to start, as it takes it for a version of its log."""
_COPIED = ("metadata", "offsets/", "commits/", "sources/")


class Note(msgspec.Struct, frozen=True):
    """The second line of a note.

    Attributes:
        home: Home of the query that goes on.
    """

    home: str


class _Adopted(msgspec.Struct, frozen=True):
    """The note of an adoption in a home: the checkpoint, and the directories with lists of Spark's file sink."""

    checkpoint: str
    lists: tuple[str, ...] = ()


_NOTE = msgspec.json.Decoder(known(Note))
_ADOPTED = msgspec.json.Decoder(known(_Adopted))


class _Found(NamedTuple):
    """The state of a checkpoint: the last batch that is done, the last that is planned, and the note, if any."""

    done: int
    planned: int
    note: Note | None
    place: str
    """Where the note is, or will be: the file that Spark's query would write next."""


class Begun(NamedTuple):
    """Where a query begins: its position, and the border to the windows that were Spark's, if it has any."""

    position: SparkPosition
    after: Border | None


@dataclass(frozen=True)
class Adoption:
    """The checkpoint that the option ``adopt`` names.

    Args:
        place: The checkpoint, as given.
        checkpoint: The same.
        home: The home of the query that goes on.
        replays: Whether open windows are rebuilt.
    """

    place: str
    checkpoint: Directory
    home: Directory
    replays: bool = field(default=False, kw_only=True)

    def check_begun(self, epoch: int) -> None:
        """Refuse a home that has records, unless it has adopted this checkpoint: then there is nothing left to do.

        Raises:
            AnalysisError: It has begun without it, or with another one.
        """
        before = _adopted(self.home)
        if before is None:
            message = (
                f'{ADOPT.name}: "{self.home}" has records, up to epoch {epoch}, and has not begun with a checkpoint of '
                "Spark's. Leave the option out to go on from the records, or give the query a checkpointLocation "
                "without any."
            )
            raise AnalysisError(message)
        if before.checkpoint != self.checkpoint.resolved():
            raise self._refused(
                f'is another checkpoint than "{before.checkpoint}", with which this query has begun, '
                f"and which has come to epoch {epoch} since. Give that one, or leave the option out"
            )

    def check(self, plan: Plan) -> None:
        """Refuse a checkpoint from which the query cannot go on; nothing is changed.

        Raises:
            AnalysisError: It is missing, damaged, in use, adopted already, has state, or is of other sources.
        """
        with self._local() as local:
            found = self._found(local)
            self._check_running(local, plan)
            # Before what is told of state, for which offsets are read.
            self._check_sources(local, plan, found.done)
            states = states_of(self.checkpoint)
            if states and not (self.replays and is_of_windows(states)):
                self._refuse_state(local, plan, found, states)
            self._check_sinks(plan, found)
            replay = self._replay(local, plan, found) if states else None
        if replay is not None:
            logger.info("adopt: windows are rebuilt from %s, in the first epoch", replay.count)
        elif plan.stages:
            logger.warning(
                "adopt: windows and other state have the rows after batch %d of Spark's query, and none from before",
                found.done,
            )

    def take(self, plan: Plan, store: SnapshotStore, prefix: str) -> Begun:
        """Fence Spark's query, and return the position after its last batch that is done.

        A batch that is planned is done if it is in the list of a directory that is taken over.

        Raises:
            AnalysisError: Spark's query runs, or another home has adopted the checkpoint meanwhile.
        """
        with self._local() as local:
            found = self._found(local)
            # First: of what is read here, a query that still runs makes more until it is fenced, or keeps the note out.
            replay = self._replay(local, plan, found) if states_of(self.checkpoint) else None
            sinks, done = _listed(plan), found.done
            if found.note is None:
                self._fence(found, sinks)
            own = self.home.below("snapshots")
            kept = _Adopted(self.checkpoint.resolved(), tuple(str(sink.directory) for sink in sinks))
            if _adopted(self.home) != kept:
                # Of a start that has got no record, and had another checkpoint.
                own.remove_files([ADOPTED_FILE])
                own.put(ADOPTED_FILE, msgspec.json.encode(kept))
            if found.planned > done:
                # Spark's sink, if it still runs, adds the batch to its list before it finds the fence.
                is_open = [sink.close_batch(found.planned, plan.source.sparkSession) for sink in sinks]
                done = found.planned if is_open == [False] else done
            if found.planned > done:
                logger.warning(
                    "adopt: Spark's query has planned batch %d and not committed it: its rows are read here, also if "
                    "its sink has them",
                    found.planned,
                )
            position = local.capture(done, None, store, prefix)
            return Begun(position, None) if replay is None else Begun(replay.position(position), replay.border)

    def _fence(self, found: _Found, sinks: Sequence[Adopting]) -> None:
        """Put the note where Spark's query would write next."""
        note = Note(self.home.resolved())
        # Spark's sink would skip the batch.
        closed = "".join(f"{sink.directory}/{LIST}/{found.planned}, " for sink in sinks if found.planned > found.done)
        text = (
            f'{NOTE} Its query goes on after batch {found.done} with the checkpointLocation "{note.home}". To go '
            f"back instead, remove that directory, if it has no records, {closed}and then this file.\n"
        )
        log, _, number = found.place.partition("/")
        try:
            is_fenced = self.checkpoint.below(log).put(number, text.encode() + msgspec.json.encode(note))
        except OSError as error:
            why = f"cannot be written ({error.strerror or error})"
            raise self._refused(f"{why}: Spark's query could start again beside this one. Allow it") from error
        if not is_fenced:
            with self._local() as local:
                self._found(local)
            raise self._refused(
                f"got {found.place} while this query started: Spark's query is running. Stop it, and start again"
            )

    @contextmanager
    def _local(self) -> Iterator[SparkCheckpoint]:
        """The checkpoint on this machine, or a copy of what is read of it."""
        if self.checkpoint.path is not None:
            yield SparkCheckpoint(self.checkpoint.path)
            return
        with tempfile.TemporaryDirectory(prefix="sparkjet-adopt-") as copy:
            for name in self.checkpoint.files():
                if name.startswith(_COPIED):
                    place = Path(copy, name)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(self.checkpoint.read(name))
            yield SparkCheckpoint(Path(copy))

    def _found(self, local: SparkCheckpoint) -> _Found:
        if local.query_id() is None:
            raise self._refused(
                "is not the checkpoint of a Spark query: it has no metadata, or only a part of it. Give the "
                "checkpointLocation of that query"
            )
        logs = {log: local.last(log) for log in ("offsets", "commits")}
        noted = None
        for log, last in logs.items():
            note = None if last is None else self._note(local.directory / log / str(last))
            if note is not None:
                noted = f"{log}/{last}", note
                logs[log] = local.last(log, below=last)
        planned, done = logs["offsets"], logs["commits"]
        if done is None or planned is None:
            raise self._refused(
                "has no batch that is done: there is nothing to go on from. Leave the option out: the query begins "
                "where the options of its sources say"
            )
        if planned not in {done, done + 1}:
            raise self._refused(
                f"has planned batch {planned}, and {done} is the last that is committed: files are missing, or its "
                "query runs with asyncProgressTrackingEnabled. Restore it, or let that query run once without"
            )
        place = f"commits/{planned}" if planned > done else f"offsets/{planned + 1}"
        if noted is None:
            return _Found(done, planned, None, place)
        if noted[1].home != self.home.resolved():
            raise self._refused(
                f'was adopted by the query of "{noted[1].home}" already, which goes on from it. If that query has no '
                f"records there, remove {noted[0]} from the checkpoint and start again"
            )
        return _Found(done, planned, noted[1], noted[0])

    def _note(self, path: Path) -> Note | None:
        text = self._text(path)
        if not text.startswith(NOTE):
            if text and not text.startswith("v"):
                # An export that was ended in the middle, for one: what is there is not all.
                raise self._damaged(_below(path), f"it says: {text.splitlines()[0]}")
            return None
        try:
            return _NOTE.decode(text.splitlines()[-1])
        except msgspec.MsgspecError as error:
            raise self._damaged(_below(path), str(error)) from error

    def _replay(self, local: SparkCheckpoint, plan: Plan, found: _Found) -> Replay | None:
        if not self.replays:
            return None
        try:
            return replay_of(self.checkpoint, local, plan, found.done, found.planned)
        except NotReplayedError as error:
            raise self._refused(f"has windows that cannot be rebuilt: {error}") from error

    def _refuse_state(
        self, local: SparkCheckpoint, plan: Plan, found: _Found, states: Sequence[tuple[str, str]]
    ) -> NoReturn:
        offer = ""
        if is_of_windows(states):
            try:
                count = replay_of(self.checkpoint, local, plan, found.done, found.planned).count
                offer = f'. Or set option("{ADOPT_REPLAY.name}", "true"): open windows are rebuilt from {count}'
            except NotReplayedError as error:
                offer = f". Its windows cannot be rebuilt ({ADOPT_REPLAY.name}): {error}"
        kinds = [f"{name} ({number})" if name else f"operator {number}" for number, name in states]
        raise self._refused(
            f"has state of operators, which only Spark can read: {', '.join(kinds)}. Start the query without the "
            "option, with its own checkpointLocation and outputs, from the beginning of what its sources still "
            "have (as with startingOffsets=earliest): its state is rebuilt from those rows, and so are the "
            f"results{offer}"
        )

    def _check_running(self, local: SparkCheckpoint, plan: Plan) -> None:
        if any(query.id == local.query_id() for query in plan.source.sparkSession.streams.active):
            raise self._refused("belongs to a query that runs in this application. Stop that one first: query.stop()")

    def _check_sources(self, local: SparkCheckpoint, plan: Plan, done: int) -> None:
        for name in (f"commits/{done}", f"offsets/{done}", *([f"offsets/{done - 1}"] if done else ())):
            self._check_version(local.directory / name)
        position = SparkPosition(done, {f"offsets/{done}": self._text(local.directory / f"offsets/{done}")}, {})
        check_readable(position)
        try:
            logs = local.source_files()
            ends = {name: _parsed(offset) for name, offset in ends_of(position).items()}
        except (RecoveryError, ValueError) as error:
            raise self._damaged(f"offsets/{done}", str(error).partition("] ")[2] or str(error)) from error
        sources = read_sources(plan.source)
        topics = [topic for _, topic in options_given(plan.source, "subscribe")]
        names = plan.source_names or tuple(str(number) for number in range(len(sources)))
        if set(ends) != set(names):
            raise self._refused(
                f"has offsets of {len(ends)} sources ({', '.join(ends)}), and the query reads {len(sources)} "
                f"({', '.join(names)}). Give the query the sources of Spark's query, in the same order and under the "
                "same names; it may have others once it has begun"
            )
        for number, (name, source) in enumerate(zip(names, sources, strict=True)):
            why = unlike(name, ends[name], source, topics[number])
            if why:
                raise self._refused(why)
            for log in logs:
                # What other sources keep is theirs: Spark's Kafka source begins its file with a zero byte.
                if source.files is not None and log.parent.name in {name, str(number)}:
                    self._check_version(log)
                    self._check_path(log, name, source.files.path)

    def _check_sinks(self, plan: Plan, found: _Found) -> None:
        """Refuse a directory whose list is another query's: that one would skip the numbers that are taken here."""
        sinks = _listed(plan)
        for sink in sinks:
            newest = sink.spark_batch()
            if len(sinks) > 1 or newest not in {found.done, found.planned}:
                raise self._refused(
                    f'is at batch {found.done}, and "{sink.directory}" has batch {newest} of a query of '
                    "Spark's: one query of Spark's writes into one directory, and lists its batches there. Give the "
                    "directory of that query, and others without such a list"
                )
            sink.adopt(plan.source.sparkSession)

    def _check_version(self, path: Path) -> None:
        if not self._text(path).startswith("v"):
            raise self._damaged(_below(path), "its first line is not a version")

    def _check_path(self, log: Path, name: str, path: str) -> None:
        """Refuse a directory whose files the source has not read: two that changed places would be read again."""
        entries = self._text(log).splitlines()[1:]
        try:
            read = str(json.loads(entries[-1])["path"]) if entries else ""
        except (ValueError, LookupError, TypeError) as error:
            raise self._damaged(_below(log), str(error)) from error
        if read and not is_below(read, path):
            raise self._refused(
                f"has read {read} for source {name}, which is not below {path}: Spark knows the files by their paths, "
                "and all of those would be new. Give the query the paths of Spark's query, in the same order"
            )

    def _text(self, path: Path) -> str:
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged(_below(path), getattr(error, "strerror", None) or str(error)) from error

    def _damaged(self, name: str, why: str) -> AnalysisError:
        return self._refused(
            f"is damaged: {name}: {why.rstrip('.')}. Restore a copy of it, or start without the option from where the "
            "options of the sources say"
        )

    def _refused(self, why: str) -> AnalysisError:
        return AnalysisError(f'{ADOPT.name}: "{self.place}" {why}.')


def continue_lists(plan: Plan, home: Directory) -> None:
    """Let sinks go on in directories that the home has taken over from Spark's file sink."""
    sinks = _listed(plan)
    kept = _adopted(home) if sinks else None
    for sink in sinks:
        # Of another directory, the query of Spark's may still run: its sink would skip the numbers that are taken.
        if kept is not None and str(sink.directory) in kept.lists:
            sink.adopt(plan.source.sparkSession)


def lists_of(home: Directory) -> tuple[str, ...]:
    """The directories with lists of Spark's file sink that a home has taken over."""
    kept = _adopted(home)
    return () if kept is None else kept.lists


def _listed(plan: Plan) -> list[Adopting]:
    sinks = [output.sink for output in plan.outputs]
    return [sink for sink in sinks if isinstance(sink, Adopting) and sink.spark_batch() is not None]


def _adopted(home: Directory) -> _Adopted | None:
    return kept_note(home, ADOPTED_FILE, _ADOPTED, ADOPT.name)


def _below(path: Path) -> str:
    """A file of a checkpoint, without what comes before.

    >>> _below(Path("/c/offsets/3")), _below(Path("/c/sources/0/3"))
    ('offsets/3', 'sources/0/3')
    """
    return "/".join(path.parts[-3 if path.parts[-3] == "sources" else -2 :])


def _parsed(offset: str) -> object:
    return None if offset == VOID else json.loads(offset)
