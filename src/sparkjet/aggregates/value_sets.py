"""Value sets: the distinct values of a column, as an array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, NumericType, StringType, StructType

from sparkjet.aggregates.operation import AggregateOperation
from sparkjet.aggregates.values import bound
from sparkjet.spark_line import DATETIMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column


def value_set(value: Column, data_type: DataType, finish: Callable[[Column], Column]) -> AggregateOperation:
    """The operation that keeps the distinct non-null values."""
    values = ArrayType(data_type)
    hashed = _is_hashed(data_type)
    once = F.array_distinct if hashed else _distinct
    # Of texts with a collation, Spark collects no sets.
    collected = F.collect_list(value) if has_collation(data_type) else F.collect_set(value)
    return AggregateOperation(
        accumulate={"values": (collected if hashed else once(collected)).cast(values)},
        create={"values": F.array().cast(values)},
        combine=lambda left, right: {"values": once(F.concat(left["values"], right["values"]))},
        finish=lambda acc: finish(acc["values"]),
        combine_group=lambda acc: {"values": once(F.flatten(F.collect_list(acc["values"])))},
        bounded=False,
    )


def _is_hashed(data_type: DataType) -> bool:
    """Whether array_distinct hashes values of a type; it compares all others pairwise."""
    if isinstance(data_type, StringType):
        return data_type.isUTF8BinaryCollation()
    return isinstance(data_type, (NumericType, BooleanType, *DATETIMES))


def has_collation(data_type: DataType) -> bool:
    """Whether texts in values of a type are compared by other rules than by their bytes."""
    if isinstance(data_type, StructType):
        return any(has_collation(field.dataType) for field in data_type)
    if isinstance(data_type, ArrayType):
        return has_collation(data_type.elementType)
    return isinstance(data_type, StringType) and not data_type.isUTF8BinaryCollation()


def _distinct(values: Column) -> Column:
    return bound(
        F.sort_array(values),
        lambda ordered: F.filter(ordered, lambda value, i: ~value.eqNullSafe(F.get(ordered, i - 1))),
    )
