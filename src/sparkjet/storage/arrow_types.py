"""Rows as Arrow and Parquet can hold them, which lack a type of Spark's, and know no nulls where it has some."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from sparkjet.storage.field_names import cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MONTHS = YearMonthIntervalType(YearMonthIntervalType.MONTH, YearMonthIntervalType.MONTH)
"""Spark casts these to numbers and back; of longer units it would keep whole years only, or refuse."""


def counted(schema: StructType) -> StructType:
    """A schema with numbers of months for intervals of months: PyArrow fails at these."""
    return _struct(schema, IntegerType())


def with_counts(rows: DataFrame) -> DataFrame:
    """Rows as their :func:`counted` schema has them."""
    return _cast(_cast(rows, _struct(rows.schema, _MONTHS)), counted(rows.schema))


def without_counts(rows: DataFrame, schema: StructType) -> DataFrame:
    """Rows as they were before :func:`with_counts`."""
    return _cast(_cast(rows, _struct(schema, _MONTHS)), schema)


def nullable(schema: pa.Schema) -> pa.Schema:
    """An Arrow schema in which all but the keys of maps may be null.

    Where a struct is null, Parquet has nulls for its fields, also for those that never are null in another: those that
    Spark has made NOT NULL, and the two that a variant consists of.
    """
    return pa.schema([_nullable(field) for field in schema], schema.metadata)


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_map(kind):
        kind = pa.map_(_nullable(kind.key_field).with_nullable(False), _nullable(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_nullable(each) for each in kind])
    return pa.field(field.name, kind, metadata=field.metadata)


def _cast(rows: DataFrame, schema: StructType) -> DataFrame:
    pairs = list(zip(rows.schema, schema, strict=True))
    if all(field.dataType == wanted.dataType for field, wanted in pairs):
        return rows
    return rows.select(*(cast(field, wanted.dataType) for field, wanted in pairs))


def _struct(schema: StructType, months: DataType) -> StructType:
    return StructType(
        [StructField(each.name, _type(each.dataType, months), each.nullable, each.metadata) for each in schema]
    )


def _type(kind: DataType, months: DataType) -> DataType:
    """A type with another one for intervals of months."""
    if isinstance(kind, YearMonthIntervalType):
        return months
    if isinstance(kind, ArrayType):
        return ArrayType(_type(kind.elementType, months), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_type(kind.keyType, months), _type(kind.valueType, months), kind.valueContainsNull)
    return _struct(kind, months) if isinstance(kind, StructType) else kind
