"""Islands: rows of one key that overlap become a session, and a session that is too long becomes pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from sparkjet.time import MAX
from sparkjet.windows.accumulators import ROW_COUNT, Accumulators

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

KEY_HASH = "key_hash"
"""A long made of the keys, never null: what rows are partitioned and looked up by."""
VERSION = "version"
"""Counts how often the sessions of a key have been written; null in rows that have not been."""


def boxed(value: Column | int) -> Column:
    """A long to compare with another one: a literal that changes from epoch to epoch without changing the code.

    A plain long literal stands in the generated code, which Spark would compile, and Java warm up, for each watermark.
    """
    return F.struct((F.lit(value).cast("long") if isinstance(value, int) else value).alias("value"))


class Islands:
    """From rows ``(key_hash, keys…, version, start, end, fields…)`` to sessions, on the driver.

    Two rows overlap if each starts before the other ends; those that only touch are apart. Nothing is shuffled where
    the rows are partitioned by ``key_hash``.

    With a maximum the session that starts at S is cut at S + k × maximum. As long as S may still move to the left,
    rows stay as they are; once it is final they are combined by piece, and a piece starts at its cut: S is known from
    every piece. A row without events (``row_count`` 0) is the *remnant* of a closed piece: it holds no result, but
    goes on overlapping with what comes, and keeps the cuts in place.

    Args:
        keys: Names of the key columns.
        accumulators: The aggregates' fields.
        max_duration: Longest piece, None if sessions are not cut.
    """

    def __init__(self, keys: Sequence[str], accumulators: Accumulators, max_duration: int | None) -> None:
        self._keys = (KEY_HASH, *keys)
        self._accumulators = accumulators
        self._max_duration = max_duration

    def newest(self, rows: DataFrame) -> DataFrame:
        """Rows without those that a later version of their key has replaced.

        Added are ``newest``, the key's version, and ``fresh``, whether any row of the key has not been written yet.
        """
        whole = self._ordered().rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
        version = F.col(VERSION)
        ranked = rows.withColumns({"newest": F.max(version).over(whole), "fresh": F.max(version.isNull()).over(whole)})
        return ranked.where(version.isNull() | (version == F.col("newest")))

    def sessions(self, rows: DataFrame, watermark: int | None) -> DataFrame:
        """One row per session or piece: ``(key_hash, keys…, version, start, end, due, fresh, fields…)``.

        ``end`` is the last event plus the gap, ``due`` the end to report: at most one maximum after the start.

        Args:
            rows: The rows of some keys, all of theirs; the version of those not written yet is null.
            watermark: No later event is older; None to cut sessions by what is known of them so far.
        """
        until_here = self._ordered().rowsBetween(Window.unboundedPreceding, Window.currentRow)
        before = self._ordered().rowsBetween(Window.unboundedPreceding, -1)
        apart = F.coalesce(F.col("start") >= F.max("end").over(before), F.lit(True))
        rows = self.newest(rows).withColumn("apart", apart)
        rows = rows.withColumn("session", F.max(F.when(F.col("apart"), F.col("start"))).over(until_here))
        beside = {name: F.max(name) for name in ("end", "newest", "fresh")}
        if self._max_duration is None:
            grouped = self._accumulators.group(rows, *self._keys, "session", beside=beside)
            return self._shaped(grouped, F.col("session"), F.col("end"), F.col("fresh"))
        pieces = self._pieces(rows, self._max_duration, watermark)
        beside["due"] = F.max("due")
        grouped = self._accumulators.group(pieces, *self._keys, "piece", "remnant", beside=beside)
        # Other rows of the key may depend on a start that is leaving the state: the whole key is written again.
        return self._shaped(grouped, F.col("piece"), F.col("due"), F.lit(True))

    def _pieces(self, rows: DataFrame, longest: int, watermark: int | None) -> DataFrame:
        start, session, remnant = F.col("start"), F.col("session"), F.col(ROW_COUNT) == 0
        cut_before = start - F.pmod(start - session, F.lit(longest))
        cut_after = F.when(cut_before > MAX - longest, MAX).otherwise(cut_before + longest)
        final = F.lit(True) if watermark is None else boxed(session) <= boxed(watermark)
        last = F.max("end").over(Window.partitionBy(*self._keys, "session"))
        return rows.withColumns(
            {
                "piece": F.when(remnant, session).when(final, cut_before).otherwise(start),
                "due": F.when(remnant, F.col("end")).otherwise(F.least(cut_after, last)),
                "remnant": remnant,
            }
        )

    def _shaped(self, grouped: DataFrame, start: Column, due: Column, fresh: Column) -> DataFrame:
        version = (F.coalesce(F.col("newest"), F.lit(0)) + 1).alias(VERSION)
        bounds = (start.alias("start"), F.col("end"), due.alias("due"), fresh.alias("fresh"))
        return grouped.select(*self._keys, version, *bounds, *self._accumulators.fields)

    def _ordered(self) -> WindowSpec:
        return Window.partitionBy(*self._keys).orderBy("start")
