"""The protocol of window operators: partial rows in, final rows out, state as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.snapshots.record import SessionSettings, SlidingSettings
    from sparkjet.windows.accumulators import Accumulators
    from sparkjet.windows.segments import Segment


class WindowOperator(Protocol):
    """One level of windows with its state, on the driver.

    Once per epoch and in this order the engine calls :meth:`append` with the epoch's partial rows (if there are any),
    :meth:`close` with the new watermark, stores every segment that is not stored yet, and :meth:`release` once the
    rows that ``close`` returned are written. The operator has moved on when ``close`` returns, whether or not the
    rows are consumed: on a failure it is restored.

    Attributes:
        keys: Names of the key columns.
        accumulators: The aggregates' fields.
        segments: The state, oldest first; what is not in a segment need not be restored.
        closed: What the last :meth:`close` closed up to, None before the first; saved with the segments.
    """

    keys: tuple[str, ...]
    accumulators: Accumulators
    segments: list[Segment]
    closed: int | None

    @property
    def path(self) -> str:
        """Which way windows are computed, for progress and tests."""
        ...

    @property
    def settings(self) -> SlidingSettings | SessionSettings:
        """The window's numbers, as the record names them."""
        ...

    @property
    def open_until(self) -> int | None:
        """The least watermark that leaves nothing open, None if nothing is."""
        ...

    def frame_of(self, time: Column) -> Column:
        """The slice of event time whose rows of one key are always in the same windows, as a long."""
        ...

    def bounds(self, time: Column) -> Mapping[str, Column]:
        """Aggregate Columns, beside those of the accumulators, that the partial rows of this operator have."""
        ...

    def is_late(self, time: str) -> Column:
        """Whether a row comes too late by the column of that name (microseconds), judged by the last :meth:`close`."""
        ...

    def partitioned(self, partials: DataFrame) -> DataFrame:
        """Partial rows or stored rows, partitioned as a segment must be, and held in the executors once read."""
        ...

    def append(self, segment: Segment) -> None:
        """Take the partial rows of an epoch; none of them may be late."""
        ...

    def close(self, watermark: int) -> DataFrame | None:
        """Final rows ``(keys…, start, end, results…)`` of what a watermark closes; MIN closes nothing."""
        ...

    def early(self) -> DataFrame | None:
        """Rows like those of :meth:`close` of all that is open, None if nothing is; changes nothing."""
        ...

    def skip_to(self, watermark: int) -> None:
        """Count everything up to ``watermark`` as closed; nothing may be open up to there."""
        ...

    def release(self) -> None:
        """Free state that nothing reads any more; the state itself is in memory afterwards, whoever has read it."""
        ...

    def restore(self, segments: Sequence[Segment], closed: int | None) -> None:
        """Replace the state by that of a snapshot taken with the same settings."""
        ...
