"""Running accumulators: each partial row of a key combined with all rows before it, or all after it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType
from pyspark.sql.window import Window

from sparkjet.catalyst.columns import CompiledColumns
from sparkjet.windows.accumulators import ROW_COUNT, field_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

    from sparkjet.windows.accumulators import Accumulators

_CHUNK = 64
"""Number of elements that a scan appends one by one."""


class Running:
    """Running accumulators by Spark's window functions if every ``combine_group`` is one, else by scanning arrays.

    Lives on the driver and only builds Column expressions.

    Args:
        accumulators: The accumulators in the partial rows.
    """

    def __init__(self, accumulators: Accumulators) -> None:
        self._accumulators = accumulators
        self._once = accumulators.once

    def of_rows(self, partials: DataFrame, keys: Sequence[str], order: str, *, backwards: bool = False) -> DataFrame:
        """Replace each row's fields with the combination of itself and all earlier rows of its key."""
        if self._once("in windows", build=partial(self._fits_windows, partials, keys, order)):
            build = partial(self._over_windows, keys, order, backwards)
            return self._once("running", order, backwards, *keys, build=build).select(partials)
        listed = self._once("listed", order, build=lambda: self._listed(order))
        lists = partials.groupBy(*keys).agg(listed.alias("items"))
        scan = self._once("running", order, backwards, build=lambda: self._over_list(order, backwards))
        return lists.select(*keys, scan).select(*keys, F.explode("scanned").alias("item")).select(*keys, "item.*")

    def following(self, keys: Sequence[str], order: str, *, backwards: bool = False) -> Column:
        """The value of ``order`` in the next row of the key, NULL if there is none."""

        def build() -> Column:
            return F.lead(order).over(_ordered(keys, order, backwards))

        return self._once("following", order, backwards, *keys, build=build)

    def _fits_windows(self, partials: DataFrame, keys: Sequence[str], order: str) -> bool:
        """Whether every ``combine_group`` works as a window function, that is, consists of one aggregate function."""
        operations = [operation for _, operation in self._accumulators.results]
        if any(operation.combine_group is None or operation.scan is not None for operation in operations):
            return False
        try:
            self._over_windows(keys, order, backwards=False).select(partials)
        except AnalysisException:
            return False
        return True

    def _over_list(self, order: str, backwards: bool) -> Column:
        items = F.col("items")
        return (self._scan(F.reverse(items), order) if backwards else self._scan(items, order)).alias("scanned")

    def _over_windows(self, keys: Sequence[str], order: str, backwards: bool) -> CompiledColumns:
        # Not up to the last row of the key, which Spark would recompute for each row.
        window = _ordered(keys, order, backwards).rowsBetween(Window.unboundedPreceding, Window.currentRow)
        columns = [F.sum(ROW_COUNT).over(window).alias(ROW_COUNT)]
        for position, (_, operation) in enumerate(self._accumulators.results):
            assert operation.combine_group is not None  # noqa: S101 - checked by `_fits_windows`
            combined = operation.combine_group(self._accumulators.fields_of(position))
            for field, column in combined.items():
                flat = field_name(position, field)
                columns.append(column.over(window).cast(self._accumulators.types[flat]).alias(flat))
        return CompiledColumns([*keys, order, *columns])

    def _listed(self, order: str) -> Column:
        """Aggregate Column: the rows of a group as an array of structs of ``order`` and fields, in ascending order."""
        items = F.collect_list(self._accumulators.item(order))
        if not any(_has_map(self._accumulators.types[field]) for field in self._accumulators.fields):
            return F.sort_array(items)
        # Spark cannot order maps, and comparing by a lambda is slower.
        return F.array_sort(items, lambda a, b: (a[order] > b[order]).cast("int") - (a[order] < b[order]).cast("int"))

    def _scan(self, items: Column, carried: str) -> Column:
        """Scan an array of :meth:`item`: element i of the result combines elements 0 to i.

        The field ``carried`` keeps its value from element i.
        """
        native = self._combined(items, carried)
        own: dict[int, Column] = {}
        for position, (_, operation) in enumerate(self._accumulators.results):
            if operation.scan is not None:
                own[position] = operation.scan(F.transform(items, partial(self._part, position)))
        if not own:
            return native
        zipped = F.arrays_zip(native.alias("native"), *(column.alias(f"own{i}") for i, column in own.items()))

        def united(parts: Column) -> Column:
            fields = [parts["native"][name].alias(name) for name in (carried, ROW_COUNT)]
            for position, (_, operation) in enumerate(self._accumulators.results):
                for field in operation.create:
                    flat = field_name(position, field)
                    scanned = parts[f"own{position}"][field] if position in own else parts["native"][flat]
                    fields.append(scanned.cast(self._accumulators.types[flat]).alias(flat))
            return F.struct(*fields)

        return F.transform(zipped, united)

    def _combined(self, items: Column, carried: str) -> Column:
        """A scan with ``combine``, in chunks: Spark copies an array to append to it, which is quadratic."""

        def append(done: Column, item: Column) -> Column:
            return F.concat(done, F.array(self._merge(F.element_at(done, -1), item, carried)))

        def scanned(number: Column) -> Column:
            chunk = F.slice(items, number * _CHUNK + 1, _CHUNK)
            return F.aggregate(F.slice(chunk, 2, _CHUNK), F.slice(chunk, 1, 1), append)

        def extend(done: Column, chunk: Column) -> Column:
            last = F.element_at(done, -1)
            return F.concat(done, F.transform(chunk, lambda item: self._merge(last, item, carried)))

        chunks = F.transform(F.sequence(F.lit(0), F.floor((F.size(items) - 1) / _CHUNK).cast("int")), scanned)
        return F.aggregate(F.slice(chunks, 2, F.size(items)), F.element_at(chunks, 1), extend)

    def _merge(self, left: Column, right: Column, carried: str) -> Column:
        """The struct ``right`` with ``left``'s accumulators combined in, except for operations with a scan."""
        changed = {ROW_COUNT: left[ROW_COUNT] + right[ROW_COUNT]}
        for position, (_, operation) in enumerate(self._accumulators.results):
            if operation.scan is not None:
                changed |= {
                    field_name(position, field): right[field_name(position, field)] for field in operation.create
                }
                continue
            combined = operation.combine(
                self._accumulators.fields_in(position, left), self._accumulators.fields_in(position, right)
            )
            for field, column in combined.items():
                flat = field_name(position, field)
                changed[flat] = column.cast(self._accumulators.types[flat])
        return F.struct(
            right[carried].alias(carried), *(changed[name].alias(name) for name in self._accumulators.fields)
        )

    def _part(self, position: int, struct: Column) -> Column:
        """One operation's fields of a struct, as a struct under their own names."""
        return F.struct(
            *(column.alias(field) for field, column in self._accumulators.fields_in(position, struct).items())
        )


def _ordered(keys: Sequence[str], order: str, backwards: bool) -> WindowSpec:
    return Window.partitionBy(*keys).orderBy(F.desc(order) if backwards else F.asc(order))


def _has_map(found: DataType) -> bool:
    """Whether a type is or contains a map."""
    if isinstance(found, ArrayType):
        return _has_map(found.elementType)
    if isinstance(found, StructType):
        return any(_has_map(field.dataType) for field in found.fields)
    return isinstance(found, MapType)
