"""What must come out: Spark's batch over the rows that are not late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tests.differential.cases import Case, stateful
from tests.differential.texts import Row, plain, texts
from tests.differential.watermarks import judged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Batch = Callable[..., Sequence[tuple["DataFrame", "DataFrame", Callable[["DataFrame"], "DataFrame"]]]]
"""For each result: the rows before the step with state, what that step finds, and the steps behind it."""
Records = Sequence[Sequence[Any]]
"""Rows of the sources, by input."""


@dataclass(frozen=True)
class Expected:
    """What one result must be."""

    schema: StructType
    rows: list[Counter[Row]]
    """By epoch that has any; where results are final all rows are in one."""
    late: int | None
    """None where a row is judged more than once."""


class Oracle:
    """Spark's batch query of a case."""

    def __init__(self, spark: SparkSession, case: Case, batch: Batch) -> None:
        """The query is what the case rendered."""
        self._spark = spark
        self._case = case
        self._batch = batch

    def expected(self, number: int) -> Expected:
        """What a result must be."""
        if self._case.mode == "append":
            return self._final(number)
        return self._whole(number) if self._case.through == "batch" else self._rolling(number)

    def frames(self, rows: Records) -> list[DataFrame]:
        """Rows of the sources as DataFrames."""
        inputs = zip(rows, self._case.inputs, strict=True)
        return [self._spark.createDataFrame(list(each), given.schema) for each, given in inputs]

    def all_rows(self) -> Records:
        """The rows of all epochs."""
        return self._united(0, len(self._case.epochs))

    def _whole(self, number: int) -> Expected:
        _, found, after = self._of(number, self.all_rows())
        frame = after(found)
        return Expected(frame.schema, [rows] if (rows := counted(frame)) else [], 0)

    def _final(self, number: int) -> Expected:
        branch = self._case.branches[number]
        judging = branch[stateful(branch)].judge if stateful(branch) < len(branch) else None
        meet = self._case.meet
        judging = meet.judge if meet and meet.judge else judging
        kept, dropped = judged(self._case, judging)
        _, found, after = self._of(number, kept)
        frame = after(found)
        late: int | None = 0
        if (meet and meet.judge) or any("window join" in step.operator for step in branch):
            late = None
        elif any(dropped):
            late = self._of(number, dropped)[0].count()
        return Expected(frame.schema, [rows] if (rows := counted(frame)) else [], late)

    def _rolling(self, number: int) -> Expected:
        branch = self._case.branches[number]
        step = branch[stateful(branch)]
        keys = [*(["window"] if "window" in step.stream else []), *step.keys]
        rows: list[Counter[Row]] = []
        epochs = self._case.epochs
        frame = None
        for upto in range(1, len(epochs) + 1):
            _, found, after = self._of(number, self._united(0, upto))
            before, changed, _ = self._of(number, self._united(upto - 1, upto))
            frame = after(found)
            if (changed if keys else before).isEmpty():
                continue
            if self._case.mode == "update" and keys:
                new = changed.select(*(F.col(key).alias(f"_{key}") for key in keys))
                same = [F.col(key).eqNullSafe(F.col(f"_{key}")) for key in keys]
                frame = after(found.join(new, same, "left_semi"))
            if found_rows := counted(frame):
                rows.append(found_rows)
        assert frame is not None
        # Windows count rows without an event time, and drop no others.
        return Expected(frame.schema, rows, None if "window" in keys else 0)

    def _of(self, number: int, rows: Records) -> tuple[DataFrame, DataFrame, Callable[[DataFrame], DataFrame]]:
        return self._batch(*self.frames(rows))[number]

    def _united(self, first: int, upto: int) -> Records:
        epochs = self._case.epochs[first:upto]
        return [
            [event.record() for epoch in epochs for event in epoch.rows[number]]
            for number in range(len(self._case.inputs))
        ]


def counted(frame: DataFrame) -> Counter[Row]:
    """The rows as they are compared."""
    return Counter(plain(row, frame.schema) for row in texts(frame).collect())
