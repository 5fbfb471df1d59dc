"""Column mapping: the names and ids that a Delta table's columns have in its files, whatever they are called now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sparkjet.catalyst.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

PHYSICAL = "delta.columnMapping.physicalName"
_ID = "delta.columnMapping.id"
_PARQUET_ID = "parquet.field.id"
"""Metadata from which Spark's writer takes a field's id."""


def name_in_files(column: StructField) -> str:
    """The name of a table's column in its files and in its log.

    >>> name_in_files(StructField("k", DataType(), metadata={"delta.columnMapping.physicalName": "col-1"}))
    'col-1'
    """
    return str((column.metadata or {}).get(PHYSICAL, column.name))


def in_files(rows: StructType, table: StructType) -> StructType:
    """The schema of rows by the names in a table's files; the rows have the table's names, and fields in its order."""
    return StructType([_renamed(field, table[field.name]) for field in rows.fields])


def as_written(own: str, field: StructField, column: StructField) -> Column:
    """A column of the rows as it is written for a column of the table."""
    stored = _renamed(StructField(column.name, field.dataType, field.nullable), column)
    value = F.col(quoted(own))
    if _ID not in (column.metadata or {}):
        return value.alias(stored.name)
    # Fields are cast by position: their types are the same, and their names and ids become those of the files.
    return value.cast(stored.dataType).alias(stored.name, metadata=stored.metadata)


def _renamed(field: StructField, column: StructField) -> StructField:
    known: dict[str, Any] = column.metadata or {}
    ids = {_PARQUET_ID: known[_ID]} if _ID in known else {}
    return StructField(name_in_files(column), _typed(field.dataType, column.dataType), field.nullable, ids)


def _typed(kind: DataType, there: DataType) -> DataType:
    if isinstance(kind, StructType) and isinstance(there, StructType):
        return StructType([_renamed(own, other) for own, other in zip(kind.fields, there.fields, strict=True)])
    if isinstance(kind, ArrayType) and isinstance(there, ArrayType):
        return ArrayType(_typed(kind.elementType, there.elementType), kind.containsNull)
    if isinstance(kind, MapType) and isinstance(there, MapType):
        key, value = _typed(kind.keyType, there.keyType), _typed(kind.valueType, there.valueType)
        return MapType(key, value, kind.valueContainsNull)
    return kind
