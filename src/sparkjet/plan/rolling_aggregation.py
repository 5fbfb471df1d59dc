"""Rolling aggregations: results that are never final, one for each key, or for each key and window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkjet.plan.aggregation import Aggregation
from sparkjet.stateful.rolling import RollingGroups
from sparkjet.windows import Window

if TYPE_CHECKING:
    from sparkjet.time import WindowGrid

_STEP = 1_000_000
"""Step of the watermark if only such aggregations read it: they do not use it."""


@dataclass(frozen=True, eq=False)
class RollingAggregation(Aggregation):
    """One ``groupBy(keys).agg(…)`` over all rows so far; with a window, which then never closes, one row per window.

    No row is late. The results of an epoch are those of the keys that had rows in it.
    """

    @property
    def grid(self) -> tuple[int, int]:
        """Step and offset; the watermark need not be finer."""
        return (_STEP, 0) if self._window is None else (self._window.ends.step, self._window.ends.offset)

    @property
    def waits(self) -> bool:
        """See :attr:`Stage.waits`."""
        return False

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The properties that must not change between two runs, because saved rows would no longer fit."""
        window = self._window
        kept = {} if window is None else {"window": [window.size, window.step, window.offset]}
        return {**super().fingerprint, "results": "rolling", **kept}

    def operator(self, partitions: int) -> RollingGroups:
        """A new operator without state."""
        return RollingGroups(self._window, self.key_names, self.accumulators, partitions)

    @property
    def _window(self) -> WindowGrid | None:
        return self.grouping.window.grid if isinstance(self.grouping.window, Window) else None
