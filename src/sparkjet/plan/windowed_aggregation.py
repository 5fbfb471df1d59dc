"""Windowed aggregations: each is one level of windows, whose rows are final."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sparkjet.catalyst.expressions import label
from sparkjet.plan.aggregation import Aggregation
from sparkjet.plan.rolling_aggregation import RollingAggregation
from sparkjet.windows import SessionWindow, SessionWindows, SlidingWindows

if TYPE_CHECKING:
    from sparkjet.windows import Window, WindowOperator

_SESSION_GRAIN = 100
_USUAL_GAP = 1_000_000
"""Stands in for gaps of which the driver knows nothing."""


@dataclass(frozen=True, eq=False)
class WindowedAggregation(Aggregation):
    """One ``groupBy(window, keys).agg(…)``; each window is emitted once, when it closes.

    Attributes:
        by_key: The same aggregates with the window as a key, if it is a column of the rows.
    """

    by_key: RollingAggregation | None = None

    @property
    def window(self) -> Window | SessionWindow:
        """The window."""
        assert self.grouping.window is not None  # noqa: S101 - else it is a rolling aggregation
        return self.grouping.window

    @cached_property
    def rolling(self) -> RollingAggregation:
        """The same windows, kept forever; always the same object, as several outputs may read it."""
        return self.by_key or RollingAggregation(self.feed, self.grouping, self.aggregates, self.columns)

    @property
    def delay(self) -> int:
        """See :attr:`Stage.delay`.

        The time of a result is its end minus one. A session closes strictly after its end, so one that ends at the
        watermark is still to come, and would be late for a watermark that is not one unit further behind.
        """
        return 1 if isinstance(self.window, SessionWindow) else 0

    @property
    def grid(self) -> tuple[int, int]:
        """Step and offset than which the watermark need not be finer; for a session a hundredth of a gap."""
        if isinstance(self.window, SessionWindow):
            gap = self.window.gap if isinstance(self.window.gap, int) else _USUAL_GAP
            return max(1, gap // _SESSION_GRAIN), 0
        return self.window.grid.ends.step, self.window.grid.ends.offset

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The properties that must not change between two runs, because saved partial rows would no longer fit."""
        fixed = super().fingerprint
        if isinstance(self.window, SessionWindow):
            gap = self.window.gap if isinstance(self.window.gap, int) else label(self.window.gap)
            fixed["session window"] = [gap, self.window.max_duration]
        return fixed

    def operator(self, partitions: int) -> WindowOperator:
        """A new window operator without state."""
        if isinstance(self.window, SessionWindow):
            gap, longest = self.window.gap, self.window.max_duration
            return SessionWindows(gap, longest, self.key_names, self.accumulators, partitions)
        return SlidingWindows(self.window.grid, self.key_names, self.accumulators, partitions)
