"""The operator of a user's function: each key's state in a keyed store, and an epoch's call of the function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType
from pyspark.sql.window import Window

from sparkjet.catalyst.columns import CompiledColumns, quoted
from sparkjet.catalyst.constants import constant
from sparkjet.snapshots.record import FunctionSettings
from sparkjet.state import DELETED, KEY_HASH, NEVER, KeyedStore, Segment, SegmentStatistics
from sparkjet.stateful.functions.user_function import TIMERS, TimeDomain
from sparkjet.time import MAX, MIN

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from sparkjet.stateful.functions.user_function import UserFunction

_STORED, _INITIAL, _INPUT = 0, 1, 2
_NO_TIME = MIN + 1
"""Stands in the record for no watermark, after the first epoch: initial state is not used again."""


class FunctionOperator:
    """Calls a user's function for the keys that have rows and for those that are due, and keeps their state.

    Rows come as ``(keys…, row)``. A stored row is ``(key_hash, keys…, version, latest, state…, due, deleted)``: one for
    each key that has state. The time of ``due`` is the watermark, or the clock; a key without timers never is.

    Args:
        function: The user's function.
        keys: Schema of the key columns.
        rows: Schema of the rows.
        session: The query's.
        partitions: Number of partitions of the state, hash-partitioned by the keys.
        initial: What the function gets in the first epoch as initial state, ``(keys…, row)``; None without any.
    """

    def __init__(
        self,
        function: UserFunction,
        keys: StructType,
        rows: StructType,
        session: SparkSession,
        partitions: int,
        initial: DataFrame | None = None,
    ) -> None:
        self._function = function
        self._initial = initial
        self._started = False
        payload = ["latest", *function.payload.names]
        self._store = KeyedStore(
            keys.names,
            payload,
            partitions,
            deletable=True,
            marks={"emits": F.lit(False)},
            kept=lambda found: self._store.columns.select(found.where("NOT emits")),
        )
        self._pending: list[Segment] = []
        self._now = 0
        self._before = MIN
        self._next: int | None = None
        self._step = function.step(session, rows, keys)
        stored = F.struct("due", *map(quoted, payload))
        due = [StructField(name, LongType()) for name in ("due", "latest")]
        nothing = {
            "stored": F.lit(None).cast(StructType([*due, *function.payload.fields])).alias("stored"),
            "input": F.lit(None).cast(rows).alias("input"),
        }
        if initial is not None:
            nothing["initial"] = F.lit(None).cast(initial.schema["row"].dataType).alias("initial")
        named = [KEY_HASH, *keys.names]

        def of_kind(kind: int, name: str, column: Column) -> CompiledColumns:
            columns = nothing | {name: column.alias(name)}
            return CompiledColumns([*named, F.lit(kind).alias("kind"), *columns.values()])

        self._arrived = of_kind(_INPUT, "input", F.col("row"))
        self._first = None if initial is None else of_kind(_INITIAL, "initial", F.col("row"))
        self._found = of_kind(_STORED, "stored", stored)
        # A window function, not only a sort: it makes sure that all rows of a key are in one partition.
        position = F.row_number().over(Window.partitionBy(*named).orderBy("kind")).alias("position")
        self._ordered = CompiledColumns([*named, "kind", *nothing, position])
        kept = [F.col(f"kept.{quoted(name)}").alias(name) for name in (*keys.names, "due", *payload)]
        emits = F.col("emitted").isNotNull().alias("emits")
        self._flat = CompiledColumns([KEY_HASH, *kept, F.col("kept.gone").alias(DELETED), emits])
        self._summary = self._store.summary("count_if(emits)", kept="NOT emits")
        last = F.col("due")
        if TIMERS in function.payload.names:
            # A key is due at the first of its timers, and not done before the last.
            last = F.greatest(last, F.least(F.array_max(TIMERS), F.lit(MAX // 1_000)) * 1_000 - 1)
        self._last = F.max(F.when(F.col("due") < NEVER, last))

    @property
    def segments(self) -> list[Segment]:
        """The state, oldest first."""
        return self._store.segments

    @property
    def closed(self) -> int | None:
        """The watermark or clock reading that keys have been called for; None before the first epoch."""
        return _NO_TIME if self._store.closed is None and self._started else self._store.closed

    @property
    def sides(self) -> Sequence[FunctionOperator]:
        """Itself."""
        return (self,)

    @property
    def settings(self) -> FunctionSettings:
        """The time that its timers are in."""
        return FunctionSettings(self._function.domain.value)

    @property
    def open_until(self) -> int | None:
        """The watermark at which all event-time timers of now have fired, None if there are none."""
        live = self._store.live() if self._function.domain is TimeDomain.WATERMARK else None
        last = None if live is None else live.agg(self._last).collect()[0][0]
        return None if last is None else min(last + 1, MAX)

    def begin(self, now: int, before: int) -> None:
        """Learn the epoch's processing time and the watermark that its rows were judged by."""
        self._now, self._before = now, before

    @property
    def judged_by(self) -> int | None:
        """The watermark of the last :meth:`close`, where timers are in event time."""
        return self._store.closed if self._function.domain is TimeDomain.WATERMARK else None

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """New rows, hash-partitioned by the keys."""
        return self._store.shuffled(rows)

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """New or stored rows, hash-partitioned by the keys, and persisted in memory once read."""
        return self._store.partitioned(rows)

    def append(self, segment: Segment) -> None:
        """Add the rows of an epoch, with which the function is called at the next :meth:`close`."""
        self._pending.append(segment)

    def close(self, watermark: int) -> DataFrame | None:
        """What the function returns for the rows, and for the timers that have expired; None if it was not called."""
        reached = self._reached(watermark)
        first = None if self._started or self._initial is None else self._store.partitioned(self._initial)
        self._started = True
        if not self._pending and first is None and not self._store.has_due(reached):
            self._store.advance(reached)
            return None
        arrived = [segment.partials for segment in self._pending]
        rows = [self._arrived.select(each) for each in arrived]
        if first is not None and self._first is not None:
            rows.append(self._first.select(first))
            self._store.discard(Segment(first, SegmentStatistics(0, reached, reached)))
        stored = self._store.lookup(self._store.wanted(arrived, reached)) if self.segments else None
        if stored is not None:
            rows.append(self._found.select(stored))
        times = {"now": self._now, "before": self._before, "watermark": watermark, "reached": reached}
        if self._function.domain is TimeDomain.WATERMARK:
            # At the end of the input, a stage without timers is given none.
            times["watermark"] = reached
        ordered = self._ordered.select(
            reduce(DataFrame.union, rows),
            *(F.expr(constant(each, KEY_HASH)).alias(name) for name, each in times.items()),
        )
        found = self._step(ordered).repartition(self._store.partitions, KEY_HASH).localCheckpoint(eager=False)
        stamped = self._store.stamped(self._flat.select(found), F.col("emits"))
        _, (emitted,) = self._store.put(stamped, self._summary, reached)
        self._next = None
        self._store.discard(*self._pending, Segment(found, SegmentStatistics(0, reached, reached)))
        self._pending = []
        return found.where("emitted IS NOT NULL").select("emitted.*") if emitted else None

    def is_due(self, now: int) -> bool:
        """Whether a timer in processing time has expired, or state has outlived its TTL."""
        if self._function.domain is not TimeDomain.CLOCK or not self._store.has_due(now):
            return False
        if self._next is None:
            # Lowest times of segments are also of rows that are dead or replaced; one job says when to look next.
            alive = [
                segment.partials.where(F.col("due") >= self._alive_from).select("due") for segment in self.segments
            ]
            lowest = reduce(DataFrame.union, alive).agg(F.min("due")).collect()[0][0]
            self._next = NEVER if lowest is None else lowest
        return self._next < now

    def early(self) -> None:
        """None: the function has returned all there is."""
        return

    def skip_to(self, watermark: int) -> None:
        """Advance to ``watermark``, but not past a timer that another one has set meanwhile."""
        if self._function.domain is TimeDomain.WATERMARK:
            lowest = min((segment.statistics.low for segment in self.segments), default=MAX)
            self._store.advance(self._reached(min(watermark, lowest)))

    def release(self) -> None:
        """Free obsolete state."""
        self._store.release()

    def restore(self, segments: Sequence[Segment], closed: int | None) -> None:
        """Replace the state by that of a snapshot."""
        self._store.discard(*self._pending)
        self._pending = []
        self._next = None
        self._started = closed is not None
        self._store.restore(segments, None if closed == _NO_TIME else closed)

    @property
    def _alive_from(self) -> int:
        return MIN if self._store.closed is None else self._store.closed

    def _reached(self, watermark: int) -> int:
        """The time that makes keys due; it never goes back, though the clock may."""
        domain = self._function.domain
        reached = {TimeDomain.WATERMARK: watermark, TimeDomain.CLOCK: self._now, TimeDomain.NONE: MIN}[domain]
        return max(reached, self._alive_from)
