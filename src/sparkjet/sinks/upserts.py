"""Upserts into tables: the columns by which rows replace older ones, and which of several rows with one key stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sparkjet.catalyst.columns import quoted
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NUMBER = "_sparkjet_number"


def check_there(schema: StructType, keys: Sequence[str]) -> None:
    """Refuse columns that rows do not have."""
    for key in keys:
        if key not in schema.fieldNames():
            message = f"keyColumns: no column {key!r} in the result. Columns: {', '.join(schema.fieldNames())}"
            raise AnalysisError(message)


def check_keys(schema: StructType, keys: Sequence[str]) -> None:
    """Refuse columns by which no rows can be compared."""
    check_there(schema, keys)
    for key in keys:
        if _is_nested(schema[key].dataType):
            message = (
                f"keyColumns: {key!r} is {schema[key].dataType.simpleString()}, which cannot be a key here. "
                f'Take a part of it, select("{key}.…"), or to_json({key}).'
            )
            raise AnalysisError(message)


def check_whole(lacking: Sequence[str], where: str) -> None:
    """Refuse rows that lack columns of the table: the values of replaced rows there would be lost."""
    if lacking:
        message = (
            f"mode=upsert replaces whole rows, and the result has no column {lacking[0]!r} of {where}: what older rows "
            f'have there would be lost. Add it: withColumn("{lacking[0]}", …).'
        )
        raise AnalysisError(message)


def one_per_key(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Among rows with one key, the one with the greatest other columns, in their order; nulls are the least."""
    others = [_ordered(rows, name).desc_nulls_last() for name in rows.columns if name not in keys]
    # Ordered by something in any case: a row number without an order is refused.
    window = Window.partitionBy(*(quoted(key) for key in keys)).orderBy(*(others or [F.lit(0)]))
    numbered = rows.withColumn(_NUMBER, F.row_number().over(window))
    return numbered.where(F.col(_NUMBER) == 1).drop(_NUMBER)


def _ordered(rows: DataFrame, name: str) -> Column:
    """A column in a comparable form: Spark cannot order maps or variants."""
    column = F.col(quoted(name))
    return column if _is_ordered(rows.schema[name].dataType) else column.cast("string")


def _is_ordered(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_ordered(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_ordered(kind.elementType)
    return not isinstance(kind, MapType) and kind.typeName() not in _UNORDERED


def _is_nested(kind: DataType) -> bool:
    return isinstance(kind, StructType | ArrayType | MapType) or kind.typeName() in _UNORDERED


_UNORDERED = {"variant", "geometry", "geography"}
"""Types that not all Spark lines have, by name."""
