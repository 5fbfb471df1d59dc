"""Rows by key in a few segments: the state of operators whose epochs touch few of many keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.catalyst.tables import Rows
from sparkjet.state.keyed_rows import DELETED, DUE, KEY_HASH, NEWEST, VERSION, KeyedRows, Touched
from sparkjet.state.partitions import release
from sparkjet.state.segments import Segment, SegmentStatistics, free, mergeable
from sparkjet.time import MAX, MIN

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.catalyst.columns import CompiledColumns

_WORTHLESS = 8
"""Number of stored rows per deleted key up to which it is worth copying the whole store."""

_REWRITTEN = 2
"""Number of stored rows per arriving row up to which the whole store is written: to find rows costs more than that."""


class KeyedStore:
    """A log-structured store by key, on the driver; the cost of a write depends on the keys that are written.

    A row is ``(key_hash, keys…, version, payload…, due)``, and a key may have several. An epoch writes one new segment
    with *all* rows of the keys that it touches, under a higher version, and leaves the other segments alone. A row is
    live if its key has no newer version and the watermark has not passed its ``due``. A key's rows must not become due
    earlier from one version to the next, unless the key is written again in the epoch in which they are due: dead rows
    do not hide older ones.

    An epoch calls :meth:`touched`, with the function by which the operator builds its rows and :meth:`stamped`, and
    then :meth:`add`, in one Spark job. If nothing arrived and nothing is due, it only calls :meth:`advance`, without a
    job.

    Args:
        keys: Names of the key columns, at least one.
        payload: Names of the other columns.
        partitions: Number of partitions, hash-partitioned by the keys.
        versioned: Whether a key's new rows replace its old ones. Otherwise they are added, and there are no versions.
        deletable: Whether keys can be deleted: by a row with ``deleted``, which is then a further column of all rows.
            Its ``due`` must not be before that of older versions, such as ``NEVER``.
        last: Name of the column that says when a key's rows end, if the key is written again when they are due.
        marks: Further columns of the rows that are put, with their values for merged rows.
        kept: Selects the stored rows from the rows that are put; by default all. :meth:`summary` must agree with it.
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
        self._rows = KeyedRows(keys, payload, versioned=versioned, deletable=deletable)
        self.columns = self._rows.columns
        """The columns of a stored row."""
        self._kept = kept if kept is not None else self.columns.select
        self._merged = self.summary()
        self._plans = KeptPlans()
        self._version = self._deleted = 0
        self._written: Segment | None = None
        self._garbage: list[Segment] = []

    @property
    def highest(self) -> int | None:
        """The highest ``last`` of all rows, None if there are none."""
        return max((segment.statistics.high for segment in self.segments), default=None)

    def has_due(self, watermark: int) -> bool:
        """Whether a row may be due before ``watermark``."""
        return any(segment.statistics.low < watermark for segment in self.segments)

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """New or stored rows with their hash, partitioned like a segment, and persisted in memory once read."""
        return self.shuffled(rows).localCheckpoint(eager=False)

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """New or stored rows with their hash, partitioned like a segment."""
        return self._rows.hashed(rows).repartition(self.partitions, KEY_HASH)

    def newest(self, rows: DataFrame, keys: Sequence[str], closed: int | None) -> DataFrame:
        """The live rows among saved ones, which may have had other keys; without hashes and versions."""
        saved = KeyedRows(keys, (), versioned=self._versioned, deletable=self._deletable)
        return saved.live(saved.hashed(rows), closed).drop(KEY_HASH, VERSION, NEWEST, DELETED)

    def hashed(self, rows: DataFrame) -> DataFrame:
        """Rows with the hash of their keys."""
        return self._rows.hashed(rows)

    def renewed(self, rows: DataFrame) -> DataFrame:
        """Rows with the first version, without their hash."""
        return self.stamped(self.hashed(rows), version=1).drop(KEY_HASH)

    def measured(self, rows: DataFrame) -> SegmentStatistics | None:
        """The statistics of rows that the driver needs, None if there are none; one Spark job."""
        statistics, _ = self._found("measured", rows, self._merged)
        return statistics if statistics.rows else None

    def touched(
        self,
        arrived: Sequence[Rows],
        watermark: int,
        build: Callable[[Touched], DataFrame],
        due: tuple[int, int] = (MIN, MAX),
        *,
        whole: bool = False,
        constants: Sequence[int] = (),
    ) -> DataFrame:
        """The rows that an operator builds from what an epoch touches, by a kept plan; persisted in memory once read.

        Numbers that the operator needs and that differ from epoch to epoch are passed as ``constants``.
        """
        inputs = {
            "arrived": arrived,
            "due": [segment.rows for segment in self.segments if segment.statistics.low < watermark and not whole],
            "stored": [segment.rows for segment in self._read(due)],
        }
        present = [name for name, rows in inputs.items() if rows]
        # Rows of one epoch, or merged ones, have one version per key; a segment from a snapshot may have several.
        single = whole and len(self.segments) == 1 and self.segments[0] is self._written

        def built(*given: Any) -> DataFrame:
            frames = dict(zip(present, given, strict=False))
            return build(self._rows.touched(frames, *given[len(present) :], whole=whole, single=single))

        return self._plans(
            "touched",
            whole,
            single,
            *present,
            inputs=[inputs[name] for name in present],
            constants=(watermark, self._version + 1, self.closed, *constants),
            build=built,
            held=True,
        )

    def live(self) -> DataFrame | None:
        """All live rows, None if nothing is stored."""
        return self._rows.live(_united(self.segments), self.closed) if self.segments else None

    def stamped(self, rows: DataFrame, *marks: Column, version: int | None = None) -> DataFrame:
        """The columns of a stored row, with a version (None: the version of this epoch), and the marks."""
        return self._rows.stamped(rows, self._version + 1 if version is None else version, *marks)

    def summary(self, *own: str, kept: str = "true", due: str = DUE) -> CompiledColumns:
        """The statistics about rows that :meth:`add` collects in its job; call it once."""
        return self._rows.summary(*own, last=self._last, kept=kept, due=due)

    def is_small(self, arrived: Sequence[Segment]) -> bool:
        """Whether writing the whole store costs no more than finding the rows that arriving rows touch."""
        return self._size <= _REWRITTEN * sum(each.statistics.rows for each in arrived)

    def add(
        self, rows: DataFrame, summary: CompiledColumns, watermark: int, *, whole: bool = False
    ) -> tuple[DataFrame, list[Any]]:
        """Store all rows of the touched keys as a segment, then advance, and merge segments if there are enough.

        The rows are persisted once read. If they are derived from another table that is lazily checkpointed, the job
        materializes that one too, so that rows that are not stored can be freed before them.
        """
        statistics, own = self._found("summary", rows, summary)
        deleted = own.pop(0) if self._deletable else 0
        self._version += 1
        if whole:
            self.discard(*self.segments)
            self.segments, self._deleted = [], 0
        if statistics.rows:
            self._written = Segment(rows, statistics, None, self._kept)
            self.segments.append(self._written)
            self._deleted += deleted
        else:
            self.discard(Segment(rows, SegmentStatistics(0, watermark, watermark)))
        self.advance(watermark)
        self._merge(only_deleted=0 < statistics.rows == deleted)
        return rows, own

    def compact(self) -> None:
        """Merge all segments, so that no row is left that was replaced, deleted or is dead."""
        if self.segments:
            self._merge_newest(len(self.segments))

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
        """Replace the state with that of a snapshot."""
        self.discard(*self.segments)
        self.segments = [replace(each, read=each.read or self.columns.select) for each in segments]
        self.closed = closed
        self._version = self._deleted = 0
        if self.segments and self._versioned:
            deleted = F.count_if(DELETED) if self._deletable else F.lit(0)
            found = _united(self.segments).agg(F.max(VERSION), deleted).collect()[0]
            self._version, self._deleted = found[0] or 0, found[1]

    @property
    def _size(self) -> int:
        """The number of stored rows, live or not."""
        return sum(each.statistics.rows for each in self.segments)

    def _read(self, due: tuple[int, int]) -> list[Segment]:
        """The segments that may have rows due between two times."""
        low, high = due
        return [each for each in self.segments if each.statistics.low <= high and each.statistics.high >= low]

    def _merge(self, *, only_deleted: bool) -> None:
        count = mergeable(self.segments, replacing=self._versioned)
        if only_deleted and self._size <= _WORTHLESS * self._deleted:
            # More rows may never come: deleted rows would be kept forever.
            count = len(self.segments)
        if count:
            self._merge_newest(count)

    def _merge_newest(self, count: int) -> None:
        merging = self.segments[-count:]
        everything = count == len(self.segments)
        merged = self._plans(
            "merged",
            everything,
            inputs=[[segment.rows for segment in merging]],
            constants=[self.closed],
            build=partial(self._rows.merged, marks=self._marks, and_deleted=not everything),
            held=True,
        )
        statistics, _ = self._found("measured", merged, self._merged)
        self.discard(*merging)
        del self.segments[-count:]
        self._deleted = 0 if everything else self._deleted
        if statistics.rows:
            self._written = Segment(merged, statistics, None, self._kept)
            self.segments.append(self._written)
        else:
            release(merged)

    def _found(self, name: str, rows: DataFrame, summary: CompiledColumns) -> tuple[SegmentStatistics, list[int]]:
        parts = self._plans(name, inputs=[[Rows(rows)]], build=summary.agg, by_partition=True).collect()
        statistics = reduce(SegmentStatistics.together, (SegmentStatistics(*part[:3]) for part in parts))
        # The sum of a partition without rows is null.
        return statistics, [sum(value or 0 for value in own) for own in zip(*(part[3:] for part in parts), strict=True)]


def _united(segments: Sequence[Segment]) -> DataFrame:
    return reduce(DataFrame.union, [each.partials for each in segments])
