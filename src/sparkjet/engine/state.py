"""The live state of a query: operator, watermarks and counters, restored from a record and saved into the next."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from sparkjet.engine.record import Record, WindowState
from sparkjet.errors import RecoveryError
from sparkjet.snapshots.store import Delta
from sparkjet.time import SubstreamTracker, WindowGrid
from sparkjet.windows import Segment, SegmentStatistics, SlidingWindows
from sparkjet.windows.segments import release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.engine.aggregation import Aggregation
    from sparkjet.snapshots import SnapshotStore


@dataclass
class QueryState:
    """What an epoch reads and changes.

    ``obsolete`` names deltas that a restore has read or written; those that the next record does not name are removed
    once it is written.
    """

    operator: SlidingWindows
    tracker: SubstreamTracker
    late: Counter[str] = field(default_factory=Counter)
    null_timestamps: Counter[str] = field(default_factory=Counter)
    obsolete: set[str] = field(default_factory=set)

    def window_state(self) -> WindowState:
        """The operator's state as the record names it: its grid and the deltas behind its segments."""
        grid = self.operator.window
        deltas = [segment.stored for segment in self.operator.segments if isinstance(segment.stored, Delta)]
        return WindowState(grid.size, grid.step, grid.offset, self.operator.closed, deltas)

    def append(self, outcome: Aggregation, name: str, store: SnapshotStore) -> None:
        """Add an epoch's partial rows to the operator and the store, merging the newest segments when it is time.

        What is stored is the merged segment if there is one: the store then holds what memory holds.
        """
        if outcome.statistics is None:
            release(outcome.table)
            return
        self.operator.append(Segment(outcome.partials, outcome.statistics, None, outcome.table))
        merged = self.operator.merge()
        if merged is None:
            newest = self.operator.segments[-1]
            newest.stored = self._save(f"{name}-delta", newest.partials, newest.statistics, store)
            return
        statistics = SegmentStatistics.measure(merged)
        if statistics is None:
            self.operator.merged(None)
            return
        delta = self._save(f"{name}-merged", merged, statistics, store)
        self.operator.merged(Segment(merged, statistics, delta))

    def restore(self, record: Record, session: SparkSession, store: SnapshotStore, name: str) -> None:
        """Become what the record says, forgetting everything since.

        Where the window's length or step has changed since, the frames are moved to the new grid and stored again
        under ``name``, as one delta.

        Raises:
            RecoveryError: If entries are missing.
        """
        self.tracker.restore(record.watermarks)
        self.late = Counter(record.late)
        self.null_timestamps = Counter(record.null_timestamps)
        self.obsolete = set()
        saved = record.windows
        if saved is None:
            self.operator.restore([], None)
            return
        grid = WindowGrid(saved.size, saved.step, saved.offset)
        if grid == self.operator.window:
            segments = [self._load(delta, session, store) for delta in saved.deltas]
            self.operator.restore(segments, saved.closed)
            return
        closed = self.operator.realigned_end(grid, saved.closed)
        segments = []
        if saved.deltas:
            loaded = [self._load(delta, session, store) for delta in saved.deltas]
            united = reduce(DataFrame.unionByName, [segment.partials for segment in loaded])
            partials = self.operator.partitioned(self.operator.realigned(united, grid, saved.closed))
            for segment in loaded:
                segment.release()
            statistics = SegmentStatistics.measure(partials)
            if statistics is not None:
                delta = self._save(name, partials, statistics, store)
                segments.append(Segment(partials, statistics, delta))
        # The new one too: merged away in the very next epoch, it would never have been in a record that lets go of it.
        self.obsolete = {name, *(delta.name for delta in saved.deltas)}
        self.operator.restore(segments, closed)

    def _save(self, name: str, partials: DataFrame, statistics: SegmentStatistics, store: SnapshotStore) -> Delta:
        files = store.write_delta(name, partials)
        return Delta(name, files, statistics.rows, statistics.low, statistics.high)

    def _load(self, delta: Delta, session: SparkSession, store: SnapshotStore) -> Segment:
        partials = self.operator.partitioned(store.read_delta(session, delta))
        found = SegmentStatistics.measure(partials)
        if found is None or found.rows != delta.rows:
            rows = 0 if found is None else found.rows
            message = (
                f"Delta {delta.name} should hold {delta.rows} entries, but {rows} were found: the snapshot is damaged. "
                "Bring the files back, or start anew with another checkpointLocation."
            )
            raise RecoveryError(message)
        return Segment(partials, found, delta)
