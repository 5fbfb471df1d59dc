"""Rows by key in a few segments: the state of operators whose epochs touch few of many keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from sparkjet.catalyst.columns import CompiledColumns
from sparkjet.catalyst.constants import constant
from sparkjet.state.segments import HASHES, Segment, SegmentStatistics, free, mergeable, release
from sparkjet.time import MAX, MIN

if TYPE_CHECKING:
    from pyspark.sql import Column

KEY_HASH = HASHES[0]
"""A hash of the keys as a long, never null: rows are partitioned and looked up by it."""
VERSION = "version"
"""Counts the epochs that have written rows; only the newest version of a key is valid."""
DUE = "due"
"""The time of a row: when the watermark has passed it, the row is dead, and need not be removed."""
DELETED = "deleted"
"""Whether a row says that its key has none."""
NEVER = MAX
"""The ``due`` of rows that only a newer version ends."""
WANTED, FRESH = "wanted", "fresh"
_WORTHLESS = 8
"""Rows of a store that are not too many to copy for each key that was deleted."""


class KeyedStore:
    """A log-structured store by key, on the driver; what it costs to write depends on the keys that are written.

    A row is ``(key_hash, keys…, version, payload…, due)``, and a key may have several. An epoch writes one new segment
    with *all* rows of the keys that it touches, under a higher version, and leaves the other segments alone. A row is
    live if its key has no newer version and the watermark has not passed its ``due``. A key's rows must not become due
    earlier from one version to the next, unless the key is written anew in the epoch in which they are due: dead rows
    do not hide older ones.

    An epoch is ``lookup(wanted(arrived, watermark))``, what the operator makes of it, and :meth:`put` of that, with
    :meth:`stamped`: one Spark job. If nothing arrived and nothing is due, it is :meth:`advance` and no job.

    Args:
        keys: Names of the key columns, at least one.
        payload: Names of the other columns.
        partitions: Number of partitions, hash-partitioned by the keys.
        versioned: Whether a key's new rows replace its old ones. Otherwise they are added, and there is no version.
        deletable: Whether keys can be deleted: by a row with ``deleted``, another column of all rows then, whose
            ``due`` is none before those of the older versions, such as ``NEVER``.
        last: Name of the column that says when a key's rows are over, if the key is written anew when they are due.
        marks: Further columns of what is put, with their values for merged rows.
        kept: From what is put to the rows that are stored; by default all. :meth:`summary` must say the same.
    """

    def __init__(
        self,
        keys: Sequence[str],
        payload: Sequence[str],
        partitions: int,
        *,
        versioned: bool = True,
        deletable: bool = False,
        last: str = DUE,
        marks: Mapping[str, Column] | None = None,
        kept: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        self.keys = tuple(keys)
        self.partitions = partitions
        self.segments: list[Segment] = []
        """All rows, oldest first; ``low`` and ``high`` of their statistics are lowest ``due`` and highest ``last``."""
        self.closed: int | None = None
        """The watermark: rows that were due before it are dead."""
        self._versioned = versioned
        self._deletable = deletable
        self._last = last
        self._marks = dict(marks or {})
        version, deleted = [VERSION] * versioned, [DELETED] * deletable
        self.columns = CompiledColumns([KEY_HASH, *self.keys, *version, *payload, DUE, *deleted])
        """The columns of a stored row."""
        self._kept = kept if kept is not None else self.columns.select
        self._hashes = {
            fresh: CompiledColumns([F.col(KEY_HASH).alias(WANTED), F.lit(fresh).alias(FRESH)])
            for fresh in (False, True)
        }
        self._found = F.col(KEY_HASH) == F.col(WANTED)
        self._newest_version = F.max(VERSION).over(Window.partitionBy(KEY_HASH, *self.keys)) if versioned else None
        self._merged = self.summary()
        self._version = 0
        self._deleted = 0
        self._garbage: list[Segment] = []

    @property
    def highest(self) -> int | None:
        """The highest ``last`` of all rows, None without any."""
        return max((segment.statistics.high for segment in self.segments), default=None)

    def has_due(self, watermark: int) -> bool:
        """Whether a row may be due before ``watermark``."""
        return any(segment.statistics.low < watermark for segment in self.segments)

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """New or stored rows with their hash, partitioned like a segment, and persisted in memory once read."""
        return self.shuffled(rows).localCheckpoint(eager=False)

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """New or stored rows with their hash, partitioned like a segment."""
        # Strings that are equal by a collation may differ in their bytes, and would get different hashes.
        plain = [key for key in self.keys if "collate" not in rows.schema[key].dataType.simpleString()]
        hashed = F.xxhash64(*plain) if plain else F.lit(0).cast("long")
        return rows.withColumn(KEY_HASH, hashed).repartition(self.partitions, KEY_HASH)

    def wanted(self, arrived: Sequence[DataFrame], watermark: int | None = None) -> DataFrame:
        """The hashes of the keys of partitioned rows, and of those that may have rows due before a watermark.

        Rows ``(wanted, fresh)``, one for each hash; ``fresh`` is whether any of its rows arrived. There must be any.
        """
        hashes = [self._hashes[True].select(rows) for rows in arrived]
        if watermark is not None:
            due = f"{is_due(watermark)} AND {self._is_live}"
            hashes += [
                self._hashes[False].select(segment.partials.where(due))
                for segment in self.segments
                if segment.statistics.low < watermark
            ]
        return reduce(DataFrame.union, hashes).groupBy(WANTED).agg(F.max(FRESH).alias(FRESH))

    def lookup(self, wanted: DataFrame, due: tuple[int, int] = (MIN, MAX)) -> DataFrame | None:
        """The live rows of some hashes, with the columns of ``wanted``; None if there are none for certain.

        A hash join that neither shuffles nor sorts what is stored. Keys that share a hash are found together.

        Args:
            wanted: The hashes.
            due: The lowest and highest ``due`` that matters; others may be left out. Not for rows with versions.
        """
        low, high = due
        read = [each for each in self.segments if each.statistics.low <= high and each.statistics.high >= low]
        if not read:
            return None
        # Not as a semi-join: Spark would push it below the union, and join once per segment.
        return self._newest(self._united(read).join(wanted.hint("shuffle_hash"), self._found))

    def live(self) -> DataFrame | None:
        """All live rows, None if nothing is stored."""
        return self._newest(self._united(self.segments)) if self.segments else None

    def stamped(self, rows: DataFrame, *marks: Column) -> DataFrame:
        """The columns of a stored row, under the version of this epoch, and the marks."""
        if self._versioned:
            rows = rows.withColumn(VERSION, F.expr(constant(self._version + 1, KEY_HASH)))
        return self.columns.select(rows, *marks)

    def summary(self, *own: str, kept: str = "true", due: str = DUE) -> CompiledColumns:
        """What :meth:`put` finds out about rows in its job; made once.

        Args:
            own: Aggregates of the operator's.
            kept: Whether a row is stored.
            due: The ``due`` that it is stored with.
        """
        standard = [f"count_if({kept})", f"min(CASE WHEN {kept} THEN {due} END)"]
        standard.append(f"max(CASE WHEN {kept} THEN `{self._last}` END)")
        if self._deletable:
            standard.append(f"count_if({kept} AND {DELETED})")
        return CompiledColumns(F.expr(text) for text in (*standard, *own))

    def put(self, stamped: DataFrame, summary: CompiledColumns, watermark: int) -> tuple[DataFrame, list[Any]]:
        """Store all rows of the touched keys as a segment, then advance, and merge segments if there are enough.

        Args:
            stamped: The rows, partitioned by their hash. If they are derived from another table that is lazily
                checkpointed, the job fills that one too: what is not stored can so be freed before them.
            summary: Made by :meth:`summary`.
            watermark: The new watermark.

        Returns:
            The rows, persisted until :meth:`release`, and what the operator's own aggregates have found.
        """
        rows = stamped.localCheckpoint(eager=False)
        count, low, high, *own = summary.agg(rows).collect()[0]
        deleted = own.pop(0) if self._deletable else 0
        self._version += 1
        statistics = SegmentStatistics(count, low, high) if count else SegmentStatistics(0, watermark, watermark)
        segment = Segment(rows, statistics, None, self._kept)
        if count:
            self.segments.append(segment)
            self._deleted += deleted
        else:
            self.discard(segment)
        self.advance(watermark)
        self._merge(only_deleted=0 < count == deleted)
        return rows, own

    def advance(self, watermark: int) -> None:
        """Move the watermark; segments without live rows are freed at the next :meth:`release`."""
        self.closed = None if watermark == MIN else watermark
        self.discard(*(segment for segment in self.segments if segment.statistics.high < watermark))
        self.segments = [segment for segment in self.segments if segment.statistics.high >= watermark]

    def discard(self, *segments: Segment) -> None:
        """Free segments at the next :meth:`release`."""
        self._garbage += segments

    def release(self) -> None:
        """Free obsolete state."""
        free(self._garbage, self.segments)

    def restore(self, segments: Sequence[Segment], closed: int | None) -> None:
        """Replace the state by that of a snapshot."""
        self.discard(*self.segments)
        self.segments = [replace(each, read=each.read or self.columns.select) for each in segments]
        self.closed = closed
        self._version = self._deleted = 0
        if self.segments and self._versioned:
            deleted = F.count_if(DELETED) if self._deletable else F.lit(0)
            found = self._united(self.segments).agg(F.max(VERSION), deleted).collect()[0]
            self._version, self._deleted = found[0] or 0, found[1]

    def _united(self, segments: Sequence[Segment]) -> DataFrame:
        """The rows of segments that are not dead; newer versions may have replaced them."""
        rows = reduce(DataFrame.union, [each.partials for each in segments])
        # Above the union, though Spark moves it below: a condition for each segment would be analyzed as often.
        return rows if self.closed is None else rows.where(self._is_live)

    @property
    def _is_live(self) -> str:
        return "true" if self.closed is None else f"{DUE} >= {constant(self.closed, DUE)}"

    def _newest(self, rows: DataFrame, *, and_deleted: bool = False) -> DataFrame:
        if self._newest_version is not None:
            rows = rows.withColumn("newest", self._newest_version).where(f"{VERSION} = newest")
        return rows.where(f"NOT {DELETED}") if self._deletable and not and_deleted else rows

    def _merge(self, *, only_deleted: bool) -> None:
        count = mergeable(self.segments, replacing=self._versioned)
        if only_deleted and sum(each.statistics.rows for each in self.segments) <= _WORTHLESS * self._deleted:
            # Nothing may come any more: what is deleted would be kept for ever.
            count = len(self.segments)
        if not count:
            return
        merging = self.segments[-count:]
        everything = count == len(self.segments)
        # What is deleted hides rows of older segments. And with the marks of an epoch's rows: a different schema would
        # be compiled to different code.
        newest = self.columns.select(self._newest(self._united(merging), and_deleted=not everything))
        merged = newest.withColumns(self._marks).localCheckpoint(eager=False)
        rows, low, high = self._merged.agg(merged).collect()[0][:3]
        self.discard(*merging)
        del self.segments[-count:]
        if everything:
            self._deleted = 0
        if rows:
            self.segments.append(Segment(merged, SegmentStatistics(rows, low, high), None, self._kept))
        else:
            release(merged)


def is_due(watermark: int) -> str:
    """SQL of whether a row is due before a watermark."""
    return f"{DUE} < {constant(watermark, DUE)}"
