"""The operator of a user's function: each key's state in a keyed store, and one call of the function per epoch."""

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
from sparkjet.catalyst.tables import Rows
from sparkjet.snapshots.record import FunctionSettings
from sparkjet.state import DELETED, KEY_HASH, NEVER, KeyedOperator, KeyedStore, Segment, SegmentStatistics
from sparkjet.state.keyed_rows import Touched
from sparkjet.stateful.functions.user_function import TIMERS, TimeDomain
from sparkjet.time import MAX, MIN

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from sparkjet.stateful.functions.user_function import UserFunction

_STORED, _INITIAL, _INPUT = 0, 1, 2
_NO_TIME = MIN + 1
"""Stands in the record for no watermark, after the first epoch: initial state is not used again."""


class FunctionOperator(KeyedOperator):
    """Calls a user's function for the keys that have rows and for those that are due, and keeps their state.

    Rows come as ``(keys…, row)``. A stored row is ``(key_hash, keys…, version, latest, state…, due, deleted)``, one per
    key with state. ``due`` is compared to the watermark, or the clock; a key without timers is never due.

    Args:
        function: The user's function.
        keys: Schema of the key columns.
        rows: Schema of the rows.
        session: The query's session.
        partitions: Number of partitions of the state, hash-partitioned by the keys.
        initial: The initial state that the function gets in the first epoch, ``(keys…, row)``; None without any.
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
        super().__init__(
            KeyedStore(
                keys.names,
                payload,
                partitions,
                deletable=True,
                marks={"emits": F.lit(False)},
                kept=lambda found: self._store.columns.select(found.where("NOT emits")),
            )
        )
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
        # A window function, not just a sort: it ensures that all rows of a key are in one partition.
        position = F.row_number().over(Window.partitionBy(*named).orderBy("kind")).alias("position")
        self._ordered = CompiledColumns([*named, "kind", *nothing, position])
        kept = [F.col(f"kept.{quoted(name)}").alias(name) for name in (*keys.names, "due", *payload)]
        emits = F.col("emitted").isNotNull().alias("emits")
        self._flat = CompiledColumns([KEY_HASH, *kept, F.col("kept.gone").alias(DELETED), emits])
        self._summary = self._store.summary("count_if(emits)", kept="NOT emits")
        last = F.col("due")
        if TIMERS in function.payload.names:
            # A key is due at its first timer, and not done before its last.
            last = F.greatest(last, F.least(F.array_max(TIMERS), F.lit(MAX // 1_000)) * 1_000 - 1)
        self._last = F.max(F.when(F.col("due") < NEVER, last))

    @property
    def closed(self) -> int | None:
        """The watermark or clock reading for which keys have been called; None before the first epoch."""
        return _NO_TIME if self._store.closed is None and self._started else self._store.closed

    @property
    def settings(self) -> FunctionSettings:
        """The kind of time that its timers use."""
        return FunctionSettings(self._function.domain.value)

    @property
    def open_until(self) -> int | None:
        """The watermark at which all current event-time timers will have fired, None if there are none."""
        live = self._store.live() if self._function.domain is TimeDomain.WATERMARK else None
        last = None if live is None else live.agg(self._last).collect()[0][0]
        return None if last is None else min(last + 1, MAX)

    def begin(self, now: int, before: int) -> None:
        """Take note of the epoch's processing time and the watermark that its rows were judged by."""
        self._now, self._before = now, before

    @property
    def judged_by(self) -> int | None:
        """The watermark of the last :meth:`close`, if timers are in event time."""
        return self._store.closed if self._function.domain is TimeDomain.WATERMARK else None

    def close(self, watermark: int) -> DataFrame | None:
        """The output of the function for the rows and for the expired timers; None if it was not called."""
        reached = self._reached(watermark)
        initial = None if self._started or self._initial is None else self._store.partitioned(self._initial)
        self._started = True
        if not self._pending and initial is None and not self._store.has_due(reached):
            self._store.advance(reached)
            return None
        arrived = [each.through(self._arrived.select) for each in self._taken()]
        if initial is not None and self._first is not None:
            arrived.append(Rows(initial, self._first.select))
            self._store.discard(Segment(initial, SegmentStatistics(0, reached, reached)))
        # At the end of the input, a stage without timers is given no watermark.
        shown = reached if self._function.domain is TimeDomain.WATERMARK else watermark
        found = self._store.touched(arrived, reached, self._called, constants=(self._now, self._before, shown))
        # Not what the function returned: it is freed when it is written, and not when the state is merged.
        stamped = self._store.stamped(self._flat.select(found), F.col("emits")).localCheckpoint(eager=False)
        _, (emitted,) = self._store.add(stamped, self._summary, reached)
        self._next = None
        self._store.discard(Segment(found, SegmentStatistics(0, reached, reached)))
        return found.where("emitted IS NOT NULL").select("emitted.*") if emitted else None

    def is_due(self, now: int) -> bool:
        """Whether a timer in processing time has expired, or state has outlived its TTL."""
        if self._function.domain is not TimeDomain.CLOCK or not self._store.has_due(now):
            return False
        if self._next is None:
            # The lowest times of segments include rows that are dead or replaced; one job tells when to look next.
            alive = [
                segment.partials.where(F.col("due") >= self._alive_from).select("due") for segment in self.segments
            ]
            lowest = reduce(DataFrame.union, alive).agg(F.min("due")).collect()[0][0]
            self._next = NEVER if lowest is None else lowest
        return self._next < now

    def skip_to(self, watermark: int) -> None:
        """Advance to ``watermark``, but not past a timer that another timer has set in the meantime."""
        if self._function.domain is TimeDomain.WATERMARK:
            lowest = min((segment.statistics.low for segment in self.segments), default=MAX)
            super().skip_to(min(watermark, lowest))

    def restore(self, segments: Sequence[Segment], closed: int | None) -> None:
        """Replace the state with that of a snapshot."""
        self._next = None
        self._started = closed is not None
        super().restore(segments, None if closed == _NO_TIME else closed)

    def _called(self, touched: Touched) -> DataFrame:
        """The function's output for new rows, with the stored state of their keys, and for keys that are due."""
        rows = [] if touched.arrived is None else [touched.arrived]
        if touched.stored is not None:
            rows.append(self._found.select(touched.stored))
        now, before, watermark = touched.constants
        times = {"now": now, "before": before, "watermark": watermark, "reached": touched.watermark}
        ordered = self._ordered.select(
            reduce(DataFrame.union, rows),
            *(F.expr(constant(each, KEY_HASH)).alias(name) for name, each in times.items()),
        )
        return self._step(ordered).repartition(self._store.partitions, KEY_HASH)

    @property
    def _alive_from(self) -> int:
        return MIN if self._store.closed is None else self._store.closed

    def _reached(self, watermark: int) -> int:
        """The time up to which keys are due; it never goes back, though the clock may."""
        times = {TimeDomain.WATERMARK: watermark, TimeDomain.CLOCK: self._now, TimeDomain.NONE: MIN}
        return super()._reached(times[self._function.domain])
