"""Rolling aggregates: the operator, with the accumulators of each key in a keyed store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CompiledColumns
from sparkjet.snapshots.record import RollingSettings
from sparkjet.state import KEY_HASH, NEVER, KeyedOperator, KeyedStore
from sparkjet.state.keyed_rows import FRESH, Touched
from sparkjet.time import MIN

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.time import WindowGrid
    from sparkjet.windows import Accumulators

_START = "start"
"""Start of the window of a row: another key of the store."""


class RollingGroups(KeyedOperator):
    """Combines all rows of each key; Jet's rolling aggregate, whose results are those of the keys that have changed.

    An operator of one side, which it is itself: it takes in partial rows ``(keys…, frame, row_count, fields…)``. The
    state is a :class:`sparkjet.state.KeyedStore` of rows ``(key_hash, keys…, version, row_count, fields…, due)``. An
    epoch reads and writes the rows of the keys that it touches, or all if it touches many, as one Spark job; the rows
    that it stores are the ones that its results are computed from.

    With windows, a row of the state is of a key and a window. Partial rows are of frames, as in
    :class:`sparkjet.windows.SlidingWindows`, so that an event is aggregated once, however many windows it is in.

    Args:
        window: Length, step and offset in microseconds; None without windows.
        keys: Names of the key columns, at least one.
        accumulators: The aggregates' fields.
        partitions: Number of partitions of the state, hash-partitioned by the keys.
    """

    open_until: int | None = None
    """The end of the input closes nothing: what is there has been sent."""
    settings = RollingSettings()

    def __init__(
        self, window: WindowGrid | None, keys: Sequence[str], accumulators: Accumulators, partitions: int
    ) -> None:
        self.window = window
        self.keys = tuple(keys)
        self.accumulators = accumulators
        stored = [*keys, _START] if window is not None else [*keys]
        # Rows that are written with those that have changed, as the whole store is, are not: they have no results.
        super().__init__(KeyedStore(stored, accumulators.fields, partitions, marks={FRESH: F.lit(False)}))
        self._summary = self._store.summary()
        self._columns = CompiledColumns([KEY_HASH, *stored, *accumulators.fields])
        self._never = F.lit(NEVER)
        self._fresh = [F.lit(fresh).alias(FRESH) for fresh in (True, False)]
        bounds: list[Column | str] = []
        if window is not None:
            starts = F.expr(f"explode({_starts(window)})").alias(_START)
            self._windows = CompiledColumns([*keys, starts, *accumulators.fields])
            bounds = [_START, (F.col(_START) + window.size).alias("end")]
        self._final = CompiledColumns([*keys, *bounds, *accumulators.finish()])

    def frame_of(self, time: Column) -> Column:
        """The slice of event time whose rows are in the same windows, by its exclusive end; one for all without."""
        if self.window is None:
            return F.lit(0).cast("long")
        return time - F.pmod(time - self.window.offset, F.lit(self.window.frame)) + self.window.frame

    def bounds(self, time: Column) -> dict[str, Column]:  # noqa: ARG002 - as windows have it
        """Empty: the frame is enough."""
        return {}

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """Partial rows, partitioned by the keys; by windows they are partitioned when these are known."""
        return self._store.shuffled(rows) if self.window is None else rows

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """Stored rows, hash-partitioned by the keys, and persisted in memory once read."""
        return self._store.partitioned(rows)

    def newest(self, rows: DataFrame, keys: Sequence[str], closed: int | None) -> DataFrame:
        """See :meth:`sparkjet.state.UpgradableOperator.newest`."""
        return super().newest(rows, keys if self.window is None else [*keys, _START], closed)

    def renewed(self, rows: DataFrame) -> DataFrame:
        """See :meth:`sparkjet.state.UpgradableOperator.renewed`."""
        grouped = self.accumulators.group(rows, *self._store.keys)
        return self._store.renewed(grouped.withColumn("due", self._never))

    def close(self, watermark: int) -> DataFrame | None:  # noqa: ARG002 - the operator's protocol
        """Rows of the keys with new rows, None without any; the watermark has no meaning here.

        They are ``(keys…, results…)``, with windows ``(keys…, start, end, results…)``.
        """
        if not self._pending:
            return None
        pending = self._taken()
        arrived = [each.rows if self.window is None else each.through(self._by_window) for each in pending]
        whole = self._store.is_small(pending)
        touched = self._store.touched(arrived, MIN, self._all if whole else self._combined, whole=whole)
        found, _ = self._store.add(touched, self._summary, MIN, whole=whole)
        return self._final.select(found.where(FRESH))

    def early(self) -> DataFrame | None:
        """Rows of all keys, like those of :meth:`close`; None without any."""
        stored = self._store.live()
        return None if stored is None else self._final.select(stored)

    def _reached(self, watermark: int) -> int:  # noqa: ARG002 - as other operators have it
        """The least time there is: nothing is ever closed."""
        return MIN

    def _combined(self, touched: Touched) -> DataFrame:
        """The keys with pending rows, as they are with these."""
        # Keys that have not changed share a hash with those that have: (null, 1) and (1, null), or all that are
        # compared by a collation.
        return self._all(touched).where(FRESH)

    def _all(self, touched: Touched) -> DataFrame:
        """The keys with rows, marked whether any are pending."""
        rows = [
            self._columns.select(each, fresh)
            for each, fresh in zip((touched.arrived, touched.stored), self._fresh, strict=True)
            if each is not None
        ]
        every = self.accumulators.group(reduce(DataFrame.union, rows), KEY_HASH, *self._store.keys, beside=(FRESH,))
        return self._store.stamped(every.withColumn("due", self._never), F.col(FRESH), version=touched.version)

    def _by_window(self, partials: DataFrame) -> DataFrame:
        """Partial rows by the keys of the store, partitioned like it."""
        return self._store.shuffled(self._windows.select(partials))


def _starts(window: WindowGrid) -> str:
    """SQL of the starts of the windows that a frame is part of."""
    if window.tumbling:
        return f"array(frame - {window.size}L)"
    first, last = f"frame - {window.size}L", f"frame - {window.frame}L"
    low = f"{first} + pmod({window.offset}L - ({first}), {window.step}L)"
    high = f"{last} - pmod({last} - {window.offset}L, {window.step}L)"
    return f"sequence({low}, {high}, {window.step}L)"
