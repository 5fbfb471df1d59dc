"""Loading: from the deltas of a record to the segments of an operator; what executors still hold is not read again."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from sparkjet.catalyst.columns import quoted
from sparkjet.errors import RecoveryError
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.state.partitions import LOST, partition_count, patched, release

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.snapshots import SnapshotStore
    from sparkjet.snapshots.store import Delta
    from sparkjet.state import Operator

UNREADABLE = "FAILED_READ_FILE"
"""Spark's name for a file that does not hold what it should, by its checksums too."""


class Loading:
    """Loads the segments of one operator.

    Args:
        operator: The operator.
        session: The query's session.
        store: Where the deltas are.
    """

    def __init__(self, operator: Operator, session: SparkSession, store: SnapshotStore) -> None:
        self._operator = operator
        self._session = session
        self._store = store
        self.read = 0
        """Partitions that were read from the store."""
        self.kept = 0
        """Partitions that executors still held."""

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
        found_rows = _counted(partials, delta)
        if found_rows != delta.rows:
            raise _damaged(f"Delta {delta.name} should hold {delta.rows} entries, but {found_rows} were found")
        self.read += partition_count(partials)
        return _segment(partials, delta)

    def _patched(self, delta: Delta, held: Segment, lost: AbstractSet[int]) -> Segment | None:
        """The segment with only the lost partitions read; None if that does not give all of its rows."""
        files = delta.files
        if delta.partitions == held.partition_count:
            own = [file for file in files if int(PurePosixPath(file).name.split("-")[1]) in lost]
            # What was empty has no file. Any other one has none of its rows.
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
            # One more executor has gone, or Spark has not noticed yet.
            whole = False
        release(loaded)
        if whole:
            return _segment(partials, delta)
        release(partials)
        return None


def _segment(partials: DataFrame, delta: Delta) -> Segment:
    return Segment(partials, SegmentStatistics(delta.rows, delta.low, delta.high), delta)


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
