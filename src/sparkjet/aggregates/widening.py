"""Widening: saved values in a wider type, and the accumulators of aggregates over columns that have become wider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
)

from sparkjet.aggregates.totals import halves_of

if TYPE_CHECKING:
    from pyspark.sql import Column

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_KEEPING = frozenset(
    {
        *("any", "any_value", "array_agg", "avg", "bool_and", "bool_or", "collect_list", "collect_set", "corr"),
        *("count", "count_if", "covar_pop", "covar_samp", "every", "first", "first_value", "kurtosis", "last"),
        *("last_value", "max", "max_by", "mean", "min", "min_by", "product", "skewness", "some", "std", "stddev"),
        *("stddev_pop", "stddev_samp", "sum", "try_avg", "try_sum", "var_pop", "var_samp", "variance"),
    }
)
"""Functions that have seen the same, whether values were widened before or after. Not so sketches: they hash values."""
_TOTAL, _HALVES = {"total", "count"}, {"high", "low", "count"}


class Widening(Enum):
    """How values of one type are those of another."""

    EXACT = "exact"
    ROUNDED = "rounded"
    """A float is a double, but not the one that the same text is: 0.1."""


def parsed(text: str) -> DataType | None:
    """A type as a record has it; None if that cannot be read back, as names of fields are not quoted there."""
    try:
        return DataType.fromDDL(text)
    except PySparkException:
        return None


def widening(before: DataType, now: DataType) -> Widening | None:
    """How values of a type are those of another, None if they are not."""
    if before == now:
        return Widening.EXACT
    if isinstance(before, ArrayType) and isinstance(now, ArrayType):
        return widening(before.elementType, now.elementType)
    if isinstance(before, MapType) and isinstance(now, MapType):
        return widening(before.valueType, now.valueType) if before.keyType == now.keyType else None
    if isinstance(before, StructType) and isinstance(now, StructType):
        return _of_structs(before, now)
    if isinstance(before, FloatType) and isinstance(now, DoubleType):
        return Widening.ROUNDED
    return Widening.EXACT if _is_wider(before, now) else None


def _of_structs(before: StructType, now: StructType) -> Widening | None:
    found = [widening(one.dataType, other.dataType) for one, other in zip(before, now, strict=False)]
    # What is new comes after the others: structs are compared field by field.
    if before.names != now.names[: len(before.names)] or None in found:
        return None
    return Widening.ROUNDED if Widening.ROUNDED in found else Widening.EXACT


def _is_wider(before: DataType, now: DataType) -> bool:
    """Whether all numbers of a type are in another."""
    if isinstance(before, _WHOLE) and isinstance(now, _WHOLE):
        return _WHOLE.index(type(before)) <= _WHOLE.index(type(now))
    if isinstance(before, DecimalType) and isinstance(now, DecimalType):
        return now.precision - now.scale >= before.precision - before.scale and now.scale >= before.scale
    return False


def widened(value: Column, before: DataType, now: DataType) -> Column:
    """Values of a type as those of a wider one: see :func:`widening`."""
    if isinstance(before, ArrayType) and isinstance(now, ArrayType):
        found = F.transform(value, lambda each: widened(each, before.elementType, now.elementType))
    elif isinstance(before, MapType) and isinstance(now, MapType):
        found = F.transform_values(value, lambda _, each: widened(each, before.valueType, now.valueType))
    elif isinstance(before, StructType) and isinstance(now, StructType):
        known = len(before.names)
        parts = [
            widened(value.getField(one.name), one.dataType, other.dataType).alias(other.name)
            for one, other in zip(before, now, strict=False)
        ]
        parts += [F.lit(None).cast(each.dataType).alias(each.name) for each in now.fields[known:]]
        found = F.when(value.isNotNull(), F.struct(*parts))
    else:
        found = value
    return found.cast(now)


Fields = Mapping[str, str]
"""The types of an accumulator's fields, as a record has them."""
Conversion = Callable[[Mapping[str, "Column"]], Mapping[str, "Column"]]
"""From the fields of an accumulator to those of the same rows after their columns have become wider."""


def conversion(computes: str, before: Fields, now: Fields) -> tuple[Conversion, Widening] | None:
    """How an aggregate's saved accumulators become those of wider columns; None if there is no way.

    Args:
        computes: The aggregate, as the record has it.
        before: The fields that are saved.
        now: The fields that there should be.
    """
    function, _, arguments = computes.partition("(")
    if function.lower() not in _KEEPING or arguments.startswith("DISTINCT"):
        return None
    if before.keys() == _TOTAL and before["total"] == "bigint" and now.keys() == _HALVES:
        return lambda acc: {**halves_of(acc["total"]), "count": acc["count"]}, Widening.EXACT
    if not before.keys() <= now.keys() <= before.keys() | {"broken"}:
        return None
    types: dict[str, tuple[DataType, DataType]] = {}
    kinds = []
    for field, text in before.items():
        one, other = parsed(text), parsed(now[field])
        kind = widening(one, other) if one is not None and other is not None else None
        if one is None or other is None or kind is None:
            return None
        types[field] = one, other
        kinds.append(kind)

    def converted(acc: Mapping[str, Column]) -> Mapping[str, Column]:
        found = {field: widened(acc[field], *types[field]) for field in types}
        # Of decimals that were narrow enough no sum has overflowed.
        return found if before.keys() == now.keys() else {**found, "broken": F.lit(False)}

    return converted, Widening.ROUNDED if Widening.ROUNDED in kinds else Widening.EXACT
