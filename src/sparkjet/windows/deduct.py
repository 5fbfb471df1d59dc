"""The deduct strategy: a running value per key, plus the frames that enter, minus the frames that leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.constants import constant
from sparkjet.state.segments import hold, release
from sparkjet.windows.accumulators import ROW_COUNT, Accumulators
from sparkjet.windows.running import Running
from sparkjet.windows.spans import ClosingRange, windows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
        self._running: DataFrame | None = None
        self._backing: DataFrame | None = None
        self._garbage: list[DataFrame] = []

    def reset(self) -> None:
        """Discard the running value, because the frames or the window changed."""
        if self._backing is not None:
            self._garbage.append(self._backing)
        self._running = self._backing = None

    def close(self, frames: DataFrame, closing: ClosingRange) -> DataFrame:
        """Accumulators of every key's windows in ``closing``; ``frames`` has one or more rows per key and frame."""
        size, keys = self._window.size, self._keys
        known = self._running
        floor = closing.after if closing.after is None or known is not None else closing.after - size
        leave_floor = None if closing.after is None else closing.after - size
        values = self._accumulators.once.columns(*keys, *self._accumulators.fields)
        entering = values.select(frames.where(closing.within(floor, closing.upto)), F.expr("frame AS low"))
        left = frames.where(closing.within(leave_floor, closing.upto - size))
        leaving = values.select(self._accumulators.negated(left), F.expr(f"frame + {size}L AS low"))
        changes = entering.unionByName(leaving)
        if known is not None:
            changes = changes.unionByName(known)
        points = self._cumulative.of_rows(self._accumulators.group(changes, *keys, "low"), keys, "low")
        spans = (
            points.withColumn("next", self._cumulative.following(keys, "low"))
            .where(f"{ROW_COUNT} > 0")
            .withColumn("high", F.expr(f"coalesce(next - {self._window.frame}L, {constant(closing.upto, 'low')})"))
            .localCheckpoint(eager=False)
        )
        self.reset()
        self._backing = spans
        latest = spans.where("next IS NULL")
        self._running = values.select(latest, F.expr(f"{constant(closing.upto, 'low')} AS low"))
        return windows_of(spans, closing, keys, self._accumulators, unique=True)

    def release(self) -> None:
        """Free the memory of earlier epochs; the rows of the last :meth:`close` must not be read afterwards."""
        if self._backing is not None:
            hold(self._backing)
        for checkpointed in self._garbage:
            release(checkpointed)
        self._garbage.clear()
