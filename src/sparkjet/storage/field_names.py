"""Names of struct fields in files that are read back: Spark allows two of the same name, Parquet does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def numbered(rows: DataFrame) -> DataFrame:
    """The rows, with numbers before the field names of each struct that has a name twice, as ``struct(n, n)`` does.

    Spark writes such a struct to Parquet, but cannot read it.
    """
    return _renamed(rows, _numbers)


def unnumbered(rows: DataFrame) -> DataFrame:
    """The rows as they were before :func:`numbered`."""
    return _renamed(rows, _without_numbers)


def cast(field: StructField, kind: DataType) -> Column:
    """A column cast to another type, under its name."""
    name = field.name.replace("`", "``")
    column = F.col(f"`{name}`")
    return column if field.dataType == kind else column.cast(kind).alias(field.name)


def _renamed(rows: DataFrame, names: Callable[[list[str]], list[str]]) -> DataFrame:
    types = [(field, _type(field.dataType, names)) for field in rows.schema]
    if all(field.dataType == kind for field, kind in types):
        return rows
    return rows.select(*(cast(field, kind) for field, kind in types))


def _type(kind: DataType, names: Callable[[list[str]], list[str]]) -> DataType:
    if isinstance(kind, ArrayType):
        return ArrayType(_type(kind.elementType, names), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_type(kind.keyType, names), _type(kind.valueType, names), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType(
            [
                StructField(name, _type(field.dataType, names), field.nullable, field.metadata)
                for name, field in zip(names(kind.names), kind, strict=True)
            ]
        )
    return kind


def _numbers(names: list[str]) -> list[str]:
    # Also what looks as if it had been numbered: it would come back without the number.
    if len(set(names)) == len(names) and _without_numbers(names) == names:
        return names
    return [f"{place}:{name}" for place, name in enumerate(names)]


def _without_numbers(names: list[str]) -> list[str]:
    if all(name.startswith(f"{place}:") for place, name in enumerate(names)):
        return [name.partition(":")[2] for name in names]
    return names
