"""Operators: the state of a stage as the engine sees it, and the common part of those that keep rows by key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import Self

    from sparkjet.snapshots.record import StageSettings
    from sparkjet.state.keyed_store import KeyedStore
    from sparkjet.state.segments import Segment, SegmentStatistics


class Side(Protocol):
    """The part of an operator that takes in rows; an operator with one feed is its own only side.

    Once per epoch the engine calls :meth:`append`, if rows have arrived.
    """

    @property
    def judged_by(self) -> int | None:
        """The time below which a row is late, by the last ``close``; None if no row is late."""
        ...

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """Rows for this side, partitioned like its state."""
        ...

    def append(self, segment: Segment) -> None:
        """Add the rows of an epoch; none of them may be late."""
        ...


class Operator(Protocol):
    """The state of a stage, on the driver; it consists of DataFrames.

    Once per epoch, the engine appends what has arrived to the :attr:`sides`, calls :meth:`close` with the new
    watermark, stores every segment that is not stored yet, and calls :meth:`release` once the rows from ``close`` are
    written. The state has advanced when ``close`` returns, whether or not the rows are consumed: after a failure the
    operator is restored.
    """

    @property
    def segments(self) -> Sequence[Segment]:
        """The state, oldest segment first; everything else is derived from it."""
        ...

    @property
    def closed(self) -> int | None:
        """The time up to which results are final, None before the first :meth:`close`; saved with the segments."""
        ...

    @property
    def sides(self) -> Sequence[Side]:
        """One side for each feed of the stage."""
        ...

    @property
    def settings(self) -> StageSettings:
        """The operator's numbers, as in the record."""
        ...

    @property
    def open_until(self) -> int | None:
        """The minimum watermark that closes everything, None if nothing is open."""
        ...

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """Stored rows, partitioned like a segment, and persisted in the executors once read."""
        ...

    @property
    def close(self) -> Callable[..., DataFrame | None]:
        """Turns one watermark for each side into the result rows, None if there are none; MIN closes nothing."""
        ...

    def early(self) -> DataFrame | None:
        """Results so far of what is open, like those of :meth:`close`; None if there are none; changes no state."""
        ...

    def skip_to(self, watermark: int) -> None:
        """Advance to ``watermark`` without closing anything; nothing may be open up to there."""
        ...

    def compact(self) -> None:
        """Merge all segments, so that no row is left that was replaced or has expired; one Spark job."""
        ...

    def release(self) -> None:
        """Free obsolete state; the current state is persisted in memory afterwards, even if no job has read it."""
        ...

    def restore(self, segments: Sequence[Segment], closed: int | None) -> None:
        """Replace the state with that of a snapshot with the same settings."""
        ...


@runtime_checkable
class TimedOperator(Protocol):
    """An operator that needs to know the time."""

    def begin(self, now: int, before: int) -> None:
        """Learn an epoch's processing time and the watermark by which its rows were judged, before :meth:`close`."""
        ...

    def is_due(self, now: int) -> bool:
        """Whether an epoch is due only because of the clock."""
        ...


class UpgradableOperator(Protocol):
    """An operator whose saved rows may come from a query that has since been changed."""

    def newest(self, rows: DataFrame, keys: Sequence[str], closed: int | None) -> DataFrame:
        """The rows of a snapshot that its operator would read, with the keys that they had."""
        ...

    def renewed(self, rows: DataFrame) -> DataFrame:
        """Such rows with today's keys and accumulators, as rows of a segment; those of one key are combined."""
        ...

    def measured(self, rows: DataFrame) -> SegmentStatistics | None:
        """The statistics of rows that are partitioned like a segment, None if there are none; one Spark job."""
        ...


class OneSided(ABC):
    """The base of operators with one feed, which are their own only side."""

    @property
    def sides(self) -> tuple[Self]:
        """The operator itself: it takes in one kind of rows."""
        return (self,)

    @abstractmethod
    def shuffled(self, rows: DataFrame) -> DataFrame:
        """Arriving or stored rows, partitioned like a segment."""

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """Arriving or stored rows, partitioned like a segment, and persisted in the executors once read."""
        return self.shuffled(rows).localCheckpoint(eager=False)


class KeyedOperator(OneSided):
    """The base of operators whose state is a keyed store: arriving rows wait for :meth:`Operator.close`.

    Args:
        store: The state, empty.
    """

    def __init__(self, store: KeyedStore) -> None:
        self._store = store
        self._pending: list[Segment] = []

    @property
    def segments(self) -> list[Segment]:
        """The stored segments, oldest first."""
        return self._store.segments

    @property
    def closed(self) -> int | None:
        """The highest watermark so far."""
        return self._store.closed

    @property
    def judged_by(self) -> int | None:
        """The watermark of the last :meth:`Operator.close`."""
        return self._store.closed

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """Arriving or stored rows with the hash of their keys, partitioned by it."""
        return self._store.shuffled(rows)

    def newest(self, rows: DataFrame, keys: Sequence[str], closed: int | None) -> DataFrame:
        """See :meth:`UpgradableOperator.newest`."""
        return self._store.newest(rows, keys, closed)

    def measured(self, rows: DataFrame) -> SegmentStatistics | None:
        """See :meth:`UpgradableOperator.measured`."""
        return self._store.measured(rows)

    def append(self, segment: Segment) -> None:
        """Add the rows of an epoch, which become state at the next :meth:`Operator.close`."""
        self._pending.append(segment)

    def early(self) -> DataFrame | None:
        """Always None: all results have been sent."""
        return None

    def live(self) -> DataFrame | None:
        """The stored rows of existing keys, None if nothing is stored."""
        return self._store.live()

    def skip_to(self, watermark: int) -> None:
        """Advance to ``watermark`` without closing anything; nothing may be open up to there."""
        self._store.advance(self._reached(watermark))

    def compact(self) -> None:
        """See :meth:`Operator.compact`."""
        self._store.compact()

    def release(self) -> None:
        """Free obsolete state."""
        self._store.release()

    def restore(self, segments: Sequence[Segment], closed: int | None) -> None:
        """Replace the state with that of a snapshot with the same settings."""
        self._taken()
        self._store.restore(segments, closed)

    def _reached(self, watermark: int) -> int:
        """The time that a watermark completes; it never goes back."""
        return watermark if self._store.closed is None else max(watermark, self._store.closed)

    def _taken(self) -> list[Segment]:
        """The rows that have arrived; nothing is pending afterwards, and the next :meth:`release` frees them."""
        taken, self._pending = self._pending, []
        self._store.discard(*taken)
        return taken
