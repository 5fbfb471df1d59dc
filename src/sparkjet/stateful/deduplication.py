"""Deduplication: the operator that lets the first row of each key through, with the keys as its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CompiledColumns
from sparkjet.snapshots.record import DeduplicationSettings
from sparkjet.state import KEY_HASH, NEVER, KeyedOperator, KeyedStore
from sparkjet.state.keyed_rows import Touched
from sparkjet.time import MAX, MIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.state import Segment

TIME = "time"
NUMBER = "number"
"""Numbers the rows of an epoch within their partition."""
FIRST = "first"
"""The number of the first row of a stored key, for the epoch in which it is stored."""


class Deduplication(KeyedOperator):
    """Lets the first row of each key through, and remembers the key; an operator with one feed.

    An arriving row is ``(keys…, time, …)``. Among several rows of a key in one epoch, the one with the least time is
    the first; one without a time comes before all others. A key is forgotten when the watermark has passed the time of
    its first row by ``keep``: rows closer to the first one than that are always recognized, as those that are late by
    then do not get here.

    The state is a :class:`sparkjet.state.KeyedStore` without versions: a key is stored once, and expires by itself. The
    rest of a row goes out with the results of its epoch and is not stored.

    Args:
        keep: How long a key is remembered, in microseconds of event time: 0 if the time is part of the key, so that any
            later duplicate is late. None means forever, and then no row is late.
        keys: Names of the key columns, at least one.
        partitions: Number of partitions of the state, hash-partitioned by the keys.
    """

    def __init__(self, keep: int | None, keys: Sequence[str], partitions: int) -> None:
        self.keep = keep
        self.keys = tuple(keys)
        marks = {FIRST: F.lit(None).cast("long")}
        super().__init__(KeyedStore(keys, [], partitions, versioned=False, marks=marks))
        self._summary = self._store.summary("count(1)")
        key = [KEY_HASH, *self.keys]
        due = F.lit(NEVER)
        if keep is not None:
            due = F.when(F.col(TIME) > MAX - keep, MAX).otherwise(F.col(TIME) + keep)
        self._keys = CompiledColumns(key)
        self._new = CompiledColumns([*key, TIME, NUMBER, F.lit(False).alias("known")])
        nothing = [F.lit(None).cast("long").alias(name) for name in (TIME, NUMBER)]
        self._known = CompiledColumns([*key, *nothing, F.lit(True).alias("known")])
        # If keys are kept forever, rows without a time get here as well: they are older than all others.
        first = F.min_by(NUMBER, F.coalesce(F.col(TIME), F.lit(MIN)))
        self._firsts = CompiledColumns([F.min(TIME).alias(TIME), first.alias(FIRST), F.max("known").alias("known")])
        self._remembered = CompiledColumns([*key, due.alias("due"), FIRST])
        # Only now: a checkpoint that has the hash under two names may be partitioned by the wrong one.
        self._numbers = CompiledColumns([F.col(KEY_HASH).alias("first_hash"), FIRST])
        # Not an equality of two columns: Spark would shuffle both sides by both.
        self._is_first = (F.col(KEY_HASH) == F.col("first_hash")) & (F.col(NUMBER) - F.col(FIRST) == 0)

    @property
    def settings(self) -> DeduplicationSettings:
        """How long a key is remembered."""
        return DeduplicationSettings(self.keep)

    @property
    def open_until(self) -> int | None:
        """The minimum watermark at which all keys are forgotten; None if there are none or they are kept forever."""
        if self.keep is None:
            return None
        ends = [] if self._store.highest is None else [self._store.highest]
        ends += [each.statistics.high + self.keep for each in self._pending]
        return min(max(ends) + 1, MAX) if ends else None

    @property
    def judged_by(self) -> int | None:
        """The watermark of the last :meth:`close`, if keys are forgotten."""
        return None if self.keep is None else self.closed

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """New rows or stored keys, hash-partitioned by the keys; new ones are numbered within their partition."""
        shuffled = self._store.shuffled(rows)
        return shuffled.withColumn(NUMBER, F.monotonically_increasing_id()) if TIME in rows.columns else shuffled

    def close(self, watermark: int) -> DataFrame | None:
        """The first rows of new keys, as they arrived; None without any."""
        reached = self._reached(watermark)
        if not self._pending:
            self._store.advance(reached)
            return None
        (arrived,) = self._taken()
        new = self._store.touched([arrived.rows], MIN, self._new_keys, self._times(arrived))
        firsts, (found,) = self._store.add(new, self._summary, reached)
        if not found:
            return None
        return arrived.partials.join(self._numbers.select(firsts).hint("shuffle_hash"), self._is_first)

    def _times(self, arrived: Segment) -> tuple[int, int]:
        """The times to read: if the time is part of the key, most remembered keys have other times."""
        return (arrived.statistics.low, arrived.statistics.high) if self.keep == 0 else (MIN, MAX)

    def _new_keys(self, touched: Touched) -> DataFrame:
        """The keys that are not remembered, each with the number of its first row."""
        assert touched.arrived is not None  # noqa: S101 - nothing else touches a key
        rows = self._new.select(touched.arrived)
        if touched.stored is not None:
            rows = rows.union(self._known.select(touched.stored))
        new = self._remembered.select(self._firsts.agg(rows, self._keys).where("NOT known"))
        return self._store.stamped(new, F.col(FIRST), version=touched.version)
