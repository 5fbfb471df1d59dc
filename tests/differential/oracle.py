"""The expected results: Spark's batch over the rows that are not late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tests.differential.cases import Case, quoted, stateful
from tests.differential.texts import Row, plain, texts
from tests.differential.watermarks import Rows, judged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Batch = Callable[..., Sequence[tuple["DataFrame", "DataFrame", Callable[["DataFrame"], "DataFrame"]]]]
"""For each result: the rows before the step with state, what that step finds, and the steps behind it."""
Records = Sequence[Sequence[Any]]
"""Rows of the sources, by input."""


@dataclass
class Expected:
    """The expectation of one result."""

    schema: StructType
    epochs: list[Counter[Row]] = field(default_factory=list)
    """By epoch; where results are final all rows are in one."""
    late: tuple[int, int] | None = (0, 0)
    """How many rows are late, and how many have no event time; None where a row is judged more than once."""
    keys: int | None = None
    """Where rows may come before they are final: how many columns name one, of which each epoch has all that are."""

    @property
    def rows(self) -> list[Counter[Row]]:
        """By epoch that has any."""
        return [rows for rows in self.epochs if rows]


class Oracle:
    """Spark's batch query of a case: the results of all epochs come of one job."""

    def __init__(self, spark: SparkSession, case: Case, batch: Batch) -> None:
        """The query is what the case rendered."""
        self._spark = spark
        self._case = case
        self._batch = batch
        self._asked: list[DataFrame] = []
        self._answer: list[Callable[[list[Row]], None]] = []

    def expected(self) -> list[Expected]:
        """The expected results."""
        found = [self._expected(number) for number in range(self._case.results)]
        answers: list[list[Row]] = [[] for _ in self._asked]
        if self._asked:
            whole = self._asked[0]
            for each in self._asked[1:]:
                whole = whole.unionAll(each)
            for place, values in whole.collect():
                answers[place].append(tuple(values))
        for take, rows in zip(self._answer, answers, strict=True):
            take(rows)
        return found

    def frames(self, rows: Records) -> list[DataFrame]:
        """Rows of the sources as DataFrames."""
        inputs = zip(rows, self._case.inputs, strict=True)
        return [self._spark.createDataFrame(list(each), given.schema) for each, given in inputs]

    def all_rows(self) -> Records:
        """The rows of all epochs."""
        return _united([_records(epoch.rows) for epoch in self._case.epochs], len(self._case.inputs))

    def _expected(self, number: int) -> Expected:
        if self._case.dropped is not None and number == self._case.results - 1:
            return self._dropped(number, self._case.dropped)
        if number == len(self._case.branches):
            return self._dead(number)
        if self._case.mode == "append":
            return self._final(number)
        if self._case.early:
            return self._early(number)
        return self._whole(number) if self._case.through == "batch" else self._rolling(number)

    def _ask(self, frame: DataFrame, take: Callable[[list[Row]], None]) -> None:
        values = texts(frame)
        row = F.array(*values.columns) if values.columns else F.expr("CAST(array() AS ARRAY<STRING>)")
        self._asked.append(values.select(F.lit(len(self._asked)).alias("place"), row.alias("row")))
        self._answer.append(take)

    def _count(self, expected: Expected, frame: DataFrame) -> None:
        """The rows of an epoch."""
        place, schema = len(expected.epochs), frame.schema
        expected.epochs.append(Counter())
        self._ask(frame, lambda rows: expected.epochs[place].update(plain(row, schema) for row in rows))

    def _whole(self, number: int) -> Expected:
        rows = self.all_rows()
        expected = self._all_of(number, rows)
        # Where no row counts, an aggregate without keys has one row in Spark (KNOWN).
        self._unless_empty(expected, 0, self._of(number, rows)[0])
        return expected

    def _all_of(self, number: int, rows: Records) -> Expected:
        _, found, after = self._of(number, rows)
        frame = after(found)
        expected = Expected(frame.schema)
        self._count(expected, frame)
        return expected

    def _judged(self, number: int) -> tuple[list[Rows], Rows]:
        branch, meet = self._case.branches[number], self._case.meet
        judging = branch[stateful(branch)].judge if stateful(branch) < len(branch) else None
        return judged(self._case, meet.judge if meet and meet.judge else judging)

    def _final(self, number: int) -> Expected:
        branch, meet = self._case.branches[number], self._case.meet
        kept, dropped = self._judged(number)
        expected = self._all_of(number, _united(kept, len(self._case.inputs)))
        if (meet and meet.judge) or any("window join" in step.operator for step in branch):
            expected.late = None
        elif any(dropped):
            self._late(expected, self._of(number, dropped)[0])
        return expected

    def _dead(self, number: int) -> Expected:
        """Rows that fail, those that come late too."""
        epochs = [_records(epoch.rows) for epoch in self._case.epochs]
        if self._case.mode == "append" or self._case.through == "batch":
            epochs = [self.all_rows()]
        expected = None
        for rows in epochs:
            frame = self._of(number, rows)[1]
            expected = expected or Expected(frame.schema)
            self._count(expected, frame)
        assert expected is not None
        return expected

    def _dropped(self, number: int, branch: int) -> Expected:
        """The late rows of a branch."""
        _, rows = self._judged(branch)
        return self._all_of(number, rows)

    def _late(self, expected: Expected, rows: DataFrame) -> None:
        def take(found: list[Row]) -> None:
            timeless = found.count(("true",))
            expected.late = len(found) - timeless, timeless

        self._ask(rows.select(F.col("ts").isNull()), take)

    def _early(self, number: int) -> Expected:
        """Windows as they are after each epoch."""
        kept, dropped = self._judged(number)
        branch = self._case.branches[number]
        expected = None
        for upto in range(1, len(kept) + 1):
            _, found, after = self._of(number, _united(kept[:upto], len(self._case.inputs)))
            frame = after(found)
            expected = expected or Expected(frame.schema, keys=1 + len(branch[stateful(branch)].keys))
            self._count(expected, frame)
        assert expected is not None
        if any(dropped):
            self._late(expected, self._of(number, dropped)[0])
        return expected

    def _rolling(self, number: int) -> Expected:
        step = self._case.branches[number][stateful(self._case.branches[number])]
        keys = [*(["window"] if "window(" in step.stream else []), *step.keys]
        arrived = [_records(epoch.rows) for epoch in self._case.epochs]
        expected = None
        for upto in range(1, len(arrived) + 1):
            _, found, after = self._of(number, _united(arrived[:upto], len(self._case.inputs)))
            before, changed, _ = self._of(number, arrived[upto - 1])
            if self._case.mode == "update" and keys:
                new = changed.select(*(F.col(quoted(key)).alias(f"_{place}") for place, key in enumerate(keys)))
                same = [F.col(quoted(key)).eqNullSafe(F.col(f"_{place}")) for place, key in enumerate(keys)]
                found = found.join(new, same, "left_semi")
            frame = after(found)
            # Windows count rows without an event time, and drop no others.
            expected = expected or Expected(frame.schema, late=None if "window" in keys else (0, 0))
            self._count(expected, frame)
            self._unless_empty(expected, upto - 1, changed if keys else before)
        assert expected is not None
        return expected

    def _unless_empty(self, expected: Expected, place: int, changed: DataFrame) -> None:
        def take(found: list[Row]) -> None:
            if not found:
                expected.epochs[place].clear()

        self._ask(changed.limit(1).select(), take)

    def _of(self, number: int, rows: Records) -> tuple[DataFrame, DataFrame, Callable[[DataFrame], DataFrame]]:
        before, found, after = self._batch(*self.frames(rows))[number]
        branch = self._case.branches[number] if number < len(self._case.branches) else ()
        if any(step.parts for step in branch[stateful(branch) + 1 :]):
            # In one plan with what it aggregates, Spark takes a struct that is null for the one before it (KNOWN).
            found = found.localCheckpoint()
        return before, found, after


def _records(rows: Sequence[Sequence[Any]]) -> Records:
    return [[event.record() for event in each] for each in rows]


def _united(epochs: Sequence[Records], inputs: int) -> Records:
    return [[row for rows in epochs for row in rows[number]] for number in range(inputs)]
