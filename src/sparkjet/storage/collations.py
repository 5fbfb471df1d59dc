"""Collations of strings, at which Spark fails when it reads ORC, or partition columns in any format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from sparkjet.storage.field_names import cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def has_collations(schema: StructType) -> bool:
    """Whether any string in a schema, nested or not, has a collation."""
    return uncollated(schema) != _struct(schema, collations=True)


def uncollated(schema: StructType) -> StructType:
    """The schema to read with: in files and directory names, every string is a plain one."""
    return _struct(schema, collations=False)


def collated(rows: DataFrame, schema: StructType) -> DataFrame:
    """Rows that were read without collations, with the collations of their schema."""
    if not has_collations(schema):
        return rows
    types = {field.name: field.dataType for field in _struct(schema, collations=True)}
    return rows.select(*(cast(field, types[field.name]) for field in rows.schema))


def _struct(schema: StructType, *, collations: bool) -> StructType:
    """The struct as read, where anything may be null."""
    return StructType(
        [
            StructField(field.name, _type(field.dataType, collations=collations), metadata=field.metadata)
            for field in schema
        ]
    )


def _type(kind: DataType, *, collations: bool) -> DataType:
    if isinstance(kind, ArrayType):
        return ArrayType(_type(kind.elementType, collations=collations))
    if isinstance(kind, MapType):
        return MapType(_type(kind.keyType, collations=collations), _type(kind.valueType, collations=collations))
    if isinstance(kind, StructType):
        return _struct(kind, collations=collations)
    plain = collations or not isinstance(kind, StringType) or kind.isUTF8BinaryCollation()
    return kind if plain else StringType()
