"""Spans: rows whose accumulator is part of every window that ends from ``low`` to ``high``.

All strategies of sliding windows produce spans. A span costs the same whether one window or a thousand end in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.constants import constant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.catalyst.kept_plans import Constants
    from sparkjet.time import WindowGrid
    from sparkjet.windows.accumulators import Accumulators

Finish = Callable[["DataFrame"], "DataFrame"]
"""Turns the accumulators of windows into result rows."""


@dataclass(frozen=True)
class ClosingRange:
    """Ends of the windows that close together: above ``after`` (None: from the first frame on), up to ``upto``."""

    after: int | None
    upto: int
    window: WindowGrid

    @staticmethod
    def within(floor: int | None, upto: int) -> str:
        """SQL for ``floor < frame <= upto``; None for no floor."""
        below = f"frame <= {constant(upto, 'frame')}"
        return below if floor is None else f"{below} AND frame > {constant(floor, 'frame')}"

    @property
    def single(self) -> bool:
        """Whether only one window closes, so that all changes fall on its end."""
        return self.after is not None and self.upto - self.after == self.window.step == self.window.frame

    def moved(self, after: int | None, upto: int) -> ClosingRange:
        """Another range of the same window."""
        return ClosingRange(after, upto, self.window)

    @property
    def used(self) -> Constants:
        """The constants that :attr:`ends` uses."""
        return None if self.after is None else self.after + self.window.step, self.upto

    @property
    def ends(self) -> str:
        """SQL for the array of a span's window ends within this range, null if there are none."""
        step, ends = self.window.step, self.window.ends
        # If a step has several frames, a span may begin between two ends.
        first = "low" if self.window.frame == step else f"(low + pmod({ends.offset}L - low, {step}L))"
        low = first if self.after is None else f"greatest({first}, {constant(self.after + step, 'low')})"
        high = f"least(high, {constant(self.upto, 'high')})"
        return f"CASE WHEN {low} <= {high} THEN sequence({low}, {high}, {step}L) END"


def windows_of(
    spans: DataFrame, closing: ClosingRange, keys: Sequence[str], accumulators: Accumulators, *, unique: bool
) -> DataFrame:
    """One row per key and window end, with the accumulators of that window."""
    values = accumulators.once.columns(*keys, *accumulators.fields)
    exploded = values.select(spans, F.expr(f"explode({closing.ends}) AS `end`"))
    return exploded if unique else accumulators.group(exploded, *keys, "end")
