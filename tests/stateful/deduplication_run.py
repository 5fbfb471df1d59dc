"""Naive deduplication, event by event, and the real operator with the same batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.constants import older
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.stateful.deduplication import Deduplication
from sparkjet.time import MIN
from tests.in_plan import in_plan
from tests.state.stored import read_back
from tests.state.touching import made_of
from tests.windows.model import Batch, Event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "key string, time long, value long"
PARTITIONS = 2

Row = tuple[str | None, int, frozenset[int]]
"""A first row: key, time, and the values that it may have, as rows of one key and time have no order."""


@dataclass(frozen=True)
class Kind:
    """How long a key is remembered, None forever; and whether the time is part of it."""

    keep: int | None
    by_time: bool = False

    def key(self, event: Event) -> tuple[object, ...]:
        """The key that must not come twice."""
        return (event.key, event.time) if self.by_time else (event.key,)


def naive(batches: Sequence[Batch], kind: Kind) -> tuple[list[list[Row]], int]:
    """First rows by batch, and the number of late events."""
    remembered: dict[tuple[object, ...], int | None] = {}
    closed: int | None = None
    late = 0
    output: list[list[Row]] = []
    for batch in batches:
        on_time = [e for e in batch.events if kind.keep is None or closed is None or e.time >= closed]
        late += len(batch.events) - len(on_time)
        remembered = {k: due for k, due in remembered.items() if due is None or closed is None or due >= closed}
        rows: list[Row] = []
        for key in {kind.key(event): None for event in on_time}:
            if key not in remembered:
                same = [event for event in on_time if kind.key(event) == key]
                first = min(event.time for event in same)
                rows.append((same[0].key, first, frozenset(e.value for e in same if e.time == first)))
                remembered[key] = None if kind.keep is None else first + kind.keep
        output.append(rows)
        if batch.watermark is not None:
            closed = batch.watermark if closed is None else max(closed, batch.watermark)
    return output, late


class DeduplicationRun:
    """Feeds batches to a deduplication: what has arrived, append, close, and snapshots in Parquet."""

    def __init__(self, session: SparkSession, kind: Kind) -> None:
        self._session = session
        self._kind = kind
        self._restarts = 0
        self.late = 0
        self.operator = self._new()

    def feed(self, batch: Batch) -> list[tuple[str | None, int, int]]:
        """One epoch: key, time and value of the first rows."""
        self.append(batch)
        watermark = self.operator.open_until if batch.watermark is None else batch.watermark
        found = self.operator.close(MIN if watermark is None else watermark)
        rows = [] if found is None else [tuple(row.row) for row in found.select("row").collect()]
        self.operator.release()
        return rows

    def append(self, batch: Batch) -> None:
        """The arrival of a batch, if any of its events is on time."""
        arrived, statistics = self._arrived(batch)
        if statistics.rows:
            self.operator.append(Segment(arrived, statistics))
        else:
            Segment(arrived, statistics).release()

    def new_keys(self, batch: Batch) -> DataFrame:
        """The keys of a batch that are not remembered, for a look at the plan."""
        arrived, operator = Segment(*self._arrived(batch)), self.operator
        return made_of(arrived, operator._store, operator._new_keys, due=operator._times(arrived))

    def restart(self, home: Path) -> None:
        """Discard the operator and continue with a new one that reads its snapshot."""
        before, self.operator = self.operator, self._new()
        assert self.operator.settings == before.settings
        segments = read_back(self._session, before.segments, self.operator.partitioned, home / f"{self._restarts}")
        self.operator.restore(segments, before.closed)
        self._restarts += 1
        before.restore([], None)
        before.release()

    def discard(self) -> None:
        """Free the operator's state."""
        self.operator.restore([], None)
        self.operator.release()

    def _arrived(self, batch: Batch) -> tuple[DataFrame, SegmentStatistics]:
        events = in_plan(self._session, [(e.key, e.time, e.value) for e in batch.events], SCHEMA)
        judged = events.withColumn("late", older("time", self.operator.judged_by))
        self.late += len(judged.where("late").select("late").collect())
        keys = {"key0": F.col("key")} | ({"key1": F.col("time")} if self._kind.by_time else {})
        row = F.struct("key", "time", "value").alias("row")
        columns = [column.alias(name) for name, column in keys.items()]
        arrived = self.operator.partitioned(judged.where("NOT late").select(*columns, "time", row))
        rows, low, high = arrived.agg(F.count(F.lit(1)), F.min("time"), F.max("time")).collect()[0]
        return arrived, SegmentStatistics(rows, low or 0, high or 0)

    def _new(self) -> Deduplication:
        keys = ["key0", "key1"] if self._kind.by_time else ["key0"]
        return Deduplication(self._kind.keep, keys, PARTITIONS)
