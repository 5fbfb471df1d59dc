"""The accumulators of all aggregates of a window, as flat columns of a DataFrame.

A *partial row* is ``(keys…, frame, row_count, accumulator fields…)``. Fields are flat because Catalyst generates
code for sums and maxima of flat columns, but not of struct fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sparkjet.aggregates.operation import AggregateOperation
from sparkjet.aggregates.totals import summing
from sparkjet.catalyst.columns import CompiledColumns, Once

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROW_COUNT = "row_count"
LACKED = "lacked"
"""The field that counts the rows that an operation has not seen."""


class Accumulators:
    """Accumulate, combine, deduct and finish for several aggregate operations at once.

    Lives on the driver and only builds Column expressions. Deduct needs every operation to support it: a window's
    aggregates share one pass, so the weakest operation decides (see :class:`sparkjet.windows.SlidingWindows`).

    Args:
        results: Name of each result column and its operation, in output order.
        schema: Schema of the partial rows; every combine casts to exactly these types.
        lacking: Positions of operations that have not seen all rows, whose results are null where that is so; the last
            of ``results`` count these rows: see :meth:`with_lacking`.
    """

    def __init__(
        self, results: Sequence[tuple[str, AggregateOperation]], schema: StructType, lacking: Sequence[int] = ()
    ) -> None:
        self.results = tuple(results)
        first = len(self.results) - len(lacking)
        self._lacking = {number: field_name(first + place, LACKED) for place, number in enumerate(lacking)}
        self.types = {field.name: _nullable(field.dataType) for field in schema.fields}
        self.once = Once()

    @staticmethod
    def with_lacking(
        results: Sequence[tuple[str, AggregateOperation]], lacking: Sequence[int]
    ) -> list[tuple[str, AggregateOperation]]:
        """Operations, and after them those that count the rows that some of them have not seen."""
        return [*results, *((lacking_name(number), _lacked()) for number in lacking)]

    @staticmethod
    def aggregations(results: Sequence[tuple[str, AggregateOperation]]) -> list[Column]:
        """Aggregate Columns that turn rows into partial rows, the hidden row count first."""
        columns = [F.count(F.lit(1)).alias(ROW_COUNT)]
        for position, (_, operation) in enumerate(results):
            columns += [column.alias(field_name(position, field)) for field, column in operation.accumulate.items()]
        return columns

    @property
    def fields(self) -> list[str]:
        """Names of the flat columns, the row count first."""
        return [ROW_COUNT, *(field_name(i, field) for i, (_, op) in enumerate(self.results) for field in op.create)]

    @property
    def shape(self) -> dict[str, str]:
        """Spark type by field name, for the fingerprint of a query."""
        return {field: self.types[field].simpleString() for field in self.fields}

    @property
    def deductible(self) -> bool:
        """Whether every operation can deduct."""
        return all(op.deduct is not None and op.combine_group is not None for _, op in self.results)

    @property
    def bounded(self) -> bool:
        """Whether all accumulators are bounded, that is, do not grow with their input."""
        return all(op.bounded for _, op in self.results)

    def empty(self) -> dict[str, Column]:
        """The fields of the empty accumulators."""
        fields = {ROW_COUNT: F.lit(0).cast("long")}
        for position, (_, operation) in enumerate(self.results):
            for field, column in operation.create.items():
                fields[field_name(position, field)] = column.cast(self.types[field_name(position, field)])
        return fields

    def group(self, partials: DataFrame, *by: str, beside: Sequence[str] = ()) -> DataFrame:
        """Combine the partial rows of each group into one with the same fields."""
        sums = self.once("combined", *beside, build=lambda: self._combined(beside))
        grouped = sums.agg(partials, self.once.columns(*by))
        folds = self.once("folds", build=self._folds)
        if not folds:
            return grouped
        unfolded = self.once("unfolded", build=self._unfolded)
        return grouped.withColumns(folds).select(*by, *beside, ROW_COUNT, *unfolded)

    def negated(self, partials: DataFrame) -> DataFrame:
        """Replace each row's fields by their inverse: the empty accumulator minus this one."""
        return partials.withColumns(self.once("negated", build=self._negated))

    def _negated(self) -> dict[str, Column]:
        columns = {ROW_COUNT: -F.col(ROW_COUNT)}
        for position, (_, operation) in enumerate(self.results):
            assert operation.deduct is not None  # noqa: S101 - deductible operations have one
            deducted = operation.deduct(operation.create, self.fields_of(position))
            for field, column in deducted.items():
                flat = field_name(position, field)
                columns[flat] = column.cast(self.types[flat])
        return columns

    def item(self, *carried: str) -> Column:
        """A partial row as one struct: the ``carried`` columns first, then the fields."""
        return F.struct(*carried, *self.fields)

    def finish(self) -> list[Column]:
        """The result Columns, under the user's names."""
        return self.once("finish", build=self._finish)

    def _finish(self) -> list[Column]:
        return [self._finished(i, op).alias(name) for i, (name, op) in enumerate(self.results)]

    def _finished(self, position: int, operation: AggregateOperation) -> Column:
        lacked, result = self._lacking.get(position), operation.finish(self.fields_of(position))
        # Beside the result, not above it: without any row, what the user has written may divide by zero.
        return result if lacked is None else F.when(F.col(lacked) == 0, result)

    def _combined(self, beside: Sequence[str]) -> CompiledColumns:
        """Aggregate Columns that combine partial rows; operations without ``combine_group`` as lists, to be folded."""
        columns = [*(F.max(name).alias(name) for name in beside), F.sum(ROW_COUNT).alias(ROW_COUNT)]
        for position, (_, operation) in enumerate(self.results):
            if operation.combine_group is None:
                entry = F.struct(*(F.col(field_name(position, field)).alias(field) for field in operation.create))
                columns.append(F.collect_list(entry).alias(field_name(position, "list")))
            else:
                combined = operation.combine_group(self.fields_of(position))
                columns += [self._typed(position, field, column) for field, column in combined.items()]
        return CompiledColumns(columns)

    def _folds(self) -> dict[str, Column]:
        """The folded lists, each as one struct."""
        return {
            field_name(position, "all"): self._fold(position, operation)
            for position, (_, operation) in enumerate(self.results)
            if operation.combine_group is None
        }

    def _unfolded(self) -> list[Column]:
        """The flat fields after :meth:`_folds`."""
        return [
            F.col(field_name(position, "all"))[field].alias(field_name(position, field))
            if operation.combine_group is None
            else F.col(field_name(position, field))
            for position, (_, operation) in enumerate(self.results)
            for field in operation.create
        ]

    def _fold(self, position: int, operation: AggregateOperation) -> Column:
        empty = F.struct(
            *(c.cast(self.types[field_name(position, field)]).alias(field) for field, c in operation.create.items())
        )

        def step(done: Column, item: Column) -> Column:
            combined = operation.combine(
                {field: done[field] for field in operation.create}, {field: item[field] for field in operation.create}
            )
            return F.struct(*(combined[f].cast(self.types[field_name(position, f)]).alias(f) for f in operation.create))

        return F.aggregate(F.col(field_name(position, "list")), empty, step)

    def _typed(self, position: int, field: str, column: Column) -> Column:
        flat = field_name(position, field)
        return column.cast(self.types[flat]).alias(flat)

    def fields_of(self, position: int) -> Mapping[str, Column]:
        """One operation's fields, from the flat columns."""
        return {field: F.col(field_name(position, field)) for field in self.results[position][1].create}

    def fields_in(self, position: int, struct: Column) -> Mapping[str, Column]:
        """One operation's fields, from an :meth:`item`."""
        return {field: struct[field_name(position, field)] for field in self.results[position][1].create}


def _lacked() -> AggregateOperation:
    """No incoming row has any: a number other than 0 was restored with the state."""
    operation = summing({LACKED: "bigint"}, {LACKED: F.count(F.lit(None))}, exact=True)
    return replace(operation, finish=lambda acc: acc[LACKED])


def lacking_name(number: int) -> str:
    """Name of the result that says how many rows an aggregate has not seen."""
    return f"lacking{number}"


def field_name(position: int, field: str) -> str:
    """Name of the flat column of one operation's field."""
    return f"acc{position}_{field}"


def _nullable(found: DataType) -> DataType:
    """The type with every part nullable: Spark refuses casts from a nullable to a non-nullable type."""
    if isinstance(found, ArrayType):
        return ArrayType(_nullable(found.elementType), containsNull=True)
    if isinstance(found, MapType):
        return MapType(_nullable(found.keyType), _nullable(found.valueType), valueContainsNull=True)
    if isinstance(found, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType), nullable=True) for field in found.fields])
    return found
