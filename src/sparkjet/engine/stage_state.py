"""The live state of one stage: its operator and counters, saved to the store and restored from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

import msgspec
from pyspark.sql import DataFrame

from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.engine.changed_windows import grid_of, shown, whole_from
from sparkjet.engine.upgraded_state import upgraded
from sparkjet.errors import RecoveryError
from sparkjet.query_log import logger
from sparkjet.snapshots.record import JoinSettings, Lateness, SavedStage, SlidingSettings
from sparkjet.snapshots.store import Delta
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.state.partitions import LOST, entry_size, held_by_executors, partition_count, patched, release
from sparkjet.state.segments import to_store
from sparkjet.state.tasks import FEW, tasks_of_few
from sparkjet.stateful.interval_join import IntervalJoin
from sparkjet.stateful.rolling import RollingGroups
from sparkjet.time import clamp
from sparkjet.windows import SessionWindows, SlidingWindows

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.engine.arrival import Arrival
    from sparkjet.engine.changed_query import StageUpgrade
    from sparkjet.snapshots import SnapshotStore
    from sparkjet.snapshots.store import Delta
    from sparkjet.state import Operator
    from sparkjet.time import WindowGrid


UNREADABLE = "FAILED_READ_FILE"
"""Spark's error condition for a file that does not hold what it should, also according to its checksums."""


class Partitioning(Protocol):
    """Determines how loaded rows are distributed; operators do so."""

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """Stored rows, partitioned like a segment, and persisted in the executors once read."""
        ...


class Loading:
    """Loads the segments of one operator.

    Args:
        operator: The operator.
        session: The query's session.
        store: The store of the deltas.
    """

    def __init__(self, operator: Partitioning, session: SparkSession, store: SnapshotStore) -> None:
        self._operator = operator
        self._session = session
        self._store = store
        self.read = 0
        """Number of partitions that were read from the store."""
        self.kept = 0
        """Number of partitions that executors still held."""

    def segment(self, delta: Delta, held: Segment | None) -> Segment:
        """The segment of a delta."""
        if held is not None:
            lost, count = held.lost, held.partition_count
            found = held if not lost else self._patched(delta, held, lost) if len(lost) < count else None
            if found is not None:
                self.read += len(lost)
                self.kept += count - len(lost)
                return found
        partials = self._operator.partitioned(self._store.read_delta(self._session, delta))
        _check(partials, delta)
        self.read += partition_count(partials)
        return _segment(partials, delta)

    def rows(self, delta: Delta) -> DataFrame:
        """The rows of a delta as stored."""
        return stored_rows(self._session, self._store, delta)

    def _patched(self, delta: Delta, held: Segment, lost: AbstractSet[int]) -> Segment | None:
        """The segment with only the lost partitions read; None if that does not return all of its rows."""
        files = delta.files
        if delta.partitions == held.partition_count:
            own = [file for file in files if int(PurePosixPath(file).name.split("-")[1]) in lost]
            # An empty partition has no file. A file of any other partition has none of its rows.
            files = own or files[:1]
        read = self._store.read_delta(self._session, msgspec.structs.replace(delta, files=files))
        loaded = self._operator.partitioned(read)
        others = loaded.select(*map(quoted, held.partials.columns))
        if [each.dataType for each in others.schema] != [each.dataType for each in held.partials.schema]:
            return None
        partials = patched(held.partials, others, lost)
        try:
            whole = _counted(partials, delta) == delta.rows
        except Exception as error:
            if LOST not in str(error):
                raise
            # Another executor is gone, or Spark has not noticed yet.
            whole = False
        release(loaded)
        if whole:
            return _segment(partials, delta)
        release(partials)
        return None


def _segment(partials: DataFrame, delta: Delta) -> Segment:
    return Segment(partials, SegmentStatistics(delta.rows, delta.low, delta.high), delta)


def stored_rows(session: SparkSession, store: SnapshotStore, delta: Delta) -> DataFrame:
    """The rows of a delta as stored; they are counted first.

    Raises:
        RecoveryError: Some of the rows are missing.
    """
    rows = store.read_delta(session, delta)
    _check(rows, delta)
    return rows


def _check(partials: DataFrame, delta: Delta) -> None:
    found = _counted(partials, delta)
    if found != delta.rows:
        raise _damaged(f"Delta {delta.name} should hold {delta.rows} entries, but {found} were found")


def _counted(partials: DataFrame, delta: Delta) -> int:
    try:
        return partials.count()
    except Exception as error:
        if UNREADABLE not in str(error):
            raise
        raise _damaged(f"Delta {delta.name} cannot be read") from error


def _damaged(why: str) -> RecoveryError:
    return RecoveryError(
        f"{why}: the snapshot is damaged. Restore the files, or start from scratch with another checkpointLocation."
    )


@dataclass
class StageState:
    """The state of one stage that an epoch reads and changes.

    Attributes:
        partitions: Number of partitions of the state.
        arrived: Number of partial rows that last arrived at a side, None before the first ones.
        obsolete: Names of deltas that a restore has read or written; those that the next record does not name are
            removed once it is written.
        kept: The plans by which rows arrive, become results and are saved.
        lags: Lags of the inputs whose rows it judges, by their prefixes; empty if it judges none.
        reached: The watermark at the start of the epoch, even if it is between the ends of windows; None if the epoch's
            rows say nothing about other lags.
        judged: Number of rows that it has judged with these lags.
        lateness: Number of rows, by substream, that needed a certain amount of additional lag.
        recorded: The segments of the newest record by the names of their deltas, whatever the operator has made of them
            since: executors hold them until the next record.
        compacted: Number of entries when the operator was last compacted.
        used: The share of its limit that it held in the last epoch, None without a limit.
        warned: Whether there was a warning since it held little.
    """

    operator: Operator
    partitions: int
    late: Counter[str] = field(default_factory=Counter)
    null_timestamps: Counter[str] = field(default_factory=Counter)
    lags: Mapping[str, int | None] = field(default_factory=dict)
    reached: int | None = None
    judged: int = 0
    lateness: Counter[tuple[str, int]] = field(default_factory=Counter)
    obsolete: set[str] = field(default_factory=set)
    recorded: Mapping[str, Segment] = field(default_factory=dict)
    kept: KeptPlans = field(default_factory=KeptPlans)
    arrived: int | None = None
    compacted: int = 0
    used: float | None = None
    warned: bool = False

    @property
    def windows(self) -> SlidingWindows | SessionWindows | None:
        """The operator, if it has windows."""
        return self.operator if isinstance(self.operator, SlidingWindows | SessionWindows) else None

    @property
    def entries(self) -> int:
        """The rows of the operator's segments, including those that are replaced or expired but not merged yet."""
        return sum(segment.statistics.rows for segment in self.operator.segments)

    @property
    def held(self) -> tuple[int, int]:
        """The bytes of the segments in the executors' memory and on their local disks."""
        found = held_by_executors(segment.rows.table for segment in self.operator.segments)
        return sum(each.memory for each in found), sum(each.disk for each in found)

    @property
    def entry_size(self) -> float:
        """See :func:`sparkjet.state.partitions.entry_size`."""
        segments = self.operator.segments
        found = held_by_executors(segment.rows.table for segment in segments)
        return entry_size([(each.statistics.rows, held) for each, held in zip(segments, found, strict=True)])

    def shed_before(self, watermark: int) -> int | None:
        """The time from which rows are late only as their windows were closed early; None if none are."""
        windows = self.windows
        if windows is None or windows.closed is None or windows.closed <= windows.regular(watermark):
            return None
        return windows.regular(watermark)

    @property
    def is_open(self) -> bool:
        """Whether any open window holds anything."""
        last, closed = self.operator.open_until, self.operator.closed
        return last is not None and (closed is None or last > closed)

    def append(self, number: int, arrival: Arrival) -> None:
        """Count an epoch's rows and pass the accepted ones to a side of the operator."""
        self.late += arrival.late
        self.null_timestamps += arrival.null_timestamps
        if arrival.counts and self.lags:
            self.judged += arrival.accepted + arrival.late.total()
            self.lateness += arrival.lateness
        self.arrived = 0
        if arrival.segment is not None:
            self.arrived = arrival.segment.statistics.rows
            self.operator.sides[number].append(arrival.segment)

    def arrival_tasks(self, session: SparkSession) -> int | None:
        """The number of tasks in which rows arrive if they are as few as the last ones; None for one per partition."""
        return tasks_of_few(session, self.partitions, self.arrived)

    @property
    def rows(self) -> int:
        """An upper bound of the rows in the state: some operators already count the last arrivals as segments."""
        return sum(segment.statistics.rows for segment in self.operator.segments) + (self.arrived or 0)

    def save(self, name: str, store: SnapshotStore) -> None:
        """Write the segments that the store does not have yet."""
        for number, segment in enumerate(self.operator.segments):
            if segment.stored is None:
                segment.stored = self._write(f"{name}-{number}", segment, store)

    def snapshot(self) -> SavedStage:
        """The state in the form of the record: the deltas of the operator's segments."""
        stored = [(each.stored, each) for each in self.operator.segments if isinstance(each.stored, Delta)]
        self.recorded = {delta.name: segment for delta, segment in stored}
        windows = self.windows
        return SavedStage(
            settings=self.operator.settings,
            closed=self.operator.closed,
            deltas=[delta for delta, _ in stored],
            late=dict(self.late),
            null_timestamps=dict(self.null_timestamps),
            whole_from=None if windows is None else windows.whole_from,
            withheld=0 if windows is None else windows.withheld,
            shed=0 if windows is None else windows.shed_windows,
            lateness=self._lateness() if self.lags else None,
        )

    def _lateness(self) -> Lateness:
        late: dict[str, dict[int, int]] = {}
        for (substream, lateness), rows in sorted(self.lateness.items()):
            late.setdefault(substream, {})[lateness] = rows
        return Lateness(dict(self.lags), self.judged, late)

    def _restore_lateness(self, saved: Lateness | None) -> None:
        """Continue counting, or start over: with another lag, other rows would have been late."""
        self.judged, self.lateness = 0, Counter()
        if saved is not None and saved.lags == self.lags:
            self.judged = saved.rows
            self.lateness.update({(name, by): rows for name, each in saved.late.items() for by, rows in each.items()})

    def restore(
        self,
        saved: SavedStage | None,
        session: SparkSession,
        store: SnapshotStore,
        name: str,
        loaded: Callable[[], None] = lambda: None,
        upgrade: StageUpgrade | None = None,
    ) -> Loading:
        """Replace the state with that of the record; what executors still hold of it is not read again.

        If the length or step of a sliding window has changed since, or an ``upgrade`` describes another change, the
        rows are converted and stored again under ``name``, as one delta. After each loaded delta, ``loaded`` is called.
        """
        self.obsolete = set()
        self._restore_lateness(None if saved is None else saved.lateness)
        loading = Loading(self.operator, session, store)
        if saved is None:
            self.late, self.null_timestamps = Counter(), Counter()
            self.operator.restore([], None)
            return loading
        self.late, self.null_timestamps = Counter(saved.late), Counter(saved.null_timestamps)
        if upgrade is not None:
            self._upgrade(upgrade, saved, loading, store, name, loaded)
            return loading
        segments = []
        for delta in saved.deltas:
            segments.append(loading.segment(delta, self.recorded.get(delta.name)))
            loaded()
        self.recorded = {delta.name: segment for delta, segment in zip(saved.deltas, segments, strict=True)}
        before = saved.settings
        if isinstance(self.operator, SlidingWindows) and isinstance(before, SlidingSettings):
            if before == self.operator.settings:
                self.operator.restore(segments, saved.closed, saved.windows)
            else:
                self._realign(self.operator, grid_of(before), saved, segments, store, name)
        elif isinstance(self.operator, SessionWindows):
            self.operator.restore(segments, saved.closed, saved.windows)
        elif isinstance(self.operator, IntervalJoin) and isinstance(before, JoinSettings):
            self.operator.restore(segments, saved.closed, before.watermarks)
        else:
            self.operator.restore(segments, saved.closed)
        return loading

    def close(self) -> None:
        """Free all state, and drop the plans; counters can still be read."""
        self.operator.restore([], None)
        self.operator.release()
        self.recorded = {}
        self.kept = KeptPlans()

    @property
    def has_lost(self) -> bool:
        """Whether some partition of what the newest record names is on no executor."""
        return any(segment.lost for segment in self.recorded.values())

    def _realign(
        self,
        operator: SlidingWindows,
        before: WindowGrid,
        saved: SavedStage,
        loaded: list[Segment],
        store: SnapshotStore,
        name: str,
    ) -> None:
        segments = []
        if loaded:
            united = reduce(DataFrame.unionByName, [segment.partials for segment in loaded])
            segments = self._moved(operator, operator.realigned(united, before, saved.closed), store, name)
            for segment in loaded:
                segment.release()
        self._forget(saved, name)
        self._restore_moved(operator, before, saved, segments, name)

    def _upgrade(
        self,
        upgrade: StageUpgrade,
        saved: SavedStage,
        loading: Loading,
        store: SnapshotStore,
        name: str,
        loaded: Callable[[], None],
    ) -> None:
        operator, settings, found = self.operator, saved.settings, list[DataFrame]()
        assert isinstance(operator, SlidingWindows | SessionWindows | RollingGroups)  # noqa: S101 - others are refused
        before = grid_of(settings) if isinstance(settings, SlidingSettings) else None
        is_moved = isinstance(operator, SlidingWindows) and operator.settings != settings
        for delta in saved.deltas:
            found.append(loading.rows(delta))
            loaded()
        segments = []
        if found:
            old_keys = [f"key{number}" for number in range(upgrade.old_keys)]
            newest = operator.newest(reduce(DataFrame.unionByName, found), old_keys, saved.closed)
            rows = upgraded(newest, upgrade, operator.accumulators, operator.keys)
            if isinstance(operator, SlidingWindows) and is_moved and before is not None:
                rows = operator.realigned(rows, before, saved.closed)
            else:
                rows = operator.renewed(rows)
            segments = self._moved(operator, rows, store, name)
        self._forget(saved, name)
        if isinstance(operator, SlidingWindows) and is_moved and before is not None:
            self._restore_moved(operator, before, saved, segments, name)
        elif isinstance(operator, SessionWindows) and saved.closed is not None and (upgrade.merges or upgrade.longer):
            # What has closed for one key may have been part of what is open for another, or of what is to come.
            start = max(
                clamp(saved.closed + upgrade.longer), saved.closed if saved.whole_from is None else saved.whole_from
            )
            operator.restore(segments, saved.closed, saved.windows._replace(whole_from=start))
        elif isinstance(operator, SlidingWindows | SessionWindows):
            operator.restore(segments, saved.closed, saved.windows)
        else:
            operator.restore(segments, saved.closed)

    def _moved(
        self,
        operator: SlidingWindows | SessionWindows | RollingGroups,
        rows: DataFrame,
        store: SnapshotStore,
        name: str,
    ) -> list[Segment]:
        """Rows that replace everything that was saved: stored, and held by the executors."""
        partials = operator.partitioned(rows)
        statistics = operator.measured(partials)
        if statistics is None:
            return []
        moved = Segment(partials, statistics)
        moved.stored = self._write(name, moved, store)
        return [moved]

    def _forget(self, saved: SavedStage, name: str) -> None:
        # Including the new one: if merged in the very next epoch, it would never have been in a record that drops it.
        self.obsolete = {name, *(delta.name for delta in saved.deltas)}
        self.recorded = {}

    def _restore_moved(
        self, operator: SlidingWindows, before: WindowGrid, saved: SavedStage, segments: list[Segment], name: str
    ) -> None:
        closed = operator.realigned_end(saved.closed)
        start = whole_from(operator.window, before, saved)
        operator.restore(segments, closed, saved.windows._replace(whole_from=start))
        if start is not None and (closed is None or operator.window.last_partial(start) > closed):
            logger.warning(
                "%s: the window has changed. Windows that start before %s are withheld, as some of their rows are no "
                "longer there; progress counts them (withheldWindows)",
                name.rpartition("-")[2],
                shown(start),
            )

    def _write(self, name: str, segment: Segment, store: SnapshotStore) -> Delta:
        statistics = segment.statistics
        partitions = None if statistics.rows <= FEW else segment.partition_count
        # For few rows, every further file would take longer to create than the rows to write.
        rows = self.kept("saved", inputs=[[segment.rows]], build=to_store, tasks=1 if partitions is None else None)
        files = store.write_delta(name, rows)
        found = statistics.rows, statistics.low, statistics.high
        return Delta(name, list(files), *found, partitions, sum(files.values()))
