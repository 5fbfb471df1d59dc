"""The laws of aggregates, checked on data, for testing your own AggregateOperation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Aggregate, AggregateOperation, Inputs, microseconds
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType
    from pyspark.sql.window import WindowSpec

    from sparkjet.aggregates.operation import Accumulator, ColumnOrName

_ROUNDING = 1e-9
_PARTS = ("a", "b", "c")
_ALL = (*_PARTS, "whole")


def _hidden(noun: str) -> str:
    """A column name that no column of the samples has.

    >>> _hidden("group")
    '_sparkjet_group'
    """
    return f"_sparkjet_{noun}"


_GROUP, _ROWS = _hidden("group"), _hidden("rows")
_PART, _SAMPLE, _ORDER = _hidden("part"), _hidden("sample"), _hidden("order")


@dataclass(frozen=True)
class _Law:
    """Two ways to the same result: the law's name when broken, and both ways as computed and as shown to a reader."""

    broken: str
    left: str
    right: str
    left_text: str
    right_text: str
    exact: bool = False


_LAWS = (
    _Law("create is not neutral", "ea", "a", "combine(create, a)", "a"),
    _Law("create is not neutral", "ae", "a", "combine(a, create)", "a"),
    _Law("create is not neutral", "ee", "e", "combine(create, create)", "create"),
    _Law("combine is not commutative", "ab", "ba", "combine(a, b)", "combine(b, a)"),
    _Law("combine is not associative", "abc", "a_bc", "combine(combine(a, b), c)", "combine(a, combine(b, c))"),
    _Law("combine does not continue accumulate", "abc", "whole", "combine of a, b, c", "all rows accumulated at once"),
    _Law(
        "combine_group differs from combine", "group", "abc", "combine_group of a, b, c, create", "combine of a, b, c"
    ),
    _Law("combine_group differs from combine", "single", "a", "combine_group of a alone", "a"),
    _Law("deduct does not undo combine", "undone", "fields", "deduct(combine(a, b), b)", "a", exact=True),
    _Law("deduct does not undo combine", "nothing", "empty", "deduct(a, a)", "create", exact=True),
    _Law("deduct does not negate", "removed", "ab", "combine_group of all, deduct(create, c)", "combine(a, b)"),
    _Law("combine_group differs over a window", "running3", "abc", "its third row of a, b, c", "combine of a, b, c"),
    _Law("deduct does not negate", "running4", "bc", "combine_group over a, b, c, deduct(create, a)", "combine(b, c)"),
    _Law("scan differs from combine", "scan1", "a", "the first element of a scan of a, b, c", "a"),
    _Law("scan differs from combine", "scan2", "ab", "the second element of a scan of a, b, c", "combine(a, b)"),
    _Law("scan differs from combine", "scan3", "abc", "the third element of a scan of a, b, c", "combine of a, b, c"),
    _Law("deduct does not negate", "scan4", "bc", "a scan of a, b, c, deduct(create, a)", "combine(b, c)"),
)


def check_aggregate(
    aggregate: Aggregate | Sequence[Aggregate],
    samples: DataFrame,
    event_time: ColumnOrName | None = None,
    *,
    by: Sequence[str] = (),
    tolerance: float | None = None,
) -> None:
    """Check that an aggregate computed in parts gives the same result as in one piece.

    The samples are dealt into three parts a, b and c. Then ``create`` must be neutral, ``combine`` commutative and
    associative, and combining must equal accumulating all rows at once; ``combine_group`` and ``scan`` must equal
    ``combine``; ``deduct`` must undo ``combine`` field by field, and what it negates must cancel in ``combine_group``,
    also over a running window. Runs three Spark jobs, however many aggregates and groups there are.

    Args:
        aggregate: One aggregate or several to check.
        samples: A batch DataFrame of three rows or more; it should have nulls, ties and extreme values.
        event_time: A timestamp column, or a long one of microseconds; without it all rows are simultaneous.
        by: Columns by which the samples form groups that are checked separately.
        tolerance: Relative or absolute difference allowed between numeric results, for sketches. Without it only
            floating-point numbers may differ, by rounding (1e-9).

    Raises:
        AssertionError: A law is broken; the message names it, both results and the accumulators.
        AnalysisError: A part got no samples, or an aggregate does not fit them.

    >>> from sparkjet import functions as J
    >>> check_aggregate([J.top_n("id", 3), J.percentile_cont("id", 0.5)], spark.range(10))
    """
    inputs = Inputs(samples, microseconds(samples, event_time))
    subjects = [
        _Subject.of(one, inputs, position)
        for position, one in enumerate([aggregate] if isinstance(aggregate, Aggregate) else aggregate)
    ]
    dealt = _dealt(samples, subjects, by)
    by_group = {row[_GROUP]: row.asDict() for row in _grouped(dealt, subjects).collect()}
    sides = [side.alias(f"{s.prefix}{name}") for s in subjects for name, side in s.sides().items()]
    outcomes = dealt.select("*", *sides).collect()
    if not all(any(row[_hidden(part)][_ROWS] for row in outcomes) for part in _PARTS):
        raise AnalysisError("check_aggregate: the samples are too few for three parts; give at least three rows.")
    findings: dict[tuple[str, str], str] = {}
    for row in outcomes:
        where = "".join(f" in the group {name}={row[name]!r}" for name in by)
        for subject in subjects:
            for law, text in _broken(subject, row, by_group[row[_GROUP]], tolerance):
                findings.setdefault((subject.name, law), f"{subject.name}: {law}{where}: {text}")
    if findings:
        raise AssertionError("\n".join(findings.values()))


def _broken(
    subject: _Subject, row: Row, grouped: Mapping[str, Any], tolerance: float | None
) -> Iterator[tuple[str, str]]:
    """The laws that one group of samples shows to be broken, and how."""
    results = {**grouped, **row.asDict()}
    for law in _LAWS:
        if subject.prefix + law.left not in results:
            continue
        left, right = results[subject.prefix + law.left], results[subject.prefix + law.right]
        if not _same(left, right, 0.0 if law.exact else tolerance):
            parts = ", ".join(f"{part} = {subject.shown(row[_hidden(part)])}" for part in _PARTS)
            yield law.broken, f"{law.left_text} gives {left!r}, {law.right_text} gives {right!r} ({parts})"


def _same(left: Any, right: Any, tolerance: float | None) -> bool:
    """Whether two results are equal, or close enough if they are numbers; NaN equals NaN."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(_same(x, y, tolerance) for x, y in zip(left, right, strict=True))
    if left == right or left is None or right is None:
        return left is right or bool(left == right)
    if not (isinstance(left, (int, float, Decimal)) and isinstance(right, (int, float, Decimal))):
        return False
    if tolerance is None and not isinstance(left, float):
        return False
    allowed = _ROUNDING if tolerance is None else tolerance
    left, right = float(left), float(right)
    return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=allowed, abs_tol=allowed)


@dataclass(frozen=True, eq=False)
class _Subject:
    """One aggregate under test; the names of its columns start with ``prefix``."""

    name: str
    operation: AggregateOperation
    prefix: str
    types: dict[str, DataType]

    @staticmethod
    def of(aggregate: Aggregate, inputs: Inputs, position: int) -> _Subject:
        """The aggregate on the given samples, with the types of its accumulator there."""
        operation = aggregate.resolve(inputs)
        schema = inputs.frame.agg(*(c.alias(field) for field, c in operation.accumulate.items())).schema
        types = {field.name: field.dataType for field in schema.fields}
        return _Subject(aggregate.output_name, operation, f"_{position}_", types)

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
        a, b, c, whole = (self.inside(F.col(_hidden(part))) for part in _ALL)
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


def _dealt(samples: DataFrame, subjects: Sequence[_Subject], by: Sequence[str]) -> DataFrame:
    """One row per group with the accumulators of its parts and of all its rows, each as a struct of flat fields."""
    whole = len(_PARTS)
    numbered = samples.withColumn(_PART, F.pmod(F.monotonically_increasing_id(), F.lit(whole)).cast("int"))
    # Explode, not two queries: samples may differ each time they are read.
    doubled = numbered.withColumn(_PART, F.explode(F.array(_PART, F.lit(whole))))
    columns = [column for subject in subjects for column in subject.accumulated()]
    accumulated = doubled.groupBy(*by, _PART).agg(F.count(F.lit(1)).alias(_ROWS), *columns)
    fields = F.struct(_ROWS, *(F.col(s.prefix + field) for s in subjects for field in s.types))
    empty = F.struct(F.lit(0).cast("long").alias(_ROWS), *(column for s in subjects for column in s.flat(s.empty())))
    parts = [
        F.coalesce(F.first(F.when(F.col(_PART) == position, fields), ignorenulls=True), empty).alias(_hidden(part))
        for position, part in enumerate(_ALL)
    ]
    return accumulated.groupBy(*by).agg(*parts).withColumn(_GROUP, F.monotonically_increasing_id()).localCheckpoint()


def _grouped(dealt: DataFrame, subjects: Sequence[_Subject]) -> DataFrame:
    """The sides of the laws that follow from ``combine_group``: one row per group, a column ``prefix`` + name each."""
    grouping = [s for s in subjects if s.operation.combine_group is not None]
    deducting = [s for s in grouping if s.operation.deduct is not None]
    running_over = [s for s in deducting if s.operation.scan is None]

    def item(sample: str, order: int, part: str | None, *, negated: bool = False) -> Column:
        columns: list[Column] = []
        for subject in grouping:
            accumulator = subject.empty() if part is None else subject.inside(F.col(_hidden(part)))
            columns += subject.flat(subject.negated(accumulator) if negated else accumulator)
        return F.struct(F.lit(sample).alias(_SAMPLE), F.lit(order).alias(_ORDER), *columns)

    items = F.array(
        *(item("group", i, part) for i, part in enumerate(("a", "b", "c", None))),
        item("single", 0, "a"),
        *(item("removed", 0, "whole"), item("removed", 1, "c", negated=True)),
        *(item("running", i, part) for i, part in enumerate(("a", "b", "c"), 1)),
        item("running", 4, "a", negated=True),
    )
    rows = dealt.select(_GROUP, F.inline(items))
    windows = Window.partitionBy(_GROUP).orderBy(_ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_running = F.col(_SAMPLE) == "running"
    groups = (
        rows.where(~is_running)
        .groupBy(_GROUP, _SAMPLE)
        .agg(F.count(F.lit(1)), *(column for s in grouping for column in s.grouped()))
    )
    running = rows.where(is_running).select(
        _GROUP,
        F.concat(_SAMPLE, _ORDER).alias(_SAMPLE),
        *(column for s in running_over for column in s.grouped(windows)),
    )
    results = groups.select(_GROUP, _SAMPLE, *(s.finished() for s in grouping)).unionByName(
        running.select(_GROUP, _SAMPLE, *(s.finished() for s in running_over)), allowMissingColumns=True
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
    return results.groupBy(_GROUP).agg(F.count(F.lit(1)), *sides)
