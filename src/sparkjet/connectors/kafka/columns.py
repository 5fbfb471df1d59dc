"""Columns: which columns of a result make up a Kafka record, and how they are converted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import MARKS
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TEXT = (T.StringType, T.VarcharType, T.CharType)
_BYTES = (*_TEXT, T.BinaryType)
_TYPES = {"key": _BYTES, "value": _BYTES, "topic": _TEXT, "partition": (T.IntegerType, T.ShortType, T.ByteType)}
KNOWN = ("key", "value", "headers", "topic", "partition")
"""Columns of a record, as in Spark's Kafka sink."""
_EXAMPLE = 'select(F.col("sym").alias("key"), F.to_json(F.struct("sym", "px")).alias("value"))'


def check_columns(schema: T.StructType, topic: str | None) -> None:
    """Reject rows that are not records."""
    names = schema.fieldNames()
    if "value" not in names:
        raise AnalysisError(f"kafka: the result needs a column value, e.g. {_EXAMPLE}. Columns: {', '.join(names)}")
    if topic is None and "topic" not in names:
        raise AnalysisError('kafka: name the topic of the rows, with option("topic", "…") or a column topic.')
    for field in schema.fields:
        if field.name not in {*KNOWN, *MARKS} or names.count(field.name) > 1:
            message = (
                f"kafka: column {field.name!r} would be dropped; a record has {', '.join(KNOWN)}, each once. Put it "
                f"into the value, e.g. {_EXAMPLE}."
            )
            raise AnalysisError(message)
        if not _fits(field):
            expected = {
                "headers": "array<struct<key: string, value: binary>>",
                "partition": "int",
                "topic": "string",
            }.get(field.name, "string or binary")
            message = (
                f"kafka: column {field.name!r} has type {field.dataType.simpleString()}, but must have {expected}. "
                "Cast it, or make it text with F.to_json."
            )
            raise AnalysisError(message)


def records(rows: DataFrame, topic: str | None) -> DataFrame:
    """The rows as the executors read them: ``key`` and ``value`` as they are, the other columns where present.

    Headers say whether a row is early or shed, as the value belongs to the user.
    """
    # Text becomes bytes in Arrow, where that costs nothing: Spark would copy each value.
    types = {field.name: "string" if isinstance(field.dataType, _TEXT) else "binary" for field in rows.schema}
    columns = [F.col(name).cast(types[name]).alias(name) for name in ("key", "value") if name in types]
    if topic is None:
        columns.append(F.col("topic").cast("string").alias("topic"))
    if "partition" in types:
        columns.append(F.col("partition").cast("int").alias("partition"))
    headers = [_headers(F.col("headers"))] if "headers" in types else []
    for mark in MARKS:
        if mark in types:
            told = F.struct(F.lit(mark).alias("key"), F.col(mark).cast("string").cast("binary").alias("value"))
            headers.append(F.array(told))
    if headers:
        columns.append((F.concat(*headers) if len(headers) > 1 else headers[0]).alias("headers"))
    return rows.select(*columns)


def _headers(given: Column) -> Column:
    each = F.transform(
        given, lambda h: F.struct(h["key"].cast("string").alias("key"), h["value"].cast("binary").alias("value"))
    )
    return F.coalesce(each, F.array().cast("array<struct<key: string, value: binary>>"))


def _fits(field: T.StructField) -> bool:
    if field.name != "headers":
        return isinstance(field.dataType, _TYPES.get(field.name, (T.BooleanType,)))
    kind = field.dataType
    if not isinstance(kind, T.ArrayType) or not isinstance(kind.elementType, T.StructType):
        return False
    inner = kind.elementType
    return inner.fieldNames() == ["key", "value"] and all(
        isinstance(part.dataType, allowed) for part, allowed in zip(inner.fields, (_TEXT, _BYTES), strict=True)
    )
