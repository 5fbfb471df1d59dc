"""Columns of maps and journals: which ones there can be, and the text of a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import quoted
from sparkjet.errors import AnalysisError, nearest
from sparkjet.spark_line import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import Column


_TEXTS: dict[type[T.DataType], Callable[[Column], Column]] = {
    **dict.fromkeys((T.ByteType, T.ShortType, T.IntegerType, T.LongType), lambda key: key.cast("string")),
    T.StringType: lambda key: key,
    T.BooleanType: lambda key: key.cast("string"),
    T.DateType: lambda key: F.unix_date(key).cast("string"),
    T.TimestampType: lambda key: F.unix_micros(key).cast("string"),
}
"""The text of a key by type, as in :mod:`sparkjet_grid.map_keys`."""


def key_text(schema: T.StructType, keys: Sequence[str]) -> Column:
    """The text of a key, null if part of it is; columns have passed :func:`check_keys`."""
    parts: list[Column] = []
    for name in keys:
        text = _TEXTS[type(schema[name].dataType)](F.col(quoted(name)))
        parts += [F.length(text).cast("string"), F.lit(":"), text]
    return F.concat(*parts)


def check_keys(schema: T.StructType, keys: Sequence[str], what: str) -> None:
    """Refuse key columns that are missing, or have a type that keys of a map or a journal cannot have."""
    names = schema.fieldNames()
    for name in keys:
        if name not in names:
            raise AnalysisError(f"keys: no column {name!r} in the result; {nearest(name, names)}")
        kind = schema[name].dataType
        if type(kind) not in _TEXTS:
            message = (
                f"keys: {name!r} is {kind.simpleString()}, and a key of a {what} is an integer, a string, a boolean, a "
                "date or a timestamp: a value of another type has no one text. Select a part of it (window.start), or "
                'cast it to one of these (cast("string")).'
            )
            raise AnalysisError(message)
        if "collate" in kind.simpleString():
            message = (
                f"keys: {name!r} is {kind.simpleString()}: texts that are equal by a collation may differ, and one key "
                "would have several rows. Compute a key from it that does not differ, as lower(…) is, and cast it: "
                'cast("string").'
            )
            raise AnalysisError(message)


def check_columns(schema: T.StructType, taken: Sequence[str], what: str) -> None:
    """Refuse columns that a map or a journal adds itself, and those for which Arrow has no type."""
    own = [name for name in schema.fieldNames() if name.lower() in taken]
    if own:
        raise AnalysisError(f"start: a {what} has a column {own[0]!r} itself. Give yours another name.")
    try:
        arrow_schema(schema)
    except Exception as error:
        message = f'start: format("grid-{what}") keeps rows in Arrow, which has no type for one of the columns: {error}'
        raise AnalysisError(message) from error


def kept_as(schema: T.StructType) -> T.StructType:
    """The columns that a map or a journal keeps of some rows: every part may be null, without metadata.

    Whether part of a value may be null, and Spark's metadata, can differ between queries with the same rows.
    """
    return T.StructType([T.StructField(each.name, _plain(each.dataType)) for each in schema.fields])


def _plain(kind: T.DataType) -> T.DataType:
    """A type every part of which may be null, without metadata."""
    if isinstance(kind, T.StructType):
        return kept_as(kind)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_plain(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(_plain(kind.keyType), _plain(kind.valueType))
    return kind


def described(schema: T.StructType) -> str:
    """Columns with their types, for messages."""
    return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in schema.fields)
