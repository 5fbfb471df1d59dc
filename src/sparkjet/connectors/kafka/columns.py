"""Columns: which columns of a result make up a Kafka record, and how they are converted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import MARKS
from sparkjet.connectors.message_columns import BYTES, TEXT, Kind, MessageColumns
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def _are_headers(kind: T.DataType) -> bool:
    if not isinstance(kind, T.ArrayType) or not isinstance(kind.elementType, T.StructType):
        return False
    inner = kind.elementType
    return inner.fieldNames() == ["key", "value"] and all(
        allowed.fits(part.dataType) for part, allowed in zip(inner.fields, (TEXT, BYTES), strict=True)
    )


_COLUMNS = MessageColumns(
    "kafka",
    "record",
    "value",
    {
        "key": BYTES,
        "value": BYTES,
        "headers": Kind("array<struct<key: string, value: binary>>", _are_headers),
        "topic": TEXT,
        "partition": Kind.of("int", T.IntegerType, T.ShortType, T.ByteType),
    },
    'select(F.col("sym").alias("key"), F.to_json(F.struct("sym", "px")).alias("value"))',
)
"""Columns of a record, as in Spark's Kafka sink."""


def check_columns(schema: T.StructType, topic: str | None) -> None:
    """Reject rows that are not records."""
    _COLUMNS.check(schema)
    if topic is None and "topic" not in schema.fieldNames():
        raise AnalysisError('kafka: name the topic of the rows, with option("topic", "…") or a column topic.')


def records(rows: DataFrame, topic: str | None) -> DataFrame:
    """The rows as the executors read them: ``key`` and ``value`` as they are, the other columns where present.

    Headers say whether a row is early or shed, as the value belongs to the user.
    """
    # Text becomes bytes in Arrow, where that costs nothing: Spark would copy each value.
    types = {field.name: "string" if TEXT.fits(field.dataType) else "binary" for field in rows.schema}
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
