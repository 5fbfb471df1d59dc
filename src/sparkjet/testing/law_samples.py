"""Law samples: rows dealt into parts, and both sides of every aggregate law computed from them by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Aggregate, AggregateOperation, Inputs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType
    from pyspark.sql.window import WindowSpec

    from sparkjet.aggregates.operation import Accumulator

PARTS = ("a", "b", "c")
_ALL = (*PARTS, "whole")


def hidden(noun: str) -> str:
    """A column name that no column of the samples has.

    >>> hidden("group")
    '_sparkjet_group'
    """
    return f"_sparkjet_{noun}"


GROUP, ROWS = hidden("group"), hidden("rows")
_PART, _SAMPLE, _ORDER = hidden("part"), hidden("sample"), hidden("order")


@dataclass(frozen=True, eq=False)
class Subject:
    """One aggregate under test; the names of its columns start with ``prefix``."""

    name: str
    operation: AggregateOperation
    prefix: str
    types: dict[str, DataType]

    @staticmethod
    def of(aggregate: Aggregate, inputs: Inputs, position: int) -> Subject:
        """The aggregate on the given samples, with the types of its accumulator there."""
        operation = aggregate.resolve(inputs)
        schema = inputs.frame.agg(*(c.alias(field) for field, c in operation.accumulate.items())).schema
        types = {field.name: field.dataType for field in schema.fields}
        return Subject(aggregate.output_name, operation, f"_{position}_", types)

    def shown(self, part: Row) -> dict[str, Any]:
        """A part's accumulator for a message."""
        return {field: part[self.prefix + field] for field in self.types}

    def accumulated(self) -> list[Column]:
        """The flat fields as aggregate Columns over samples."""
        return [column.alias(self.prefix + field) for field, column in self.operation.accumulate.items()]

    def empty(self) -> Accumulator:
        """The accumulator of no rows."""
        return self.typed(self.operation.create)

    def typed(self, accumulator: Accumulator) -> Accumulator:
        """The accumulator with the types of ``accumulate``, as the engine casts it."""
        return {field: accumulator[field].cast(data_type) for field, data_type in self.types.items()}

    def flat(self, accumulator: Accumulator) -> list[Column]:
        """The fields under the names that distinguish them from those of other subjects."""
        return [accumulator[field].alias(self.prefix + field) for field in self.types]

    def inside(self, struct: Column) -> Accumulator:
        """The accumulator held in a struct of flat fields."""
        return {field: struct[self.prefix + field] for field in self.types}

    def combine(self, left: Accumulator, right: Accumulator) -> Accumulator:
        """Both accumulators in one."""
        return self.typed(self.operation.combine(left, right))

    def negated(self, accumulator: Accumulator) -> Accumulator:
        """The accumulator that cancels another; without ``deduct`` the empty one, for want of anything of its type."""
        empty = self.empty()
        return empty if self.operation.deduct is None else self.typed(self.operation.deduct(empty, accumulator))

    def sides(self) -> dict[str, Column]:
        """The sides of the laws that follow from one row of dealt parts."""
        a, b, c, whole = (self.inside(F.col(hidden(part))) for part in _ALL)
        e, ab, bc = self.empty(), self.combine(a, b), self.combine(b, c)
        accumulators = {
            "whole": whole, "a": a, "e": e, "ab": ab, "bc": bc, "ba": self.combine(b, a), "ea": self.combine(e, a),
            "ae": self.combine(a, e), "ee": self.combine(e, e), "abc": self.combine(ab, c), "a_bc": self.combine(a, bc),
        }  # fmt: skip
        sides = {name: self.operation.finish(accumulator) for name, accumulator in accumulators.items()}
        if self.operation.deduct is not None:
            undone, nothing = self.operation.deduct(ab, b), self.operation.deduct(a, a)
            for name, accumulator in (("undone", undone), ("fields", a), ("nothing", nothing), ("empty", e)):
                sides[name] = F.struct(*self.flat(self.typed(accumulator)))
        if self.operation.scan is not None:
            negated = () if self.operation.deduct is None else (self.negated(a),)
            items = (F.struct(*(p[field].alias(field) for field in self.types)) for p in (a, b, c, *negated))
            scanned = self.operation.scan(F.array(*items))
            for length in range(1, 4 + len(negated)):
                part = scanned[length - 1]
                sides[f"scan{length}"] = self.operation.finish(self.typed({f: part[f] for f in self.types}))
        return sides

    def grouped(self, window: WindowSpec | None = None) -> list[Column]:
        """The accumulators of a group, or of the rows up to this one, by ``combine_group``."""
        assert self.operation.combine_group is not None  # noqa: S101 - asked only of those that have one
        combined = self.operation.combine_group({field: F.col(self.prefix + field) for field in self.types})
        if window is not None:
            combined = {field: column.over(window) for field, column in combined.items()}
        return self.flat(self.typed(combined))

    def finished(self) -> Column:
        """The result for the flat fields of a row."""
        return self.operation.finish({field: F.col(self.prefix + field) for field in self.types}).alias(self.prefix)


def deal(samples: DataFrame, subjects: Sequence[Subject], by: Sequence[str]) -> DataFrame:
    """One row per group with the accumulators of its parts and of all its rows, each as a struct of flat fields."""
    whole = len(PARTS)
    numbered = samples.withColumn(_PART, F.pmod(F.monotonically_increasing_id(), F.lit(whole)).cast("int"))
    # Explode, not two queries: samples may differ each time they are read.
    doubled = numbered.withColumn(_PART, F.explode(F.array(_PART, F.lit(whole))))
    columns = [column for subject in subjects for column in subject.accumulated()]
    accumulated = doubled.groupBy(*by, _PART).agg(F.count(F.lit(1)).alias(ROWS), *columns)
    fields = F.struct(ROWS, *(F.col(s.prefix + field) for s in subjects for field in s.types))
    empty = F.struct(F.lit(0).cast("long").alias(ROWS), *(column for s in subjects for column in s.flat(s.empty())))
    parts = [
        F.coalesce(F.first(F.when(F.col(_PART) == position, fields), ignorenulls=True), empty).alias(hidden(part))
        for position, part in enumerate(_ALL)
    ]
    return accumulated.groupBy(*by).agg(*parts).withColumn(GROUP, F.monotonically_increasing_id()).localCheckpoint()


def grouped(dealt: DataFrame, subjects: Sequence[Subject]) -> DataFrame:
    """The sides of the laws that follow from ``combine_group``: one row per group, a column ``prefix`` + name each."""
    grouping = [s for s in subjects if s.operation.combine_group is not None]
    deducting = [s for s in grouping if s.operation.deduct is not None]
    running_over = [s for s in deducting if s.operation.scan is None]

    def item(sample: str, order: int, part: str | None, *, negated: bool = False) -> Column:
        columns: list[Column] = []
        for subject in grouping:
            accumulator = subject.empty() if part is None else subject.inside(F.col(hidden(part)))
            columns += subject.flat(subject.negated(accumulator) if negated else accumulator)
        return F.struct(F.lit(sample).alias(_SAMPLE), F.lit(order).alias(_ORDER), *columns)

    items = F.array(
        *(item("group", i, part) for i, part in enumerate(("a", "b", "c", None))),
        item("single", 0, "a"),
        *(item("removed", 0, "whole"), item("removed", 1, "c", negated=True)),
        *(item("running", i, part) for i, part in enumerate(("a", "b", "c"), 1)),
        item("running", 4, "a", negated=True),
    )
    rows = dealt.select(GROUP, F.inline(items))
    windows = Window.partitionBy(GROUP).orderBy(_ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_running = F.col(_SAMPLE) == "running"
    groups = (
        rows.where(~is_running)
        .groupBy(GROUP, _SAMPLE)
        .agg(F.count(F.lit(1)), *(column for s in grouping for column in s.grouped()))
    )
    running = rows.where(is_running).select(
        GROUP,
        F.concat(_SAMPLE, _ORDER).alias(_SAMPLE),
        *(column for s in running_over for column in s.grouped(windows)),
    )
    results = groups.select(GROUP, _SAMPLE, *(s.finished() for s in grouping)).unionByName(
        running.select(GROUP, _SAMPLE, *(s.finished() for s in running_over)), allowMissingColumns=True
    )
    sides = [
        F.first(F.when(F.col(_SAMPLE) == sample, F.col(s.prefix)), ignorenulls=True).alias(s.prefix + sample)
        for s in grouping
        for sample in (
            *("group", "single"),
            *(("removed",) if s in deducting else ()),
            *(("running3", "running4") if s in running_over else ()),
        )
    ]
    return results.groupBy(GROUP).agg(F.count(F.lit(1)), *sides)
