"""Session windows: the operator, with a log-structured store of each key's open sessions as its state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CompiledColumns
from sparkjet.catalyst.constants import constant
from sparkjet.snapshots.record import SessionSettings
from sparkjet.time import MAX, MIN
from sparkjet.windows.accumulators import ROW_COUNT, Accumulators
from sparkjet.windows.gaps_and_islands import KEY_HASH, VERSION, GapsAndIslands
from sparkjet.windows.segments import Segment, SegmentStatistics, mergeable, release
from sparkjet.windows.session_window import cover_end

if TYPE_CHECKING:
    from pyspark.sql import Column


class SessionWindows:
    """Merges mini-sessions into sessions; Jet's session operator with state that is cheap to update.

    A :class:`sparkjet.windows.operator.WindowOperator`. A partial row is ``(keys…, frame, start, end, row_count,
    fields…)``, with the :meth:`bounds` of the events of one frame. A session lasts from its first event to its last
    plus the gap, and closes when a watermark is above its end.

    The state is a few segments of rows ``(key_hash, keys…, version, start, end, due, row_count, fields…)``. An epoch
    writes one new segment, with all open sessions of the keys that had events, under a higher version, and leaves the
    others alone. A row is live if its key has no newer version and it is not due: closed rows need no mark, as the
    watermark identifies them. The epoch reads only the rows of the keys that had events or have something to close,
    by a hash join that neither shuffles nor sorts the state.

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
        self.segments: list[Segment] = []
        """Open sessions; ``low`` and ``high`` of the statistics are the minimum ``due`` and the maximum ``end``."""
        self.closed: int | None = None
        self._pending: list[Segment] = []
        self._garbage: list[Segment] = []
        self._islands = GapsAndIslands(keys, accumulators, max_duration)
        self._version = 0
        self._spans = CompiledColumns([KEY_HASH, *self.keys, "start", "end", "fresh", *accumulators.fields])
        self._columns = CompiledColumns([KEY_HASH, *self.keys, VERSION, "start", "end", "due", *accumulators.fields])
        self._final = CompiledColumns([*self.keys, "start", F.col("due").alias("end"), *accumulators.finish()])
        self._summary = CompiledColumns(
            F.expr(text)
            for text in (
                "count_if(kept)",
                "min(CASE WHEN NOT kept THEN NULL WHEN closing THEN `end` ELSE due END)",
                "max(CASE WHEN kept THEN `end` END)",
                f"count_if(closing AND {ROW_COUNT} > 0)",
            )
        )

    @property
    def settings(self) -> SessionSettings:
        """The gap and the maximum."""
        return SessionSettings(self.gap if isinstance(self.gap, int) else 0, self.max_duration)

    @property
    def open_until(self) -> int | None:
        """The minimum watermark that closes everything, None if nothing is open."""
        ends = [segment.statistics.high for segment in self.segments]
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

    def bounds(self, time: Column) -> dict[str, Column]:
        """Time of the first event, and of the last plus the gap."""
        if not isinstance(self.gap, int):
            return {"start": F.min(time), "end": F.max(cover_end(time, self.gap))}
        last = F.max(time)
        return {"start": F.min(time), "end": F.when(last > MAX - self.gap, MAX).otherwise(last + self.gap)}

    def is_late(self, time: str) -> Column:
        """Whether a time is below the watermark of the last :meth:`close`."""
        return F.lit(False) if self.closed is None else F.expr(f"{time} < {constant(self.closed, time)}")

    def partitioned(self, partials: DataFrame) -> DataFrame:
        """Partial or stored rows, hash-partitioned by the keys, and persisted in memory once read."""
        # Strings that are equal by a collation may differ in their bytes, and would get different hashes.
        plain = [key for key in self.keys if "collate" not in partials.schema[key].dataType.simpleString()]
        hashed = F.xxhash64(*plain) if plain else F.lit(0).cast("long")
        return partials.withColumn(KEY_HASH, hashed).repartition(self.partitions, KEY_HASH).localCheckpoint(eager=False)

    def append(self, segment: Segment) -> None:
        """Add the partial rows of an epoch, which become state at the next :meth:`close`."""
        self._pending.append(segment)

    def close(self, watermark: int) -> DataFrame | None:
        """Final rows of the sessions that end before ``watermark``, None without any."""
        reached = watermark if self.closed is None else max(watermark, self.closed)
        if not self._pending and all(segment.statistics.low >= reached for segment in self.segments):
            self._move_to(reached)
            return None
        found = self._touched(reached).localCheckpoint(eager=False)
        rows, low, high, closing = self._summary.agg(found).collect()[0]
        statistics = SegmentStatistics(rows, low, high) if rows else SegmentStatistics(0, reached, reached)
        segment = Segment(self._kept(found), statistics, None, found)
        self._garbage += self._pending
        self._pending = []
        (self.segments if rows else self._garbage).append(segment)
        self._move_to(reached)
        self._merge()
        return self._results(found.where("closing")) if closing else None

    def early(self) -> DataFrame | None:
        """Early rows of the open sessions or pieces, None without any; changes no state."""
        stored = [self._live(segment).withColumn("fresh", F.lit(False)) for segment in self.segments]
        rows = self._new()
        if stored:
            rows.append(self._spans.select(self._islands.newest(reduce(DataFrame.union, stored))))
        return self._results(self._islands.sessions(reduce(DataFrame.union, rows), None)) if rows else None

    def skip_to(self, watermark: int) -> None:
        """Advance to ``watermark`` without closing anything; no session may be open up to there."""
        self._move_to(watermark if self.closed is None else max(self.closed, watermark))

    def release(self) -> None:
        """Free obsolete state."""
        for segment in self._garbage:
            segment.release()
        self._garbage.clear()

    def restore(self, segments: Sequence[Segment], closed: int | None) -> None:
        """Replace the state by that of a snapshot with the same settings."""
        self._garbage += self._pending + self.segments
        self._pending = []
        self.segments = list(segments)
        self.closed = closed
        self._version = 0
        if self.segments:
            versions = reduce(DataFrame.union, [segment.partials.select(VERSION) for segment in self.segments])
            self._version = versions.agg(F.max(VERSION)).collect()[0][0]

    def _touched(self, watermark: int) -> DataFrame:
        """Sessions of the keys with pending or due rows, flagged ``closing`` and ``kept``."""
        closing = f"due < {constant(watermark, 'due')}"
        # Not as a semi-join: Spark would push it below the union, and join once per segment.
        hashes = [self._hashes(segment.partials, fresh=True) for segment in self._pending]
        hashes += [
            self._hashes(segment.partials.where(f"{closing} AND {self._is_live}"), fresh=False)
            for segment in self.segments
            if segment.statistics.low < watermark
        ]
        wanted = reduce(DataFrame.union, hashes).groupBy("wanted").agg(F.max("fresh").alias("fresh"))
        found = self._islands.sessions(reduce(DataFrame.union, self._new() + self._stored(wanted)), watermark)
        if self.max_duration is None:
            kept = f"fresh AND NOT {closing}"
        else:
            # Other rows of the key may depend on a start that leaves the state: the whole key is rewritten.
            kept = f"NOT {closing} OR `end` >= {constant(watermark, '`end`')}"
        self._version += 1
        version = F.expr(constant(self._version, "start")).alias(VERSION)
        marks = F.expr(closing).alias("closing"), F.expr(kept).alias("kept")
        return self._columns.select(found.withColumn(VERSION, version), *marks).where("closing OR kept")

    def _hashes(self, rows: DataFrame, *, fresh: bool) -> DataFrame:
        return rows.select(F.col(KEY_HASH).alias("wanted"), F.lit(fresh).alias("fresh"))

    def _stored(self, wanted: DataFrame) -> list[DataFrame]:
        """The live stored sessions of the wanted keys, as one DataFrame; none if nothing is stored."""
        if not self.segments:
            return []
        live = reduce(DataFrame.union, [self._live(segment) for segment in self.segments])
        found = live.join(wanted.hint("shuffle_hash"), F.col(KEY_HASH) == F.col("wanted"))
        return [self._spans.select(self._islands.newest(found))]

    def _live(self, segment: Segment) -> DataFrame:
        """The rows of a segment that are not closed; newer versions may have replaced them."""
        return self._columns.select(segment.partials.where(self._is_live))

    @property
    def _is_live(self) -> str:
        return "true" if self.closed is None else f"due >= {constant(self.closed, 'due')}"

    def _new(self) -> list[DataFrame]:
        return [self._spans.select(segment.partials.withColumn("fresh", F.lit(True))) for segment in self._pending]

    def _kept(self, found: DataFrame) -> DataFrame:
        """The rows that become state: open rows, and a remnant of each closed piece whose last gap is not over."""
        kept = found.where("kept")
        if self.max_duration is not None:
            closing = F.col("closing")
            remnant = {"start": F.col("due"), "due": F.col("end"), **self.accumulators.empty()}
            kept = kept.withColumns(
                {name: F.when(closing, new).otherwise(F.col(name)) for name, new in remnant.items()}
            )
        return self._columns.select(kept)

    def _results(self, sessions: DataFrame) -> DataFrame:
        return self._final.select(sessions.where(f"{ROW_COUNT} > 0"))

    def _move_to(self, watermark: int) -> None:
        self.closed = None if watermark == MIN else watermark
        self._garbage += [segment for segment in self.segments if segment.statistics.high < watermark]
        self.segments = [segment for segment in self.segments if segment.statistics.high >= watermark]

    def _merge(self) -> None:
        count = mergeable(self.segments)
        if not count:
            return
        merging = self.segments[-count:]
        united = reduce(DataFrame.union, [segment.partials for segment in merging])
        live = united.where(self._is_live)
        marks = {"closing": F.lit(False), "kept": F.lit(True)}
        # With the columns of an epoch's segment: a different schema would be compiled to different code.
        newest = self._columns.select(self._islands.newest(live))
        merged = newest.withColumns(marks).localCheckpoint(eager=False)
        rows, low, high = merged.agg(F.count(F.lit(1)), F.min("due"), F.max("end")).collect()[0]
        self._garbage += merging
        self.segments = self.segments[:-count]
        if rows:
            self.segments.append(Segment(self._kept(merged), SegmentStatistics(rows, low, high), None, merged))
        else:
            release(merged)
