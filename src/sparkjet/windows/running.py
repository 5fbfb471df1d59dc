"""Running accumulators: each partial row of a key combined with all rows before it, or with all after it."""

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
"""Elements that a scan appends one by one."""


class Running:
    """Spark's window functions where it takes every ``combine_group`` as one, else a scan of each key's rows as a list.

    Lives on the driver and only builds Column expressions.

    Args:
        accumulators: What the partial rows hold.
    """

    def __init__(self, accumulators: Accumulators) -> None:
        self._accumulators = accumulators
        self._once = accumulators.once

    def of_rows(self, partials: DataFrame, keys: Sequence[str], order: str, *, backwards: bool = False) -> DataFrame:
        """Replace each row's fields by those of itself and all earlier rows of its key combined.

        Args:
            partials: Rows with the fields, of which no two of a key agree in ``order``.
            keys: Names of the columns that make a key.
            order: Name of the column that says what is earlier.
            backwards: Whether all later rows are combined instead.
        """
        if self._once("in windows", build=partial(self._fits_windows, partials, keys, order)):
            build = partial(self._over_windows, keys, order, backwards)
            return self._once("running", order, backwards, *keys, build=build).select(partials)
        listed = self._once("listed", order, build=lambda: self._listed(order))
        lists = partials.groupBy(*keys).agg(listed.alias("items"))
        scan = self._once("running", order, backwards, build=lambda: self._over_list(order, backwards))
        return lists.select(*keys, scan).select(*keys, F.explode("scanned").alias("item")).select(*keys, "item.*")

    def following(self, keys: Sequence[str], order: str, *, backwards: bool = False) -> Column:
        """What the next row of the same key has in ``order``, NULL where there is none."""

        def build() -> Column:
            return F.lead(order).over(_ordered(keys, order, backwards))

        return self._once("following", order, backwards, *keys, build=build)

    def _fits_windows(self, partials: DataFrame, keys: Sequence[str], order: str) -> bool:
        """Whether Spark takes every ``combine_group`` as a window function: it is one aggregate function, not more."""
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
        # Not a frame to the end of the key, which Spark computes anew for each row.
        window = _ordered(keys, order, backwards).rowsBetween(Window.unboundedPreceding, Window.currentRow)
        columns = [F.sum(ROW_COUNT).over(window).alias(ROW_COUNT)]
        for position, (_, operation) in enumerate(self._accumulators.results):
            assert operation.combine_group is not None  # noqa: S101 - `_fits_windows` has seen to it
            combined = operation.combine_group(self._accumulators.of(position))
            for field, column in combined.items():
                flat = field_name(position, field)
                columns.append(column.over(window).cast(self._accumulators.types[flat]).alias(flat))
        return CompiledColumns([*keys, order, *columns])

    def _listed(self, order: str) -> Column:
        """Aggregate Column: the rows of a group as an array of structs of ``order`` and fields, ascending by that."""
        items = F.collect_list(self._accumulators.item(order))
        if not any(_has_map(self._accumulators.types[field]) for field in self._accumulators.fields):
            return F.sort_array(items)
        # Spark orders no maps; a comparison by a lambda is slower.
        return F.array_sort(items, lambda a, b: (a[order] > b[order]).cast("int") - (a[order] < b[order]).cast("int"))

    def _scan(self, items: Column, carried: str) -> Column:
        """Combine an array of :meth:`item` from its start: element i of the result holds elements 0 to i combined.

        The field ``carried`` stays that of element i.
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
        """A scan with ``combine``, chunk by chunk: Spark copies an array to append to it, which is quadratic."""

        def append(done: Column, item: Column) -> Column:
            return F.concat(done, F.array(self._merge(F.element_at(done, -1), item, carried)))

        def scanned(number: Column) -> Column:
            chunk = F.slice(items, number * _CHUNK + 1, _CHUNK)
            return F.aggregate(F.slice(chunk, 2, _CHUNK), F.slice(chunk, 1, 1), append)

        def go_on(done: Column, chunk: Column) -> Column:
            last = F.element_at(done, -1)
            return F.concat(done, F.transform(chunk, lambda item: self._merge(last, item, carried)))

        chunks = F.transform(F.sequence(F.lit(0), F.floor((F.size(items) - 1) / _CHUNK).cast("int")), scanned)
        return F.aggregate(F.slice(chunks, 2, F.size(items)), F.element_at(chunks, 1), go_on)

    def _merge(self, left: Column, right: Column, carried: str) -> Column:
        """The struct ``right`` with its accumulators combined with those of ``left``; not those that have a scan."""
        changed = {ROW_COUNT: left[ROW_COUNT] + right[ROW_COUNT]}
        for position, (_, operation) in enumerate(self._accumulators.results):
            if operation.scan is not None:
                changed |= {
                    field_name(position, field): right[field_name(position, field)] for field in operation.create
                }
                continue
            combined = operation.combine(
                self._accumulators.inside(position, left), self._accumulators.inside(position, right)
            )
            for field, column in combined.items():
                flat = field_name(position, field)
                changed[flat] = column.cast(self._accumulators.types[flat])
        return F.struct(
            right[carried].alias(carried), *(changed[name].alias(name) for name in self._accumulators.fields)
        )

    def _part(self, position: int, struct: Column) -> Column:
        """One operation's fields of a struct, as a struct under their own names."""
        return F.struct(*(column.alias(field) for field, column in self._accumulators.inside(position, struct).items()))


def _ordered(keys: Sequence[str], order: str, backwards: bool) -> WindowSpec:
    return Window.partitionBy(*keys).orderBy(F.desc(order) if backwards else F.asc(order))


def _has_map(found: DataType) -> bool:
    """Whether there is a map in a type, or inside of it."""
    if isinstance(found, ArrayType):
        return _has_map(found.elementType)
    if isinstance(found, StructType):
        return any(_has_map(field.dataType) for field in found.fields)
    return isinstance(found, MapType)
