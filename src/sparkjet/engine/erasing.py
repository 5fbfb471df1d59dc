"""Erasing: removing the rows of a key from a home, in its newest record and in the pinned ones."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
from pyspark.sql import functions as F

from sparkjet.catalyst.physical_plans import own_session
from sparkjet.engine.shown_state import kind_of_operator
from sparkjet.engine.stage_state import stored_rows
from sparkjet.errors import AnalysisError, FencedError, RecoveryError
from sparkjet.plan.aggregation import key_name
from sparkjet.plan.interval_join import SIDES
from sparkjet.plan.recorded_stages import schema_of
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.copying import copy_newest, origin_of
from sparkjet.snapshots.outbox_entries import OutboxEntries
from sparkjet.snapshots.record import EpochKind, JoinSettings, SessionSettings, SlidingSettings
from sparkjet.snapshots.record_log import RecordLog, newest_record, reading
from sparkjet.snapshots.store import Delta
from sparkjet.state.tasks import FEW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparkjet.catalyst.sought_rows import Sought
    from sparkjet.snapshots.record import Record, SavedStage, StageSettings
    from sparkjet.storage.directory import Directory

STATE = "state"


class ErasedPlace(msgspec.Struct, frozen=True):
    """The rows that an erasure has found in one place.

    Attributes:
        place: ``state``, ``pin NAME``, or a directory; for a copy of a home, preceded by the directory.
        operator: The operator, as listed by ``sparkjet state``; empty for a directory of rows.
        kind: The kind of the operator; for a directory of rows, the number of its files that had any.
        rows: Number of stored rows with the values, several per window, session or key; None if none were searched.
        why: Why none, or not all, were searched; empty if all were.
    """

    place: str
    operator: str
    kind: str
    rows: int | None
    why: str = ""


class HomeErasure:
    """Erases rows from a home whose query is stopped, on any store.

    The new newest record is a takeover, like that of a start: a driver that is still running is fenced. Each record is
    replaced as a whole, the pinned ones first, and whatever they no longer name is removed last. If it is killed in
    between, another call completes it.

    Args:
        session: Reads and writes the state.
        home: The home.
        sought: The rows.

    Raises:
        AnalysisError: The home cannot be read, or a value does not fit its column.
        RecoveryError: There is no record; or the newest or a pinned one does not say what the columns of its state are.
    """

    def __init__(self, session: SparkSession, home: Directory, sought: Sought) -> None:
        self._session = own_session(session)
        # The plans group and join nothing.
        self._session.conf.set("spark.sql.adaptive.enabled", "false")
        self._home, self._sought = home, sought
        self._store = DirectoryStore(home.below("snapshots"))
        self._log = RecordLog(self._store)
        self.slot, self.record = newest_record(home, "erase")
        self._decided: int | None = None
        with reading(home, "erase"):
            names = defaultdict[int, list[str]](list)
            for pin in self._log.pins.all():
                names[pin.slot].append(pin.name)
            revisions = self._log.pins.revisions()
            self._revisions = {slot: number for slot, (number, _) in revisions.items()}
            self._pinned = {
                slot: (f"pin {', '.join(names[slot])}", revisions[slot][1]) for slot in names if slot in revisions
            }
        self._read: dict[str, DataFrame] = {}
        self._rewritten: dict[tuple[str, str], tuple[int, Delta | None]] = {}
        self._check()

    def look(self) -> list[ErasedPlace]:
        """Find what :meth:`erase` would erase; changes nothing."""
        records = [(STATE, self.record), *self._pinned.values()]
        return [found for place, record in records for found, _ in self._stages(place, record, erases=False)]

    def erase(self) -> list[ErasedPlace]:
        """Erase the rows; returns what was found.

        Raises:
            RecoveryError: A driver runs the query, and has written a record in the meantime.
        """
        try:
            state = list(self._stages(STATE, self.record, erases=True))
            pins = self._erase_pins()
        except Exception as error:
            # What it was reading may be gone with the record that named it.
            if self._store.slots()[-1] != self.slot:
                raise self._running() from error
            raise
        takeover = msgspec.structs.replace(
            _with(self.record, dict(each for _, each in state)),
            kind=EpochKind.TAKEOVER,
            takeover=self.record.takeover + 1,
            run=str(uuid.uuid4()),
        )
        try:
            self._log.append(self.slot + 1, takeover)
        except FencedError as error:
            raise self._running() from error
        places = [place for place, _ in state] + pins
        if self._seal_pins():
            self._clean(self.slot + 1, takeover)
            self._decided = self.slot + 1
            return places
        # Each of its records is whole, and what has come meanwhile is erased by the same steps.
        again = HomeErasure(self._session, self._home, self._sought)
        found = again.erase()
        self._decided = again._decided
        return _together(places, found)

    def check_newest(self) -> None:
        """Refuse to replace files after another erasure or a driver has come: it may be about to replace the same ones.

        Raises:
            RecoveryError: One has.
        """
        if self._store.slots()[-1] != self._decided:
            raise self._running()

    def bring_up(self, copy: Directory) -> None:
        """Bring a copy of the home up to the newest record, without the rows, and erase them from its pins."""
        copy_newest(self._home, copy, "copies")
        there = HomeErasure(self._session, copy, self._sought)
        there._erase_pins()
        there._clean(there.slot, there.record)

    def check_copy(self, name: str, copy: HomeErasure) -> None:
        """Refuse a home to which the newest record cannot be copied.

        Raises:
            AnalysisError: It is of another query, or has come further.
        """
        if copy.record.query != self.record.query:
            message = f'erase: copies: "{name}" is of query {copy.record.query}, and not of {self.record.query}.'
            raise AnalysisError(message)
        if copy.slot > self.slot:
            message = (
                f'erase: copies: "{name}" has record {copy.slot}, and the home has records up to {self.slot} only: '
                "the query was started, or erased from, in the copy. Erase from it as from any other home."
            )
            raise AnalysisError(message)

    def left(self) -> Iterator[str]:
        """Places that may have to do with the key, but are not erased here."""
        waiting = sorted({each.sink for each in self.record.transactions if "box" not in each.handle})
        if waiting:
            yield f"rows of the last epoch on their way to {', '.join(waiting)}: the next start may publish them"
        kept = [self.record, *(record for _, record in self._pinned.values())]
        known = {name for record in kept for name in _substreams(record)}
        for value in map(str, self._sought.values.values()):
            if value in known:
                yield f'the name of the substream "{value}", in its watermark and its counts: records keep them'
        files = "".join(map(_files, kept))
        for name, value in self._sought.values.items():
            if f"{name}={value}/" in files:
                yield f"names of files in {name}={value}: records have them until they are published"
        if self._pinned:
            yield "names of substreams, and of the files of outputs with partitionBy, in records since the first pin"
        if origin_of(self._home) is not None:
            yield "outputs of this fork, by default in its home below outputs: give each as a directory of rows"

    def _erase_pins(self) -> list[ErasedPlace]:
        found = []
        for slot, (place, record) in self._pinned.items():
            stages = list(self._stages(place, record, erases=True))
            found += [each for each, _ in stages]
            if any(each.rows for each, _ in stages):
                revision = _with(record, dict(each for _, each in stages))
                is_newest = self._store.slots()[-1] == self.slot
                if not is_newest or not self._log.pins.revise(slot, revision, self._revisions[slot]):
                    raise self._running()
                self._revisions[slot] += 1
        return found

    def _seal_pins(self) -> bool:
        """Whether the pinned records are those that were erased; whoever had read one of them cannot replace it now.

        Another erasure that loses the slot may have replaced a pinned record since, by one that still has the rows; or
        be about to, while what it names is removed. And somebody may have pinned a record since.
        """
        is_as_erased = True
        for slot, (number, record) in self._log.pins.revisions().items():
            is_sealed = self._log.pins.revise(slot, record, number)
            is_as_erased = is_as_erased and is_sealed and slot in self._pinned and number == self._revisions[slot]
        return is_as_erased

    def _clean(self, slot: int, record: Record) -> None:
        """Remove whatever no record names, and what earlier drivers have left unfinished."""
        self._log.clean_before(record.takeover + 1, record)
        outbox = self._home.below("snapshots/outbox")
        for sink in outbox.names():
            # Decided rows are delivered: see _check.
            OutboxEntries(outbox.below(sink)).remove_orphans(record.takeover + 1, ())
        self._store.trim(self._log.pins.first(slot))

    def _check(self) -> None:
        for place, record in ((STATE, self.record), *self._pinned.values()):
            for name, saved in record.stages.items():
                if name in record.shown:
                    self._conditions(place, name, record)
                elif saved.deltas:
                    way_out = "Start the query once" if place == STATE else "Remove the pin (sparkjet snapshots rm)"
                    message = (
                        f'erase: {place} of "{self._home}" was recorded by a version that does not note the columns of '
                        f"its state, so that {name} cannot be looked through. {way_out}, and erase again."
                    )
                    raise RecoveryError(message)
        for prepared in self.record.transactions:
            if "box" not in prepared.handle:
                continue
            box, sink = prepared.handle["box"], prepared.handle["sink"]
            if not OutboxEntries(self._home.below(f"snapshots/outbox/{sink}")).delivered(box):
                message = (
                    f'erase: epoch {self.record.epoch} of "{self._home}" is decided, and its rows for '
                    f"{prepared.sink} wait in the outbox. Start the query, stop it with query.stop(), and erase again."
                )
                raise AnalysisError(message)

    def _running(self) -> RecoveryError:
        return RecoveryError(
            f'erase: "{self._home}" has changed since record {self.slot} was read: a driver runs the query, or it is '
            "being erased from elsewhere. Stop it with query.stop(), and erase again. Its state is as that has left "
            "it, and pins may have been erased."
        )

    def _stages(
        self, place: str, record: Record, *, erases: bool
    ) -> Iterator[tuple[ErasedPlace, tuple[str, SavedStage]]]:
        for name, saved in record.stages.items():
            conditions, kind = self._conditions(place, name, record), kind_of_operator(saved)
            lacking = [side for side, condition in conditions.items() if condition is None]
            why = ""
            if lacking:
                why = ("" if len(lacking) == len(conditions) else f"{lacking[0]} side: ") + self._sought.lacking
            if len(lacking) == len(conditions):
                yield ErasedPlace(place, name, kind, None, why), (name, saved)
                continue
            rows, deltas = 0, []
            for delta in saved.deltas:
                count, rest = self._delta(delta, record, saved.settings, conditions, erases=erases)
                rows += count
                deltas += [] if rest is None else [rest]
            yield ErasedPlace(place, name, kind, rows, why), (name, msgspec.structs.replace(saved, deltas=deltas))

    def _conditions(self, place: str, name: str, record: Record) -> Mapping[str, Column | None]:
        """Conditions for the sought rows, by side of a join; by an empty string if there is only one kind of rows."""
        shown = record.shown.get(name)
        if shown is None:
            return {"": None}
        where = f"{name} ({place})"
        if isinstance(record.stages[name].settings, JoinSettings):
            sides = zip(SIDES, map(schema_of, shown.sides), strict=True)
            return {side: self._within(schema, side, f"{where}, {side} side") for side, schema in sides}
        schema = schema_of(shown.keys)
        return {"": self._within(schema, "key", where)}

    def _within(self, schema: StructType, stored: str, where: str) -> Column | None:
        numbers = range(len(schema))
        names = [key_name(number) if stored == "key" else f"{stored}{number}" for number in numbers]
        return self._sought.within(self._session, schema, names, where)

    def _delta(
        self,
        delta: Delta,
        record: Record,
        settings: StageSettings,
        conditions: Mapping[str, Column | None],
        *,
        erases: bool,
    ) -> tuple[int, Delta | None]:
        """The number of sought rows in a delta, and the delta without them; None if there are no others."""
        if delta.name not in self._read:
            self._read[delta.name] = stored_rows(self._session, self._store, delta)
        rows = self._read[delta.name]
        side = next((side for side in conditions if f"{side}_time" in rows.columns), "")
        condition = conditions[side]
        if condition is None:
            return 0, delta
        # Records share deltas, but may name their columns otherwise.
        key = delta.name, str(condition)
        if key not in self._rewritten:
            bounds = _bounds(settings, side)
            self._rewritten[key] = self._without(delta, rows, condition, record, bounds, erases=erases)
        return self._rewritten[key]

    def _without(
        self,
        delta: Delta,
        rows: DataFrame,
        condition: Column,
        record: Record,
        bounds: tuple[str, str],
        *,
        erases: bool,
    ) -> tuple[int, Delta | None]:
        low, high = (F.when(~condition, F.col(name)) for name in bounds)
        count, lowest, highest = rows.agg(F.count_if(condition), F.min(low), F.max(high)).collect()[0]
        left = delta.rows - count
        if not count or not erases:
            return count, delta
        if not left:
            return count, None
        # Named after the takeover that this becomes, and uniquely, as an attempt that was killed may have left files.
        name = f"{self.record.takeover + 1:06d}-{record.epoch:09d}-erased-{uuid.uuid4().hex[:12]}"
        tasks = 1 if left <= FEW else max(1, len(delta.files))
        files = self._store.write_delta(name, rows.where(~condition).coalesce(tasks))
        return count, Delta(name, list(files), left, lowest, highest, size=sum(files.values()))


def _substreams(record: Record) -> Iterator[str]:
    watermarks = record.watermarks, *([] if record.polled is None else [record.polled])
    for state in (state for each in watermarks for state in each.inputs.values()):
        yield from (*state.substreams, *state.retired)
    for stage in record.stages.values():
        yield from (*stage.late, *stage.null_timestamps, *({} if stage.lateness is None else stage.lateness.late))


def _files(record: Record) -> str:
    """The handles of the record's transactions, as text: each sink names files in its own way."""
    return unquote(msgspec.json.encode([each.handle for each in (*record.transactions, *record.published)]).decode())


def _together(first: Iterable[ErasedPlace], then: Iterable[ErasedPlace]) -> list[ErasedPlace]:
    """The findings of two erasures, one after the other."""
    found = {(each.place, each.operator): each for each in first}
    for each in then:
        before = found.get((each.place, each.operator))
        rows = each.rows if before is None or before.rows is None else before.rows + (each.rows or 0)
        found[each.place, each.operator] = msgspec.structs.replace(each, rows=rows)
    return [*found.values()]


def _with(record: Record, stages: Mapping[str, Any]) -> Record:
    return msgspec.structs.replace(record, stages={**record.stages, **stages})


def _bounds(settings: StageSettings, side: str) -> tuple[str, str]:
    """The columns whose lowest and highest values the driver needs to know; see the operators."""
    if isinstance(settings, JoinSettings):
        return f"{side}_time", f"{side}_time"
    if isinstance(settings, SlidingSettings):
        return "frame", "frame"
    return ("due", "end") if isinstance(settings, SessionSettings) else ("due", "due")
