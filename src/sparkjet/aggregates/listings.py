"""listagg and string_agg: strings joined in an order independent of their arrival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, BinaryType, StringType, StructField, StructType

from sparkjet.aggregates.collected import in_time_order
from sparkjet.aggregates.operation import Aggregate
from sparkjet.aggregates.value_sets import value_set
from sparkjet.aggregates.values import column_of, orderable_type
from sparkjet.catalyst.expressions import label
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from sparkjet.aggregates.operation import AggregateOperation, ColumnOrName, Inputs


def listagg(col: ColumnOrName, delimiter: str | bytes | None = None) -> Aggregate:
    """The non-null values joined in order of event time, simultaneous ones in ascending order; null if there are none.

    Numbers, dates and the like are cast to string, as in Spark, which joins in order of arrival. The state grows with
    the input: each value is kept with its event time.
    """
    return _joined("listagg", col, delimiter)


def listagg_distinct(col: ColumnOrName, delimiter: str | bytes | None = None) -> Aggregate:
    """The distinct non-null values joined in ascending order of their strings; null if there are none.

    The state grows with the number of distinct values. See :func:`listagg`.
    """
    return _joined("listagg", col, delimiter, distinct=True)


@dataclass(frozen=True)
class SortKey:
    """A key of ``WITHIN GROUP (ORDER BY …)``."""

    column: Column
    descending: bool
    nulls_last: bool


def listed_by(
    name: str, col: ColumnOrName, delimiter: str | bytes | None, keys: Sequence[SortKey], *, distinct: bool
) -> Aggregate:
    """The non-null values joined in the order of keys, then of event time; null if there are none."""

    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = _text_type(name, inputs.type_of(col), delimiter)
        names = [f"key{number}" for number in range(len(keys))]
        types = [orderable_type(inputs, name, key.column, "only ordered values can be sorted") for key in keys]
        fields = dict(zip(names, (key.column for key in keys), strict=True))
        row = F.struct(
            *(column.alias(each) for each, column in fields.items()), column_of(col).cast(data_type).alias("value")
        )
        shape = StructType([*map(StructField, names, types), StructField("value", data_type)])

        def finish(rows: Column) -> Column:
            ordered = F.array_sort(rows, lambda one, other: _compared(one, other, dict(zip(names, keys, strict=True))))
            return F.when(
                F.size(rows) > 0, _join(F.transform(ordered, lambda each: each["value"]), data_type, delimiter)
            )

        listed = F.when(column_of(col).isNotNull(), row)
        if distinct:
            return value_set(listed, shape, finish)
        return in_time_order(inputs, listed, shape, finish)

    return Aggregate(name, resolve)


def _compared(one: Column, other: Column, keys: Mapping[str, SortKey]) -> Column:
    """A number below, at or above zero, as ``array_sort`` takes it, which leaves equal values in their order."""
    result = F.lit(0)
    for name, key in reversed([*keys.items()]):
        left, right = one[name], other[name]
        below, above = (1, -1) if key.descending else (-1, 1)
        null, value = (1, -1) if key.nulls_last else (-1, 1)
        result = (
            F.when(left.eqNullSafe(right), result)
            .when(left.isNull(), null)
            .when(right.isNull(), value)
            .when(left < right, below)
            .otherwise(above)
        )
    return result


def _joined(function: str, col: ColumnOrName, delimiter: str | bytes | None, *, distinct: bool = False) -> Aggregate:
    shown = "NULL" if delimiter is None else delimiter if isinstance(delimiter, str) else f"X'{delimiter.hex()}'"
    name = f"{function}({'DISTINCT ' if distinct else ''}{label(col)}, {shown})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = _text_type(name, inputs.type_of(col), delimiter)
        value = column_of(col).cast(data_type)

        def finish(values: Column) -> Column:
            return F.when(F.size(values) > 0, _join(values, data_type, delimiter))

        if distinct:
            return value_set(value, data_type, lambda values: finish(F.sort_array(values)))
        return in_time_order(inputs, value, data_type, finish)

    return Aggregate(name, resolve)


def _text_type(name: str, data_type: DataType, delimiter: str | bytes | None) -> DataType:
    """The type as which values are joined."""
    if not isinstance(data_type, AtomicType):
        raise AnalysisError(
            f"{name}: {data_type.simpleString()} cannot be joined. Give strings, e.g. by to_json(…) or array_join(…)."
        )
    fitting = bytes if isinstance(data_type, BinaryType) else str
    if delimiter is not None and not isinstance(delimiter, fitting):
        raise AnalysisError(
            f"{name}: the delimiter is {delimiter!r}; give {fitting.__name__} for {data_type.simpleString()}."
        )
    return data_type if isinstance(data_type, (BinaryType, StringType)) else StringType()


def _join(values: Column, data_type: DataType, delimiter: str | bytes | None) -> Column:
    if isinstance(data_type, StringType):
        return F.array_join(values, delimiter if isinstance(delimiter, str) else "")
    # array_join takes strings only; appending in a fold would copy the bytes each time.
    return F.unhex(F.array_join(F.transform(values, F.hex), delimiter.hex() if isinstance(delimiter, bytes) else ""))
