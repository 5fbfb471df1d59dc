"""Operators: the state of a stage, as the engine knows it, and what those have in common that keep rows by key."""

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
    """Where an operator takes rows in; an operator of one feed is its own only side.

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
    """The state of a stage, on the driver; what it holds are DataFrames.

    Once per epoch, the engine appends what has arrived to the :attr:`sides`, calls :meth:`close` with the new
    watermark, stores every segment that is not stored yet, and calls :meth:`release` once the rows from ``close`` are
    written. The state has advanced when ``close`` returns, whether or not the rows are consumed: after a failure the
    operator is restored.
    """

    @property
    def segments(self) -> Sequence[Segment]:
        """The state, oldest first; all else is derived from it."""
        ...

    @property
    def closed(self) -> int | None:
        """The time up to which results are final, None before the first :meth:`close`; saved with the segments."""
        ...

    @property
    def sides(self) -> Sequence[Side]:
        """One for each feed of the stage."""
        ...

    @property
    def settings(self) -> StageSettings:
        """Its numbers, as the record names them."""
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
        """From one watermark for each side to the result rows, None if there are none; MIN closes nothing."""
        ...

    def early(self) -> DataFrame | None:
        """Results so far of what is open, like those of :meth:`close`; None without any; changes no state."""
        ...

    def skip_to(self, watermark: int) -> None:
        """Advance to ``watermark`` without closing anything; nothing may be open up to there."""
        ...

    def release(self) -> None:
        """Free obsolete state; the current state is persisted in memory afterwards, even if no job has read it."""
        ...

    def restore(self, segments: Sequence[Segment], closed: int | None) -> None:
        """Replace the state by that of a snapshot with the same settings."""
        ...


@runtime_checkable
class TimedOperator(Protocol):
    """An operator that has to know the time."""

    def begin(self, now: int, before: int) -> None:
        """Learn an epoch's processing time and the watermark that its rows were judged by, before :meth:`close`."""
        ...

    def is_due(self, now: int) -> bool:
        """Whether an epoch is due because of the clock alone."""
        ...


class UpgradableOperator(Protocol):
    """An operator whose saved rows may be of a query that was changed since."""

    def newest(self, rows: DataFrame, keys: Sequence[str], closed: int | None) -> DataFrame:
        """The rows of a snapshot that its operator would read, by the keys that they had."""
        ...

    def renewed(self, rows: DataFrame) -> DataFrame:
        """Such rows with today's keys and accumulators as rows of a segment, those of one key combined."""
        ...

    def measured(self, rows: DataFrame) -> SegmentStatistics | None:
        """The statistics of rows that are partitioned like a segment, None if there are none; one Spark job."""
        ...


class OneSided(ABC):
    """The base of operators of one feed, which are their own only side."""

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
    """The base of operators whose state is a keyed store: what arrives waits for :meth:`Operator.close`.

    Args:
        store: The state, empty.
    """

    def __init__(self, store: KeyedStore) -> None:
        self._store = store
        self._pending: list[Segment] = []

    @property
    def segments(self) -> list[Segment]:
        """What is stored, oldest first."""
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
        """None: what there is to say has been sent."""
        return None

    def live(self) -> DataFrame | None:
        """The rows that are stored of the keys that there are, None if nothing is stored."""
        return self._store.live()

    def skip_to(self, watermark: int) -> None:
        """Advance to ``watermark`` without closing anything; nothing may be open up to there."""
        self._store.advance(self._reached(watermark))

    def release(self) -> None:
        """Free obsolete state."""
        self._store.release()

    def restore(self, segments: Sequence[Segment], closed: int | None) -> None:
        """Replace the state by that of a snapshot with the same settings."""
        self._taken()
        self._store.restore(segments, closed)

    def _reached(self, watermark: int) -> int:
        """The time that is over with a watermark; it never goes back."""
        return watermark if self._store.closed is None else max(watermark, self._store.closed)

    def _taken(self) -> list[Segment]:
        """What has arrived; nothing is pending afterwards, and the next :meth:`release` frees it."""
        taken, self._pending = self._pending, []
        self._store.discard(*taken)
        return taken
