"""The deduct strategy: a running value per key, plus the frames that enter, minus the frames that leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.constants import constant
from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.catalyst.tables import Rows
from sparkjet.state.partitions import hold, release
from sparkjet.state.segments import overlapping
from sparkjet.windows.accumulators import ROW_COUNT, Accumulators
from sparkjet.windows.running import Running
from sparkjet.windows.spans import ClosingRange, Finish, windows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.catalyst.kept_plans import Constants
    from sparkjet.state.segments import Segment
    from sparkjet.time import WindowGrid


class DeductStrategy:
    """Windows by difference (Jet's combine and deduct on the running window).

    A slide costs as much as the frames that enter and leave, whatever the window's length. The running value is not
    part of a snapshot: after :meth:`reset` it is recomputed from the frames.
    """

    name = "deduct"

    def __init__(self, window: WindowGrid, keys: Sequence[str], accumulators: Accumulators) -> None:
        self._window = window
        self._keys = tuple(keys)
        self._accumulators = accumulators
        self._cumulative = Running(accumulators)
        self._kept = KeptPlans()
        self._spans: DataFrame | None = None
        self._reached: int | None = None
        self._garbage: list[DataFrame] = []

    def reset(self) -> None:
        """Discard the running value, because the frames or the window changed."""
        if self._spans is not None:
            self._garbage.append(self._spans)
        self._spans = self._reached = None

    def close(self, segments: Sequence[Segment], closing: ClosingRange, finish: Finish) -> DataFrame:
        """The finished rows of every key's windows in ``closing``; segments may have several rows per key and frame."""
        size, after, upto = self._window.size, closing.after, closing.upto
        known = [] if self._spans is None else [[Rows(self._spans, _latest)]]
        build = self._first if not known else self._next if closing.single else self._changed
        before = None if after is None else after - size
        # In a state of many frames, most are in neither, and looking at all of them would cost more than the slide.
        entering = overlapping(segments, after if known else before, upto)
        leaving = overlapping(segments, before, upto - size)
        spans = self._kept(
            "spans",
            build,
            inputs=[entering, leaving, *known],
            constants=(after, upto, self._reached),
            build=build,
            used=self._used,
            held=True,
        )
        self.reset()
        self._spans, self._reached = spans, upto
        return self._kept(
            "windows",
            inputs=[[Rows(spans)]],
            constants=(after, upto),
            build=lambda rows, *ends: finish(
                windows_of(rows, closing.moved(*ends), self._keys, self._accumulators, unique=True)
            ),
            used=lambda *ends: closing.moved(*ends).used,
        )

    def _used(self, after: int | None, upto: int, reached: int | None) -> Constants:
        size = self._window.size
        return after, None if after is None else after - size, upto, upto - size, reached

    def _first(
        self, entering: DataFrame, leaving: DataFrame, after: int | None, upto: int, reached: int | None
    ) -> DataFrame:
        """The spans without a running value."""
        del reached
        floor = None if after is None else after - self._window.size
        return self._points(self._changes(entering, leaving, floor, after, upto), upto)

    def _changed(
        self, entering: DataFrame, leaving: DataFrame, latest: DataFrame, after: int | None, upto: int, reached: int
    ) -> DataFrame:
        """The spans with the running value of each key."""
        values = self._accumulators.once.columns(*self._keys, *self._accumulators.fields)
        known = values.select(latest, F.expr(f"{constant(reached, 'low')} AS low"))
        return self._points(self._changes(entering, leaving, after, after, upto).unionByName(known), upto)

    def _next(
        self, entering: DataFrame, leaving: DataFrame, latest: DataFrame, after: int | None, upto: int, reached: int
    ) -> DataFrame:
        """The spans where only one window closes: changes add up in any order, without a running value for each."""
        del reached
        values = self._accumulators.once.columns(*self._keys, *self._accumulators.fields)
        changes = values.select(self._changes(entering, leaving, after, after, upto))
        changed = changes.unionByName(values.select(latest))
        only = F.expr(constant(upto, ROW_COUNT))
        points = self._accumulators.group(changed, *self._keys).where(f"{ROW_COUNT} > 0")
        return points.withColumns({"low": only, "next": F.lit(None).cast("long"), "high": only})

    def _changes(
        self, entering: DataFrame, leaving: DataFrame, floor: int | None, after: int | None, upto: int
    ) -> DataFrame:
        """The rows that enter and leave the running value, with the first window affected."""
        size = self._window.size
        leave_floor = None if after is None else after - size
        values = self._accumulators.once.columns(*self._keys, *self._accumulators.fields)
        added = values.select(entering.where(ClosingRange.within(floor, upto)), F.expr("frame AS low"))
        left = leaving.where(ClosingRange.within(leave_floor, upto - size))
        taken = values.select(self._accumulators.negated(left), F.expr(f"frame + {size}L AS low"))
        return added.unionByName(taken)

    def _points(self, changes: DataFrame, upto: int) -> DataFrame:
        keys = self._keys
        points = self._cumulative.of_rows(self._accumulators.group(changes, *keys, "low"), keys, "low")
        return (
            points.withColumn("next", self._cumulative.following(keys, "low"))
            .where(f"{ROW_COUNT} > 0")
            .withColumn("high", F.expr(f"coalesce(next - {self._window.frame}L, {constant(upto, 'low')})"))
        )

    def release(self) -> None:
        """Free the memory of earlier epochs; the rows of the last :meth:`close` must not be read afterwards."""
        if self._spans is not None:
            hold(self._spans)
        for checkpointed in self._garbage:
            release(checkpointed)
        self._garbage.clear()


def _latest(spans: DataFrame) -> DataFrame:
    """The last span of each key."""
    return spans.where("next IS NULL")
