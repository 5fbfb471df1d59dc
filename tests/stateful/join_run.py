"""The real interval join with the same batches as the naive one, with or without a restart after each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.constants import older
from sparkjet.catalyst.join_conditions import JoinKey
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.state.partitions import release
from sparkjet.stateful.interval_join import IntervalJoin, JoinSide
from tests.state.stored import read_back
from tests.stateful.join_model import Arrived, JoinBatch, JoinCase, Pair

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2


class JoinRun:
    """Feeds batches to an interval join: append, close, and snapshots in Parquet."""

    def __init__(self, session: SparkSession, case: JoinCase) -> None:
        self._session = session
        self._case = case
        self._restarts = 0
        self.late = [0, 0]
        self.operator = self._new()

    def feed(self, batch: JoinBatch) -> list[Pair]:
        """One epoch: the results it gives."""
        self.append(batch)
        until, before = self.operator.open_until, self.operator.settings.watermarks
        watermarks = batch.watermarks
        if watermarks is None:
            watermarks = before if until is None else (until, until)
        results = self.results(self.operator.close(*watermarks))
        self.operator.release()
        return results

    def append(self, batch: JoinBatch) -> None:
        """The arrivals of an epoch."""
        for number, (side, rows) in enumerate(zip(self.operator.sides, (batch.left, batch.right), strict=True)):
            arrived = self._rows(side, rows)
            judged = arrived.withColumn("late", older(side.time, side.judged_by))
            self.late[number] += judged.where("late").count()
            table = side.partitioned(judged.where("NOT late"))
            count, low, high = table.agg(F.count(F.lit(1)), F.min(side.time), F.max(side.time)).collect()[0]
            if count:
                side.append(Segment(table, SegmentStatistics(count, low, high), None, _without_mark))
            else:
                release(table)

    def restart(self, home: Path) -> None:
        """Discard the operator and continue with a new one that reads its snapshot."""
        before = self.operator
        self.operator = self._new()
        segments = read_back(self._session, before.segments, self.operator.partitioned, home / f"{self._restarts}")
        self.operator.restore(segments, before.closed, before.settings.watermarks)
        self._restarts += 1
        before.restore([], None)
        before.release()

    def discard(self) -> None:
        """Free the operator's state."""
        self.operator.restore([], None)
        self.operator.release()

    def results(self, rows: DataFrame | None) -> list[Pair]:
        """Result rows in the model's format."""
        if rows is None:
            return []
        found = [row.asDict() for row in rows.collect()]
        return [(_arrived(row, "left"), _arrived(row, "right")) for row in found]

    def _rows(self, side: JoinSide, rows: Sequence[Arrived]) -> DataFrame:
        name = side.time.removesuffix("_time")
        schema = f"{side.time} long, {name}0 string, {name}1 long"
        return self._session.createDataFrame([(row.time, row.key, row.value) for row in rows], schema)

    def _new(self) -> IntervalJoin:
        schemas = [self._session.createDataFrame([], f"{name}0 string, {name}1 long").schema for name in _SIDES]
        key = JoinKey(F.col("left0"), F.col("right0"), self._case.null_safe, "string")
        rest = key.is_equal & F.expr("left1 <= right1") if self._case.ordered else key.is_equal
        case = self._case
        bounds = case.lower, case.upper
        return IntervalJoin(case.join_type, *bounds, [key], rest, (schemas[0], schemas[1]), PARTITIONS)


_SIDES = ("left", "right")


def _arrived(row: dict[str, object], side: str) -> Arrived | None:
    values = [row.get(f"{side}{what}") for what in ("_time", "0", "1")]
    return None if values[0] is None else Arrived(*values)  # type: ignore[arg-type]


def _without_mark(table: DataFrame) -> DataFrame:
    return table.drop("late")
