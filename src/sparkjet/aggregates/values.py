"""Types of input values: which ones can be ordered or summed, and how accumulators store them."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    IntegralType,
    MapType,
    NumericType,
    StructField,
    StructType,
    TimestampNTZType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from sparkjet.catalyst.expressions import label
from sparkjet.errors import AnalysisError
from sparkjet.spark_line import SPATIAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from sparkjet.aggregates.operation import ColumnOrName, Inputs


_INTERVALS = (DayTimeIntervalType, YearMonthIntervalType)
_AS_NUMBER: tuple[tuple[type[DataType], str], ...] = (
    (BinaryType, 'F.length("{}")'),
    (DateType, 'F.unix_date("{}")'),
    (DayTimeIntervalType, 'F.col("{}").cast("interval second").cast("{}")'),
    (TimestampNTZType, 'F.unix_micros(F.col("{}").cast("timestamp"))'),
    (YearMonthIntervalType, 'F.col("{}").cast("interval month").cast("int")'),
)
"""Conversions to numbers for the types that cannot be cast to numbers."""


def column_of(col: ColumnOrName) -> Column:
    """A column passed by name or as a Column."""
    return F.col(col) if isinstance(col, str) else col


def null_of(data_type: DataType) -> Column:
    """A null of a type."""
    return F.lit(None).cast(data_type)


def bound(value: Column, use: Callable[[Column], Column]) -> Column:
    """The result of ``use`` for a value that it reads several times, in lambdas too, where Spark would recompute it."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def none_null(*columns: ColumnOrName) -> Column:
    """Whether none of the columns is null."""
    present = [column_of(column).isNotNull() for column in columns]
    return reduce(and_, present)


def is_orderable(data_type: DataType) -> bool:
    """Whether Spark can compare values of a type.

    >>> from pyspark.sql.types import ArrayType, MapType, StringType
    >>> is_orderable(ArrayType(StringType())), is_orderable(MapType(StringType(), StringType()))
    (True, False)
    """
    if isinstance(data_type, ArrayType):
        return is_orderable(data_type.elementType)
    if isinstance(data_type, StructType):
        return all(is_orderable(field.dataType) for field in data_type.fields)
    if isinstance(data_type, UserDefinedType):
        return is_orderable(data_type.sqlType())
    return isinstance(data_type, AtomicType) and not isinstance(data_type, (VariantType, *SPATIAL))


def nullable(data_type: DataType) -> DataType:
    """The type with all its parts nullable.

    An accumulator's type must not depend on whether the input happens to be declared NOT NULL: Spark refuses to cast
    an empty accumulator to a type with NOT NULL inside, and stored rows come back nullable.

    >>> from pyspark.sql.types import ArrayType, LongType
    >>> nullable(ArrayType(LongType(), containsNull=False))
    ArrayType(LongType(), True)
    """
    if isinstance(data_type, ArrayType):
        return ArrayType(nullable(data_type.elementType), containsNull=True)
    if isinstance(data_type, MapType):
        return MapType(nullable(data_type.keyType), nullable(data_type.valueType), valueContainsNull=True)
    if isinstance(data_type, StructType):
        fields = [StructField(f.name, nullable(f.dataType), nullable=True, metadata=f.metadata) for f in data_type]
        return StructType(fields)
    return data_type


def orderable_type(inputs: Inputs, name: str, col: ColumnOrName, why: str) -> DataType:
    """The nullable type of a column whose values must be comparable."""
    data_type = inputs.type_of(col)
    if not is_orderable(data_type):
        raise AnalysisError(
            f"{name}: {label(col)} is {data_type.simpleString()}, which Spark cannot order; {why}. "
            "Use an orderable part of it, e.g. one field, map_entries(…) or to_json(…)."
        )
    return nullable(data_type)


def number(inputs: Inputs, name: str, col: ColumnOrName) -> DataType:
    """The type of a column that must be numeric."""
    data_type = inputs.type_of(col)
    if not isinstance(data_type, NumericType):
        raise AnalysisError(
            f"{name}: {label(col)} is {data_type.simpleString()}, not a number. {as_number(data_type, label(col))}"
        )
    return data_type


def summable(inputs: Inputs, name: str, col: ColumnOrName) -> DataType:
    """The type of a column of numbers or intervals."""
    data_type = inputs.type_of(col)
    return data_type if isinstance(data_type, _INTERVALS) else number(inputs, name, col)


def as_number(data_type: DataType, name: str, *, whole: bool = False) -> str:
    """How to turn a column of some type into numbers.

    >>> from pyspark.sql.types import DateType, StringType
    >>> as_number(StringType(), "x"), as_number(DateType(), "x")
    ('Cast it first, e.g. F.col("x").cast("double").', 'Convert it first, e.g. F.unix_date("x").')
    """
    found = next((way for types, way in _AS_NUMBER if isinstance(data_type, types)), None)
    if found is not None:
        return f"Convert it first, e.g. {found.format(name, 'bigint' if whole else 'decimal(18,6)')}."
    if isinstance(data_type, AtomicType) and not isinstance(data_type, (VariantType, *SPATIAL)):
        # A time of day is a number of seconds.
        whole = whole or data_type.simpleString().startswith("time(")
        return f'Cast it first, e.g. F.col("{name}").cast("{"bigint" if whole else "double"}").'
    return "Use a part of it that is one, e.g. a field, an element or its F.size(…)."


def integer(inputs: Inputs, name: str, col: ColumnOrName) -> DataType:
    """The type of a column that must hold integers."""
    data_type = inputs.type_of(col)
    if not isinstance(data_type, IntegralType):
        raise AnalysisError(
            f"{name}: {label(col)} is {data_type.simpleString()}, not a whole number. "
            f"{as_number(data_type, label(col), whole=True)}"
        )
    return data_type


def condition(inputs: Inputs, name: str, col: ColumnOrName) -> Column:
    """A column that must be boolean."""
    data_type = inputs.type_of(col)
    if not isinstance(data_type, BooleanType):
        raise AnalysisError(
            f"{name}: {label(col)} is {data_type.simpleString()}, not boolean. "
            f'Give a condition, e.g. F.col("{label(col)}").isNotNull().'
        )
    return column_of(col)


def whole_number(name: str, option: str, value: object, least: int, most: int) -> int:
    """An argument that must be an integer in a range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise AnalysisError(f"{name}: {option} is {value!r}; give a whole number from {least} to {most}.")
    return value
