"""Gaps and islands: rows of a key that overlap are one session; a session that is too long is cut into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from sparkjet.catalyst.columns import CompiledColumns, Once
from sparkjet.catalyst.constants import constant
from sparkjet.state import KEY_HASH
from sparkjet.time import MAX
from sparkjet.windows.accumulators import ROW_COUNT, Accumulators

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec


class GapsAndIslands:
    """From rows ``(key_hash, keys…, start, end, fresh, fields…)`` to sessions, on the driver.

    Two rows overlap if each starts before the other ends; rows that only touch do not. Nothing is shuffled if the rows
    are partitioned by ``key_hash``.

    With a maximum, a session that starts at S is cut at S + k × maximum. While S may still decrease, rows stay as they
    are; once it is final, they are combined by piece, and a piece starts at its cut, so that S follows from any piece.
    A row without events (``row_count`` 0) is the *remnant* of a closed piece: it has no result, but still overlaps with
    later rows and keeps the cuts in place.

    Args:
        keys: Names of the key columns.
        accumulators: The aggregates' fields.
        max_duration: Maximum length of a piece, None if sessions are not cut.
    """

    def __init__(self, keys: Sequence[str], accumulators: Accumulators, max_duration: int | None) -> None:
        self._keys = (KEY_HASH, *keys)
        self._accumulators = accumulators
        self._max_duration = max_duration
        self._once = Once()

    def sessions(self, rows: DataFrame, watermark: int | None) -> DataFrame:
        """One row per session or piece: ``(key_hash, keys…, start, end, due, fresh, fields…)``.

        ``end`` is the last event plus the gap, ``due`` the reported end: at most one maximum after the start.
        """
        rows = rows.withColumn("apart", self._once("apart", build=self._apart))
        rows = rows.withColumn("session", self._once("session", build=self._session))
        if self._max_duration is None:
            grouped = self._accumulators.group(rows, *self._keys, "session", beside=("end", "fresh"))
            return self._shaped(grouped, "session", "end")
        pieces = self._pieces(rows, self._max_duration, watermark)
        grouped = self._accumulators.group(pieces, *self._keys, "piece", "remnant", beside=("end", "due", "fresh"))
        return self._shaped(grouped, "piece", "due")

    def _apart(self) -> Column:
        """Whether a row starts after all earlier ones of its key have ended."""
        before = self._ordered().rowsBetween(Window.unboundedPreceding, -1)
        return F.coalesce(F.col("start") >= F.max("end").over(before), F.lit(True))

    def _session(self) -> Column:
        """Start of the session of a row."""
        until_here = self._ordered().rowsBetween(Window.unboundedPreceding, Window.currentRow)
        return F.max(F.when(F.col("apart"), F.col("start"))).over(until_here)

    def _ordered(self) -> WindowSpec:
        return Window.partitionBy(*self._keys).orderBy("start")

    def _pieces(self, rows: DataFrame, longest: int, watermark: int | None) -> DataFrame:
        start, session, remnant = F.col("start"), F.col("session"), F.col(ROW_COUNT) == 0
        cut_before = start - F.pmod(start - session, F.lit(longest))
        cut_after = F.when(cut_before > MAX - longest, MAX).otherwise(cut_before + longest)
        final = F.lit(True) if watermark is None else F.expr(f"session <= {constant(watermark, 'session')}")
        last = F.max("end").over(Window.partitionBy(*self._keys, "session"))
        return rows.withColumns(
            {
                "piece": F.when(remnant, session).when(final, cut_before).otherwise(start),
                "due": F.when(remnant, F.col("end")).otherwise(F.least(cut_after, last)),
                "remnant": remnant,
            }
        )

    def _shaped(self, grouped: DataFrame, start: str, due: str) -> DataFrame:
        def build() -> CompiledColumns:
            bounds = F.col(start).alias("start"), "end", F.col(due).alias("due"), "fresh"
            return CompiledColumns([*self._keys, *bounds, *self._accumulators.fields])

        return self._once("shaped", build=build).select(grouped)
