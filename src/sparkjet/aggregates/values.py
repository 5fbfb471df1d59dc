"""Types of input values: which can be ordered or summed, and how accumulators store them."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BooleanType,
    DataType,
    IntegralType,
    MapType,
    NumericType,
    StructField,
    StructType,
    UserDefinedType,
    VariantType,
)

from sparkjet.catalyst.expressions import label
from sparkjet.errors import AnalysisError
from sparkjet.spark_line import SPATIAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from sparkjet.aggregates.operation import ColumnOrName, Inputs


def column_of(col: ColumnOrName) -> Column:
    """A column passed by name or as a Column."""
    return F.col(col) if isinstance(col, str) else col


def null_of(data_type: DataType) -> Column:
    """A null of a type."""
    return F.lit(None).cast(data_type)


def bound(value: Column, use: Callable[[Column], Column]) -> Column:
    """What ``use`` makes of a value that it reads several times, in lambdas too, where Spark would compute it anew."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def none_null(*columns: ColumnOrName) -> Column:
    """Whether no column is null."""
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
    """The nullable type of a column whose values must be comparable.

    Raises:
        AnalysisError: They are not; ``why`` says why they are compared.
    """
    data_type = inputs.type_of(col)
    if not is_orderable(data_type):
        raise AnalysisError(
            f"{name}: {label(col)} is {data_type.simpleString()}, which Spark cannot order; {why}. "
            "Use an orderable part of it, e.g. one field, map_entries(…) or to_json(…)."
        )
    return nullable(data_type)


def number(inputs: Inputs, name: str, col: ColumnOrName) -> DataType:
    """The type of a column that must be numeric.

    Raises:
        AnalysisError: It is not, even if Spark would cast it implicitly, as it does with strings.
    """
    data_type = inputs.type_of(col)
    if not isinstance(data_type, NumericType):
        raise AnalysisError(
            f"{name}: {label(col)} is {data_type.simpleString()}, not a number. "
            f'Cast it first, e.g. F.col("{label(col)}").cast("double").'
        )
    return data_type


def integer(inputs: Inputs, name: str, col: ColumnOrName) -> DataType:
    """The type of a column that must be of whole numbers.

    Raises:
        AnalysisError: It is not.
    """
    data_type = inputs.type_of(col)
    if not isinstance(data_type, IntegralType):
        raise AnalysisError(
            f"{name}: {label(col)} is {data_type.simpleString()}, not a whole number. "
            f'Cast it first, e.g. F.col("{label(col)}").cast("bigint").'
        )
    return data_type


def condition(inputs: Inputs, name: str, col: ColumnOrName) -> Column:
    """A column that must be boolean.

    Raises:
        AnalysisError: It is not.
    """
    data_type = inputs.type_of(col)
    if not isinstance(data_type, BooleanType):
        raise AnalysisError(
            f"{name}: {label(col)} is {data_type.simpleString()}, not boolean. "
            f'Give a condition, e.g. F.col("{label(col)}").isNotNull().'
        )
    return column_of(col)


def whole_number(name: str, option: str, value: object, least: int, most: int) -> int:
    """An argument that must be a whole number.

    Raises:
        AnalysisError: It is not a whole number from ``least`` to ``most``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise AnalysisError(f"{name}: {option} is {value!r}; give a whole number from {least} to {most}.")
    return value
