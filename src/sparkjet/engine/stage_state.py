"""The live state of one stage: its operator and counters, saved to the store and restored from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from sparkjet.errors import RecoveryError
from sparkjet.snapshots.record import JoinSettings, SavedStage, SlidingSettings
from sparkjet.snapshots.store import Delta
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.state.segments import release
from sparkjet.stateful.interval_join import IntervalJoin
from sparkjet.time import WindowGrid
from sparkjet.windows import SlidingWindows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.engine.arrival import Arrival
    from sparkjet.plan.stage import Operator
    from sparkjet.snapshots import SnapshotStore

SMALL = 10_000
"""Partial rows of a delta that one task writes."""
UNREADABLE = "FAILED_READ_FILE"
"""Spark's name for a file that does not hold what it should, by its checksums too."""


@dataclass
class StageState:
    """What an epoch reads and changes in one stage.

    ``obsolete`` names deltas that a restore has read or written; those that the next record does not name are removed
    once it is written.
    """

    operator: Operator
    late: Counter[str] = field(default_factory=Counter)
    null_timestamps: Counter[str] = field(default_factory=Counter)
    obsolete: set[str] = field(default_factory=set)

    @property
    def is_open(self) -> bool:
        """Whether a window is open that holds anything."""
        last, closed = self.operator.open_until, self.operator.closed
        return last is not None and (closed is None or last > closed)

    def append(self, number: int, arrival: Arrival) -> None:
        """Count an epoch's rows and hand the accepted ones to a side of the operator."""
        self.late += arrival.late
        self.null_timestamps += arrival.null_timestamps
        if arrival.statistics is None:
            release(arrival.table)
        else:
            segment = Segment(arrival.partials, arrival.statistics, None, arrival.table)
            self.operator.sides[number].append(segment)

    def save(self, name: str, store: SnapshotStore) -> None:
        """Write the segments that the store does not have yet."""
        for number, segment in enumerate(self.operator.segments):
            if segment.stored is None:
                segment.stored = _write(f"{name}-{number}", segment.to_store, segment.statistics, store)

    def snapshot(self) -> SavedStage:
        """The state as the record names it: the deltas behind the operator's segments."""
        deltas = [segment.stored for segment in self.operator.segments if isinstance(segment.stored, Delta)]
        return SavedStage(
            settings=self.operator.settings,
            closed=self.operator.closed,
            deltas=deltas,
            late=dict(self.late),
            null_timestamps=dict(self.null_timestamps),
        )

    def restore(self, saved: SavedStage | None, session: SparkSession, store: SnapshotStore, name: str) -> None:
        """Become what the record says.

        Where the length or step of a sliding window has changed since, the frames are moved to the new grid and
        stored again under ``name``, as one delta.

        Raises:
            RecoveryError: If entries are missing.
        """
        self.obsolete = set()
        if saved is None:
            self.late, self.null_timestamps = Counter(), Counter()
            self.operator.restore([], None)
            return
        self.late, self.null_timestamps = Counter(saved.late), Counter(saved.null_timestamps)
        segments = [self._load(delta, session, store) for delta in saved.deltas]
        before = saved.settings
        if (
            isinstance(self.operator, SlidingWindows)
            and isinstance(before, SlidingSettings)
            and before != self.operator.settings
        ):
            grid = WindowGrid(before.size, before.step, before.offset)
            self._realign(self.operator, grid, saved, segments, store, name)
        elif isinstance(self.operator, IntervalJoin) and isinstance(before, JoinSettings):
            self.operator.restore(segments, saved.closed, before.watermarks)
        else:
            self.operator.restore(segments, saved.closed)

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
            partials = operator.partitioned(operator.realigned(united, before, saved.closed))
            statistics = SegmentStatistics.measure(partials)
            # Only now: the new partial rows are computed when they are first read, from these.
            for segment in loaded:
                segment.release()
            if statistics is not None:
                segments.append(Segment(partials, statistics, _write(name, partials, statistics, store)))
        # The new one too: merged away in the very next epoch, it would never have been in a record that drops it.
        self.obsolete = {name, *(delta.name for delta in saved.deltas)}
        operator.restore(segments, operator.realigned_end(before, saved.closed))

    def _load(self, delta: Delta, session: SparkSession, store: SnapshotStore) -> Segment:
        partials = self.operator.partitioned(store.read_delta(session, delta))
        try:
            found = partials.count()
        except Exception as error:
            if UNREADABLE not in str(error):
                raise
            raise _damaged(f"Delta {delta.name} cannot be read") from error
        if found != delta.rows:
            raise _damaged(f"Delta {delta.name} should hold {delta.rows} entries, but {found} were found")
        return Segment(partials, SegmentStatistics(delta.rows, delta.low, delta.high), delta)


def _damaged(why: str) -> RecoveryError:
    return RecoveryError(
        f"{why}: the snapshot is damaged. Restore the files, or start from scratch with another checkpointLocation."
    )


def _write(name: str, partials: DataFrame, statistics: SegmentStatistics, store: SnapshotStore) -> Delta:
    if statistics.rows <= SMALL:
        # Every other file would take longer to make than these rows to write.
        partials = partials.coalesce(1)
    files = store.write_delta(name, partials)
    return Delta(name, files, statistics.rows, statistics.low, statistics.high)
