"""The protocol of window operators: from partial rows to final rows, with state as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from sparkjet.state import Operator, Side

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.snapshots.record import SessionSettings, SlidingSettings
    from sparkjet.windows.accumulators import Accumulators


class WindowOperator(Operator, Side, Protocol):
    """One level of windowed aggregation with its state, on the driver; it is its own only side.

    It takes in partial rows, and returns final ones: ``(keys…, start, end, results…)``.

    Attributes:
        keys: Names of the key columns.
        accumulators: The aggregates' fields.
    """

    keys: tuple[str, ...]
    accumulators: Accumulators

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
        """The window's settings, as named in the record."""
        ...

    def frame_of(self, time: Column) -> Column:
        """The slice of event time, as a long, within which the rows of a key always share their windows."""
        ...

    shed_windows: int
    """How many windows were closed early, since the query's first start."""

    @property
    def leaves(self) -> str:
        """SQL over a stored row: the lowest watermark by which it leaves the state."""
        ...

    def regular(self, watermark: int) -> int:
        """The time below which rows would be late if nothing had been shed, MIN without a watermark."""
        ...

    def shed(self, until: int) -> DataFrame | None:
        """Close early what a watermark of ``until`` would close; later rows for it are late."""
        ...

    def bounds(self, time: Column) -> Mapping[str, Column]:
        """Aggregate Columns that partial rows need in addition to the accumulators."""
        ...
