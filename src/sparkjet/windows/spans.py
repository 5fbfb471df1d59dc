"""Spans: rows saying that an accumulator is part of every window that ends from ``low`` to ``high``.

All paths of the sliding window end in spans. A span costs the same whether one window or a thousand end in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.windows.constants import constant

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.windows.accumulators import Accumulators


@dataclass(frozen=True)
class ClosingRange:
    """Ends of the windows that close in one step: above ``after`` (None: from the first frame on) up to ``upto``."""

    after: int | None
    upto: int
    step: int

    def within(self, frame: Column, floor: int | None, upto: int) -> Column:
        """Condition ``floor < frame <= upto``; None is no floor."""
        below = frame <= constant(upto, frame)
        return below if floor is None else below & (frame > constant(floor, frame))

    def ends(self) -> Column:
        """Array of the window ends of a span inside this range, null where there are none."""
        low, high = F.col("low"), F.col("high")
        if self.after is not None:
            low = F.greatest(low, constant(self.after + self.step, low))
        high = F.least(high, constant(self.upto, high))
        return F.when(low <= high, F.sequence(low, high, F.lit(self.step)))


def windows_of(
    spans: DataFrame, closing: ClosingRange, keys: Sequence[str], accumulators: Accumulators, *, unique: bool
) -> DataFrame:
    """One row per key and window end with the accumulators of that window.

    Args:
        spans: ``(keys…, low, high, fields…)``; low and high lie on the grid of the steps.
        closing: The windows wanted.
        keys: Names of the key columns.
        accumulators: The fields.
        unique: Whether no two spans of a key overlap, so that nothing is left to combine.
    """
    exploded = spans.select(*keys, F.explode(closing.ends()).alias("end"), *accumulators.fields)
    return exploded if unique else accumulators.group(exploded, *keys, "end")
