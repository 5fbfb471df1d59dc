"""The sink of a map that has a journal of its changes: one decision for both, each change once."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.clock import Clock
from sparkjet.connectors.grid.journal_sink import GridJournalSink
from sparkjet.connectors.grid.journal_task import Appends
from sparkjet.connectors.grid.map_sink import GridMapSink, widened
from sparkjet.connectors.grid.map_task import MapTask, MapTaskError, RefusedRowError, told
from sparkjet.errors import AnalysisError, RecoveryError, StorageError
from sparkjet.executors import cores
from sparkjet.sinks.protocol import Handle, TransactionId
from sparkjet.sinks.tasks import run_tasks
from sparkjet.storage.shipping import GRID_PACKAGES, ship
from sparkjet_grid.journal_version import JournalVersion, following
from sparkjet_grid.known_types import known
from sparkjet_grid.map_changes import NEW, OLD, Changed, Changes
from sparkjet_grid.map_version import MapVersion
from sparkjet_grid.places import JournalPlace, MapPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.connectors.grid.map_sink_settings import GridMapSettings
    from sparkjet.storage.grid_location import GridLocation


@dataclass(frozen=True)
class JournalledMapTask:
    """The task of a map that has a journal; travels to executors.

    Attributes:
        map: The task of the map alone.
        appends: How to append to the journal.
        sweeps: Whether partitions are searched for rows that have expired.
    """

    map: MapTask
    appends: Appends
    sweeps: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task, which has whole partitions of both, and their changes."""
        try:
            changes: Changes | None = None
            for deltas in self.map.deltas(batches):
                changes = changes or self._begun()
                changed = changes.write(self.map.transaction, deltas)
                yield told([(changed, sum(each.rows for each in changed.written))])
        except (AnalysisError, StorageError) as error:
            # The first, as when an executor has no token.
            raise MapTaskError(str(error)) from error

    def _begun(self) -> Changes:
        store, base = self.map.begun()
        return Changes(
            store,
            base,
            self.map.keys,
            self.appends.arrow_schema,
            self.map.clock,
            sweeps=self.sweeps,
            # One for all that a task writes: what it appends to a partition follows what it has appended before.
            appending=self.appends.begun(),
            partitions=self.appends.partitions,
        )


class JournalledMapSink(GridMapSink):
    """Writes the rows of each epoch into a map, and their changes into a journal of the same grid, exactly once.

    Each version of the map has one of the journal. The expiry of a row is a change in the epoch that finds it by a
    sweep through all partitions, at most every ``expireInterval``. The clock of the map stands still in between.

    Args:
        settings: The parsed options.
        location: The grid.
        place: Where the map is in it.
        clock: Dates epochs for which no other clock is given.
    """

    def __init__(
        self, settings: GridMapSettings, location: GridLocation, place: MapPlace, clock: Clock | None = None
    ) -> None:
        super().__init__(settings, location, place, clock)
        assert settings.journal is not None  # noqa: S101 - otherwise it is a map without one
        name = settings.journal.path.rpartition("/")[2]
        self._journal = GridJournalSink(settings.journal, location, JournalPlace(name), clock)

    def check(self, schema: T.StructType) -> None:
        """See :meth:`Sink.check`."""
        super().check(schema)
        own = [name for name in self.keys if name.lower() in {OLD, NEW}]
        if own:
            message = (
                f"journal: a journal of changes has a column {own[0].lower()!r} itself, and the key {own[0]!r} is "
                "another one. Give it another name."
            )
            raise AnalysisError(message)
        keys = [self._schema[name] for name in self.keys]
        rows = [T.StructField(OLD, self._schema), T.StructField(NEW, self._schema)]
        self._journal.check(T.StructType([*keys, *rows]))

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        base, now = self._begin(transaction)
        before, journal = self._journal.begun(transaction)
        sweeps = self._is_due(now)
        clock = self._clock_at(base, now, sweeps=sweeps)
        appends = self._journal.appends(before, journal, transaction)
        task = JournalledMapTask(self._task(base, transaction, clock), appends, sweeps)
        ship(rows.sparkSession)
        placed = self._of_both(rows, journal.partitions, self._expires(now), sweeps=sweeps)
        found = run_tasks(placed, task, [], MapTaskError, GRID_PACKAGES, of_rows=RefusedRowError)
        if not found and not sweeps:
            return None
        changed = [_changed_by(each["id"]) for each in found]
        written = [each for of_task in changed for each in of_task.written]
        left = None if base is None else base.expiry_at(clock)
        if sweeps:
            # What is left was seen: until one of these expires nobody has to look again.
            seen = [each.expiry for each in changed if each.expiry is not None]
            left = reduce(lambda all_, each: (min(all_[0], each[0]), max(all_[1], each[1])), seen) if seen else None
        expiry = widened(left, self._expires(now) if written else None)
        version = self._version(base, written, expiry, transaction, clock)
        self._check_size(transaction)
        appended = [each for of_task in changed for each in of_task.appended]
        return self._both(
            version, before, following(journal, appended), transaction, sum(each["rows"] for each in found)
        )

    def tells(self, clock: int, watermark: int | None) -> bool:
        """See :meth:`Telling.tells`: tells the journal's readers."""
        return self._journal.tells(clock, watermark)

    def tell(self, transaction: TransactionId) -> Handle:
        """See :meth:`Telling.tell`."""
        base, now = self._begin(transaction)
        before, journal = self._journal.begun(transaction)
        # Also if a sweep is due by now, as when the previous epoch was published late.
        clock = self._clock_at(base, now, sweeps=False)
        version = self._version(base, [], None if base is None else base.expiry_at(clock), transaction, clock)
        return self._both(version, before, journal, transaction, 0)

    def check_alive(self, handle: Handle) -> None:
        """See :meth:`Expiring.check_alive`."""
        super().check_alive(handle)
        self._journal.check_alive(handle["changes"])

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Sink.published_after`."""
        later = super().published_after(newest, handle)
        changes = None if handle is None else handle.get("changes")
        later = later or self._journal.published_after(newest, changes)
        is_same = changes is not None and changes["journal"] == self._journal.name
        there, reached = self._newest, self._journal.reached
        if later is None and not is_same and there is not None and reached is not None and reached < there.epoch:
            message = (
                f'journal: journal "{self._journal.name}" has the changes up to epoch {reached}, and {self._named} was '
                f"written without it up to epoch {there.epoch}: what has changed since would be in no journal. Name "
                "another one, which begins with the changes of the next epoch."
            )
            raise RecoveryError(message)
        return later

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`."""
        super().abort_orphans(query, takeover, keep)
        changes = [handle["changes"] for handle in keep if handle.get("changes") is not None]
        self._journal.abort_orphans(query, takeover, changes)

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        super().abort(transaction)
        self._journal.abort(transaction)

    def _journal_of(self, changes: Handle) -> GridJournalSink:
        del changes  # where they were prepared it finds by itself
        return self._journal

    @staticmethod
    def _clock_at(base: MapVersion | None, now: int, *, sweeps: bool) -> int:
        """The clock of the next version: no row expires by it that no sweep has found."""
        may_expire = base is not None and base.expiry is not None and base.expiry[0] <= now
        return base.clock if base is not None and may_expire and not sweeps else now

    def _of_both(self, rows: DataFrame, partitions: int, expires: int | None, *, sweeps: bool) -> DataFrame:
        """Rows like those of a map alone, each task with whole partitions of the journal."""
        count = len(self._store.client.state().rows)
        placed = self._placed(rows, count, expires)
        if sweeps:
            kinds = {each.name: each.dataType for each in placed.schema.fields}
            none = [F.lit(None).cast(kinds[name]).alias(name) for name in placed.columns[:-1]]
            named = rows.sparkSession.range(count).select(*none, F.col("id").cast("int").alias("partition"))
            placed = placed.union(named)
        tasks = min(partitions, cores(rows.sparkSession))
        journal = F.pmod(F.col("partition"), F.lit(partitions))
        return placed.repartition(tasks, journal).sortWithinPartitions(*self._order())

    def _both(
        self,
        version: MapVersion,
        before: JournalVersion | None,
        journal: JournalVersion,
        transaction: TransactionId,
        rows: int,
    ) -> Handle:
        changes = self._journal.written(before, journal, transaction, rows)
        return {**self._handle(version, transaction, rows), "changes": changes}


def grid_map_sink(settings: GridMapSettings, session: SparkSession, clock: Clock) -> GridMapSink:
    """The sink for some options, with a journal of changes if they name one."""
    from sparkjet.storage.grid_location import grid_location  # noqa: PLC0415 - on use only

    location, name = grid_location(settings.path, "path", session)
    kind = GridMapSink if settings.journal is None else JournalledMapSink
    return kind(settings, location, MapPlace.of(name, "path"), clock)


def _changed_by(id_: str) -> Changed:
    """The changes reported by a task."""
    return msgspec.msgpack.decode(b64decode(id_), type=known(Changed))
