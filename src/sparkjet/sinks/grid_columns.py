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
"""The text of a key by its type, as :mod:`sparkjet.grid.map_keys` has it."""


def key_text(schema: T.StructType, keys: Sequence[str]) -> Column:
    """The text of a key, null where a part of it is; columns have passed :func:`check_keys`."""
    parts: list[Column] = []
    for name in keys:
        text = _TEXTS[type(schema[name].dataType)](F.col(quoted(name)))
        parts += [F.length(text).cast("string"), F.lit(":"), text]
    return F.concat(*parts)


def check_keys(schema: T.StructType, keys: Sequence[str], what: str) -> None:
    """Refuse key columns that are missing, or have a type that keys of a map or a journal cannot have.

    Raises:
        AnalysisError: Naming the column.
    """
    names = schema.fieldNames()
    for name in keys:
        if name not in names:
            message = f"keys: no column {name!r} in the result; {nearest(name, names)}"
            raise AnalysisError(message)
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
    """Refuse columns that a map or a journal has itself, and those that Arrow has no type for.

    Raises:
        AnalysisError: Naming one.
    """
    own = [name for name in schema.fieldNames() if name.lower() in taken]
    if own:
        message = f"start: a {what} has a column {own[0]!r} of its own. Give yours another name."
        raise AnalysisError(message)
    try:
        arrow_schema(schema)
    except Exception as error:
        message = f'start: format("grid-{what}") keeps rows in Arrow, which has no type for one of the columns: {error}'
        raise AnalysisError(message) from error


def described(schema: T.StructType) -> str:
    """Columns with their types, for messages."""
    return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in schema.fields)
