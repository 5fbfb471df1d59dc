"""The protocol of window operators: from partial rows to final rows, with state as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.snapshots.record import SessionSettings, SlidingSettings
    from sparkjet.state.segments import Segment
    from sparkjet.windows.accumulators import Accumulators


class WindowOperator(Protocol):
    """One level of windowed aggregation with its state, on the driver.

    Once per epoch, the engine calls :meth:`append` with the epoch's partial rows (if there are any) and :meth:`close`
    with the new watermark, stores every segment that is not stored yet, and calls :meth:`release` once the rows from
    ``close`` are written. The state has advanced when ``close`` returns, whether or not the rows are consumed: after a
    failure the operator is restored.

    Attributes:
        keys: Names of the key columns.
        accumulators: The aggregates' fields.
    """

    keys: tuple[str, ...]
    accumulators: Accumulators

    @property
    def segments(self) -> list[Segment]:
        """The state, oldest first; all else is derived from it."""
        ...

    @property
    def closed(self) -> int | None:
        """The time up to which windows are closed, None before the first :meth:`close`; saved with the segments."""
        ...

    @property
    def path(self) -> str:
        """The strategy by which windows are computed, for progress and tests."""
        ...

    @property
    def sides(self) -> Sequence[WindowOperator]:
        """The operator itself: it takes in one kind of rows."""
        ...

    @property
    def settings(self) -> SlidingSettings | SessionSettings:
        """The window's numbers, as the record names them."""
        ...

    @property
    def open_until(self) -> int | None:
        """The minimum watermark that closes everything, None if nothing is open."""
        ...

    def frame_of(self, time: Column) -> Column:
        """The slice of event time whose rows of a key always share their windows, as a long."""
        ...

    def bounds(self, time: Column) -> Mapping[str, Column]:
        """Aggregate Columns that partial rows need in addition to the accumulators."""
        ...

    @property
    def judged_by(self) -> int | None:
        """The time below which a row is late, by the last :meth:`close`; None if no row is late."""
        ...

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """Partial rows, partitioned like a segment."""
        ...

    def partitioned(self, partials: DataFrame) -> DataFrame:
        """Partial or stored rows, partitioned like a segment, and persisted in the executors once read."""
        ...

    def append(self, segment: Segment) -> None:
        """Add the partial rows of an epoch; none of them may be late."""
        ...

    def close(self, watermark: int) -> DataFrame | None:
        """Final rows ``(keys…, start, end, results…)`` of the windows that a watermark closes; MIN closes none."""
        ...

    def early(self) -> DataFrame | None:
        """Early rows of all open windows, like those of :meth:`close`; None without any; changes no state."""
        ...

    def skip_to(self, watermark: int) -> None:
        """Advance to ``watermark`` without closing anything; no window may be open up to there."""
        ...

    def release(self) -> None:
        """Free obsolete state; the current state is persisted in memory afterwards, even if no job has read it."""
        ...

    def restore(self, segments: Sequence[Segment], closed: int | None) -> None:
        """Replace the state by that of a snapshot with the same settings."""
        ...
