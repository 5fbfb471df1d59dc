"""Rows as texts that can be compared, whatever their types."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
    TimestampType,
)

from sparkjet.catalyst.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Row = tuple[Any, ...]
NEVER_NULL = ("count_distinct", "approx_count_distinct", "collect_list", "array_agg", "collect_set")
"""Functions whose results Spark knows as never null, put together from stored rows or not; a number follows."""
_NUMBER = re.compile(r"-?\d+\.\d+(?:E-?\d+)?")


def texts(frame: DataFrame, *beside: Column) -> DataFrame:
    """The rows as texts: Python has no year 10000, no intervals of months, and other equalities.

    Columns that are given ``beside`` come last, as they are.
    """
    columns = []
    for field in frame.schema:
        column = F.col(quoted(field.name))
        columns.append(F.hex(column) if isinstance(field.dataType, BinaryType) else column.cast("string"))
    return frame.select(*(column.alias(f"_{number}") for number, column in enumerate(columns)), *beside)


def plain(row: Row, schema: StructType) -> Row:
    """A row of texts without what may differ: the last digits of a fraction, and which of equal texts it is."""
    return tuple(_plain(value, field.dataType) for value, field in zip(row, schema, strict=True))


def _plain(value: str | None, kind: Any) -> str | None:
    if value is None:
        return None
    name = kind.simpleString()
    if isinstance(kind, DoubleType | FloatType) or "double" in name or "float" in name:
        value = _NUMBER.sub(lambda found: _rounded(found.group()), value)
    return value.lower() if "collate" in name else value


def _rounded(text: str) -> str:
    number = float(text)
    return "0" if abs(number) < 1e-9 else f"{number:.9g}"


def wrong_columns(found: StructType, wanted: StructType) -> list[str]:
    """Columns of another name, type or place than Spark's, or without nulls where Spark says that there may be some.

    The other way round is mostly right: what is put together from stored rows may be null to Spark, which never is.
    """
    pairs = zip_longest(found, wanted)
    return [f"  found  {_shown(left)}\n  wanted {_shown(right)}" for left, right in pairs if not _fits(left, right)]


def _shown(field: StructField | None) -> str:
    return "nothing" if field is None else f"{field.name} {field.dataType.jsonValue()} nullable={field.nullable}"


def _fits(found: StructField | None, wanted: StructField | None) -> bool:
    if found is None or wanted is None or found.name != wanted.name:
        return False
    if _named(found.dataType) == _named(wanted.dataType) == _named(BOUNDS):
        # Spark's sliding windows may be null until a filter has dropped those, which no one sees.
        return True
    if found.name[:-1] in NEVER_NULL and found.nullable > wanted.nullable:
        return False
    return found.nullable >= wanted.nullable and _covers(found.dataType, wanted.dataType)


def _named(kind: DataType) -> str:
    return kind.simpleString()


def _covers(found: DataType, wanted: DataType) -> bool:
    if isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        return found.containsNull >= wanted.containsNull and _covers(found.elementType, wanted.elementType)
    if isinstance(found, MapType) and isinstance(wanted, MapType):
        values = found.valueContainsNull >= wanted.valueContainsNull and _covers(found.valueType, wanted.valueType)
        return values and _covers(found.keyType, wanted.keyType)
    if isinstance(found, StructType) and isinstance(wanted, StructType):
        return len(found) == len(wanted) and all(map(_fits, found, wanted))
    return found == wanted


BOUNDS = StructType([StructField(name, TimestampType(), nullable=False) for name in ("start", "end")])
