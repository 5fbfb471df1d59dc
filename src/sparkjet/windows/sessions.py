"""Session windows: the operator, with a log-structured store of each key's open sessions as its state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from sparkjet.catalyst.columns import CompiledColumns, Once
from sparkjet.catalyst.constants import constant
from sparkjet.snapshots.record import NO_WINDOWS, SavedWindows, SessionSettings
from sparkjet.state import KEY_HASH, KeyedOperator, KeyedStore
from sparkjet.state.keyed_rows import Touched, is_due
from sparkjet.time import MAX, MIN
from sparkjet.windows.accumulators import ROW_COUNT, Accumulators
from sparkjet.windows.session_window import cover_end

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

    from sparkjet.state import Segment


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


class SessionWindows(KeyedOperator):
    """Merges mini-sessions into sessions; Jet's session operator with state that is cheap to update.

    A :class:`sparkjet.windows.operator.WindowOperator`. A partial row is ``(keys…, frame, start, end, row_count,
    fields…)``, with the :meth:`bounds` of the events of one frame. A session lasts from its first event to its last
    plus the gap, and closes when a watermark is above its end.

    The state is a :class:`sparkjet.state.KeyedStore` of rows ``(key_hash, keys…, version, start, end, row_count,
    fields…, due)``. An epoch writes all open sessions of the keys that had events, and reads only the rows of these and
    of the keys that have something to close. Closed rows need no mark, as the watermark identifies them.

    Args:
        gap: Gap of inactivity that ends a session, in microseconds, at least 1; or each row's own, as an interval. Rows
            that have none must not come here.
        max_duration: Sessions longer than this are cut into pieces; None if they are not.
        keys: Names of the key columns, at least one.
        accumulators: The aggregates' fields.
        partitions: Number of partitions of the state, hash-partitioned by the keys.
    """

    path = "sessions"

    def __init__(
        self,
        gap: int | Column,
        max_duration: int | None,
        keys: Sequence[str],
        accumulators: Accumulators,
        partitions: int,
    ) -> None:
        self.gap = gap
        self.max_duration = max_duration
        self.keys = tuple(keys)
        self.accumulators = accumulators
        self.partitions = partitions
        self._islands = GapsAndIslands(keys, accumulators, max_duration)
        super().__init__(
            KeyedStore(
                keys,
                ["start", "end", *accumulators.fields],
                partitions,
                # A piece is due at its cut, and what is left of it at the end of the session's last gap.
                last="end",
                marks={"closing": F.lit(False), "kept": F.lit(True)},
                kept=self._kept,
            )
        )
        self.whole_from: int | None = None
        """Sessions that start before it are withheld, as some of their rows may be gone; None if none is."""
        self.withheld = 0
        """How many sessions were, since the query's first start."""
        self.shed_windows = 0
        """How many sessions were closed early, since the query's first start."""
        self._summary = self._summed()
        self._spans = CompiledColumns([KEY_HASH, *self.keys, "start", "end", "fresh", *accumulators.fields])
        self._final = CompiledColumns([*self.keys, "start", F.col("due").alias("end"), *accumulators.finish()])

    @property
    def settings(self) -> SessionSettings:
        """The gap and the maximum."""
        return SessionSettings(self.gap if isinstance(self.gap, int) else 0, self.max_duration)

    @property
    def open_until(self) -> int | None:
        """The minimum watermark that closes everything, None if nothing is open."""
        ends = [] if self._store.highest is None else [self._store.highest]
        for segment in self._pending:
            row = segment.partials.agg(F.max("end")).head()
            ends += [] if row is None or row[0] is None else [row[0]]
        return min(max(ends) + 1, MAX) if ends else None

    def frame_of(self, time: Column) -> Column:
        """The slice whose events are always in one session: as long as the gap, or a single instant.

        Events of different gaps may be in different sessions however close they are. And a session with a maximum is
        cut relative to its first event, so that the exact times are needed until that is final.
        """
        if self.max_duration is not None or not isinstance(self.gap, int):
            return time
        # Below MIN the arithmetic would overflow and fail the query; all times within a gap of MIN share one slice.
        return F.when(time < MIN + self.gap, MIN).otherwise(time - F.pmod(time, F.lit(self.gap)))

    @property
    def leaves(self) -> str:
        """See :attr:`sparkjet.windows.WindowOperator.leaves`: of one that is cut, the last gap of a piece stays longer.

        And a row that later ones have joined may end before the piece is due.
        """
        last = "due" if self.max_duration is None else "greatest(due, `end`)"
        return f"least({last}, {MAX - 1}L) + 1L"

    def regular(self, watermark: int) -> int:
        """See :meth:`sparkjet.windows.WindowOperator.regular`."""
        return watermark

    def bounds(self, time: Column) -> dict[str, Column]:
        """Time of the first event, and of the last plus the gap."""
        if not isinstance(self.gap, int):
            return {"start": F.min(time), "end": F.max(cover_end(time, self.gap))}
        last = F.max(time)
        return {"start": F.min(time), "end": F.when(last > MAX - self.gap, MAX).otherwise(last + self.gap)}

    def renewed(self, rows: DataFrame) -> DataFrame:
        """See :meth:`sparkjet.state.UpgradableOperator.renewed`; with a maximum no two keys may have become one."""
        if self.max_duration is not None:
            return self._store.renewed(rows)
        fresh = self._spans.select(self._store.hashed(rows).withColumn("fresh", F.lit(False)))
        return self._store.renewed(self._islands.sessions(fresh, None))

    def restore(self, segments: Sequence[Segment], closed: int | None, windows: SavedWindows = NO_WINDOWS) -> None:
        """Replace the state by that of a snapshot with the same settings."""
        super().restore(segments, closed)
        self.whole_from, self.withheld, self.shed_windows = windows
        self._summary = self._summed()

    def _summed(self) -> CompiledColumns:
        """The counts of a job that closes sessions: those that close, and those of them that are withheld."""
        closing = f"closing AND {ROW_COUNT} > 0"
        counts = [f"count_if({closing})"]
        if self.whole_from is not None:
            counts.append(f"count_if({closing} AND start < {self.whole_from}L)")
        return self._store.summary(*counts, kept="kept", due="CASE WHEN closing THEN `end` ELSE due END")

    def close(self, watermark: int) -> DataFrame | None:
        """Final rows of the sessions that end before ``watermark``, None without any."""
        rows, _ = self._closed(watermark)
        return rows

    def shed(self, until: int) -> DataFrame | None:
        """See :meth:`sparkjet.windows.WindowOperator.shed`."""
        rows, count = self._closed(until)
        self.shed_windows += count
        return rows

    def _closed(self, watermark: int) -> tuple[DataFrame | None, int]:
        """The final rows, and how many they are."""
        reached = self._reached(watermark)
        if not self._pending and not self._store.has_due(reached):
            self._store.advance(reached)
            return None, 0
        pending = self._taken()
        whole = self._store.is_small(pending)
        touched = self._store.touched([each.rows for each in pending], reached, self._sessions, whole=whole)
        found, (closing, *withheld) = self._store.add(touched, self._summary, reached, whole=whole)
        self.withheld += sum(withheld)
        return (self._results(found.where("closing")), closing - sum(withheld)) if closing else (None, 0)

    def early(self) -> DataFrame | None:
        """Early rows of the open sessions or pieces, None without any; changes no state."""
        rows = [self._spans.select(each.partials.withColumn("fresh", F.lit(True))) for each in self._pending]
        stored = self._store.live()
        if stored is not None:
            rows.append(self._spans.select(stored.withColumn("fresh", F.lit(False))))
        return self._results(self._islands.sessions(reduce(DataFrame.union, rows), None)) if rows else None

    def _sessions(self, touched: Touched) -> DataFrame:
        """Sessions of the keys with pending or due rows, flagged ``closing`` and ``kept``."""
        closing = is_due(touched.watermark)
        rows = []
        if touched.arrived is not None:
            rows.append(self._spans.select(touched.arrived.withColumn("fresh", F.lit(True))))
        if touched.stored is not None:
            rows.append(self._spans.select(touched.stored))
        found = self._islands.sessions(reduce(DataFrame.union, rows), touched.watermark)
        if self.max_duration is None:
            kept = f"fresh AND NOT {closing}"
        else:
            # Other rows of the key may depend on a start that leaves the state: the whole key is rewritten.
            kept = f"NOT {closing} OR `end` >= {constant(touched.watermark, '`end`')}"
        marks = F.expr(closing).alias("closing"), F.expr(kept).alias("kept")
        return self._store.stamped(found, *marks, version=touched.version).where("closing OR kept")

    def _kept(self, found: DataFrame) -> DataFrame:
        """The rows that become state: open rows, and a remnant of each closed piece whose last gap is not over."""
        kept = found.where("kept")
        if self.max_duration is not None:
            closing = F.col("closing")
            remnant = {"start": F.col("due"), "due": F.col("end"), **self.accumulators.empty()}
            kept = kept.withColumns(
                {name: F.when(closing, new).otherwise(F.col(name)) for name, new in remnant.items()}
            )
        return self._store.columns.select(kept)

    def _results(self, sessions: DataFrame) -> DataFrame:
        found = sessions.where(f"{ROW_COUNT} > 0")
        return self._final.select(found if self.whole_from is None else found.where(F.col("start") >= self.whole_from))
