"""The accumulators of all aggregates of a window, as flat columns of one DataFrame.

A *partial* row is ``(keys…, frame, row_count, accumulator fields…)``. Fields are flat because Catalyst generates
code for sums and maxima of flat columns, not for those of a struct.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sparkjet.aggregate import AggregateOperation
from sparkjet.columns import Once

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROW_COUNT = "row_count"


class Accumulators:
    """Accumulate, combine, deduct and finish for several aggregate operations at once.

    Lives on the driver and only builds Column expressions. Deduct needs every operation to have one: a window's
    aggregates share one pass, so the weakest operation decides (see :class:`sparkjet.windows.SlidingWindows`).

    Args:
        results: Name of the result column and the operation behind it, in output order.
        schema: Schema of the partial rows; the accumulators keep exactly these types through every combine.
    """

    def __init__(self, results: Sequence[tuple[str, AggregateOperation]], schema: StructType) -> None:
        self.results = tuple(results)
        self._types = {field.name: _nullable(field.dataType) for field in schema.fields}
        self.once = Once()

    @staticmethod
    def aggregations(results: Sequence[tuple[str, AggregateOperation]]) -> list[Column]:
        """Aggregate Columns that turn rows into partial rows: the hidden row count first."""
        columns = [F.count(F.lit(1)).alias(ROW_COUNT)]
        for position, (_, operation) in enumerate(results):
            columns += [column.alias(_flat(position, field)) for field, column in operation.accumulate.items()]
        return columns

    @property
    def fields(self) -> list[str]:
        """Names of the flat columns, the row count first."""
        return [ROW_COUNT, *(_flat(i, field) for i, (_, op) in enumerate(self.results) for field in op.create)]

    @property
    def shape(self) -> dict[str, str]:
        """Field name to Spark type, as the fingerprint of a query records it."""
        return {field: self._types[field].simpleString() for field in self.fields}

    @property
    def deductible(self) -> bool:
        """Whether every operation can deduct."""
        return all(op.deduct is not None and op.combine_group is not None for _, op in self.results)

    @property
    def bounded(self) -> bool:
        """Whether no accumulator grows with its input."""
        return all(op.bounded for _, op in self.results)

    def empty(self) -> dict[str, Column]:
        """The fields of no row at all."""
        fields = {ROW_COUNT: F.lit(0).cast("long")}
        for position, (_, operation) in enumerate(self.results):
            for field, column in operation.create.items():
                fields[_flat(position, field)] = column.cast(self._types[_flat(position, field)])
        return fields

    def group(self, partials: DataFrame, *by: str, beside: Mapping[str, Column] | None = None) -> DataFrame:
        """Combine the partial rows that agree in ``by``: one row each with the same fields.

        Args:
            partials: Rows with the fields.
            by: Names of the columns that make a group.
            beside: Further aggregate Columns by name, which stand before the fields in the result.
        """
        extra = beside or {}
        native = self.once("combined", build=self._combined)
        grouped = partials.groupBy(*by).agg(*(column.alias(name) for name, column in extra.items()), *native)
        folds = self.once("folds", build=self._folds)
        if not folds:
            return grouped
        return grouped.withColumns(folds).select(*by, *extra, ROW_COUNT, *self.once("unfolded", build=self._unfolded))

    def running(self, partials: DataFrame, keys: Sequence[str], order: str) -> DataFrame:
        """Replace each row's fields by those of itself and all earlier rows of its key combined."""
        if any(operation.scan is not None for _, operation in self.results):
            lists = partials.groupBy(*keys).agg(self.listed(order).alias("items"))
            scan = self.once("running", order, build=lambda: self.scan(F.col("items"), order).alias("scanned"))
            return lists.select(*keys, scan).select(*keys, F.explode("scanned").alias("item")).select(*keys, "item.*")
        return partials.withColumns(self.once("running", order, *keys, build=lambda: self._running(keys, order)))

    def _running(self, keys: Sequence[str], order: str) -> dict[str, Column]:
        from pyspark.sql.window import Window  # noqa: PLC0415 - pyspark's module needs a running JVM

        window = Window.partitionBy(*keys).orderBy(order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
        columns = {ROW_COUNT: F.sum(ROW_COUNT).over(window)}
        for position, (_, operation) in enumerate(self.results):
            assert operation.combine_group is not None  # noqa: S101 - deductible operations have one
            combined = operation.combine_group(self._accumulator(position))
            for field, column in combined.items():
                flat = _flat(position, field)
                columns[flat] = column.over(window).cast(self._types[flat])
        return columns

    def negated(self, partials: DataFrame) -> DataFrame:
        """Replace each row's fields by what undoes them: the empty accumulator minus this one."""
        return partials.withColumns(self.once("negated", build=self._negated))

    def _negated(self) -> dict[str, Column]:
        columns = {ROW_COUNT: -F.col(ROW_COUNT)}
        for position, (_, operation) in enumerate(self.results):
            assert operation.deduct is not None  # noqa: S101 - deductible operations have one
            deducted = operation.deduct(operation.create, self._accumulator(position))
            for field, column in deducted.items():
                flat = _flat(position, field)
                columns[flat] = column.cast(self._types[flat])
        return columns

    def listed(self, order: str) -> Column:
        """Aggregate Column: the rows of a group as an array of :meth:`item` of ``order``, ascending by that."""
        return self.once("listed", order, build=lambda: self._listed(order))

    def _listed(self, order: str) -> Column:
        items = F.collect_list(self.item(order))
        if not any(_has_map(self._types[field]) for field in self.fields):
            return F.sort_array(items)
        # Spark orders no maps; a comparison by a lambda is slower.
        return F.array_sort(items, lambda a, b: (a[order] > b[order]).cast("int") - (a[order] < b[order]).cast("int"))

    def scan(self, items: Column, carried: str) -> Column:
        """Combine an array of :meth:`item` from its start: element i of the result holds elements 0 to i combined.

        The field ``carried`` stays that of element i.
        """

        def step(done: Column, item: Column) -> Column:
            merged = self._merge(F.element_at(done, -1), item, carried)
            return F.concat(done, F.array(merged))

        rest = F.slice(items, 2, F.greatest(F.size(items) - 1, F.lit(0)))
        native = F.aggregate(rest, F.slice(items, 1, 1), step)
        own: dict[int, Column] = {}
        for position, (_, operation) in enumerate(self.results):
            if operation.scan is not None:
                own[position] = operation.scan(F.transform(items, partial(self._part, position)))
        if not own:
            return native
        zipped = F.arrays_zip(native.alias("native"), *(column.alias(f"own{i}") for i, column in own.items()))

        def united(parts: Column) -> Column:
            fields = [parts["native"][name].alias(name) for name in (carried, ROW_COUNT)]
            for position, (_, operation) in enumerate(self.results):
                for field in operation.create:
                    flat = _flat(position, field)
                    scanned = parts[f"own{position}"][field] if position in own else parts["native"][flat]
                    fields.append(scanned.cast(self._types[flat]).alias(flat))
            return F.struct(*fields)

        return F.transform(zipped, united)

    def item(self, *carried: str) -> Column:
        """A partial row as one struct: the ``carried`` columns first, then the fields."""
        return F.struct(*carried, *self.fields)

    def finish(self) -> list[Column]:
        """The result Columns, named as the user named them."""
        return self.once("finish", build=self._finish)

    def _finish(self) -> list[Column]:
        return [op.finish(self._accumulator(i)).alias(name) for i, (name, op) in enumerate(self.results)]

    def _combined(self) -> list[Column]:
        """Aggregate Columns that combine partial rows, those that can be folded only as lists."""
        columns = [F.sum(ROW_COUNT).alias(ROW_COUNT)]
        for position, (_, operation) in enumerate(self.results):
            if operation.combine_group is None:
                entry = F.struct(*(F.col(_flat(position, field)).alias(field) for field in operation.create))
                columns.append(F.collect_list(entry).alias(_flat(position, "list")))
            else:
                combined = operation.combine_group(self._accumulator(position))
                columns += [self._typed(position, field, column) for field, column in combined.items()]
        return columns

    def _folds(self) -> dict[str, Column]:
        """The lists folded, each into one struct."""
        return {
            _flat(position, "all"): self._fold(position, operation)
            for position, (_, operation) in enumerate(self.results)
            if operation.combine_group is None
        }

    def _unfolded(self) -> list[Column]:
        """The fields after :meth:`_folds`."""
        return [
            F.col(_flat(position, "all"))[field].alias(_flat(position, field))
            if operation.combine_group is None
            else F.col(_flat(position, field))
            for position, (_, operation) in enumerate(self.results)
            for field in operation.create
        ]

    def _merge(self, left: Column, right: Column, carried: str) -> Column:
        """The struct ``right`` with its accumulators combined with those of ``left``; not those that have a scan."""
        changed = {ROW_COUNT: left[ROW_COUNT] + right[ROW_COUNT]}
        for position, (_, operation) in enumerate(self.results):
            if operation.scan is not None:
                changed |= {_flat(position, field): right[_flat(position, field)] for field in operation.create}
                continue
            combined = operation.combine(self._inside(position, left), self._inside(position, right))
            for field, column in combined.items():
                flat = _flat(position, field)
                changed[flat] = column.cast(self._types[flat])
        return F.struct(right[carried].alias(carried), *(changed[name].alias(name) for name in self.fields))

    def _fold(self, position: int, operation: AggregateOperation) -> Column:
        empty = F.struct(
            *(c.cast(self._types[_flat(position, field)]).alias(field) for field, c in operation.create.items())
        )

        def step(done: Column, item: Column) -> Column:
            combined = operation.combine(
                {field: done[field] for field in operation.create}, {field: item[field] for field in operation.create}
            )
            return F.struct(*(combined[f].cast(self._types[_flat(position, f)]).alias(f) for f in operation.create))

        return F.aggregate(F.col(_flat(position, "list")), empty, step)

    def _typed(self, position: int, field: str, column: Column) -> Column:
        flat = _flat(position, field)
        return column.cast(self._types[flat]).alias(flat)

    def _accumulator(self, position: int) -> Mapping[str, Column]:
        return {field: F.col(_flat(position, field)) for field in self.results[position][1].create}

    def _part(self, position: int, struct: Column) -> Column:
        """One operation's fields of a struct, as a struct under their own names."""
        return F.struct(*(column.alias(field) for field, column in self._inside(position, struct).items()))

    def _inside(self, position: int, struct: Column) -> Mapping[str, Column]:
        return {field: struct[_flat(position, field)] for field in self.results[position][1].create}


def _flat(position: int, field: str) -> str:
    return f"acc{position}_{field}"


def _has_map(found: DataType) -> bool:
    """Whether there is a map in a type, or inside of it."""
    if isinstance(found, ArrayType):
        return _has_map(found.elementType)
    if isinstance(found, StructType):
        return any(_has_map(field.dataType) for field in found.fields)
    return isinstance(found, MapType)


def _nullable(found: DataType) -> DataType:
    """The type with every part nullable: Spark refuses to cast to a type that promises more than the value's."""
    if isinstance(found, ArrayType):
        return ArrayType(_nullable(found.elementType), containsNull=True)
    if isinstance(found, MapType):
        return MapType(_nullable(found.keyType), _nullable(found.valueType), valueContainsNull=True)
    if isinstance(found, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType), nullable=True) for field in found.fields])
    return found
