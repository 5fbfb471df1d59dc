"""The column for records that cannot be decoded, with which the query goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

if TYPE_CHECKING:
    from pyspark.sql import Column

MALFORMED = "malformed"
"""Name of the column; null in a record that could be decoded."""
KEY, VALUE, SCHEMA_ID, MESSAGE = "key", "value", "schemaId", "message"
TYPE = T.StructType(
    [
        T.StructField(SCHEMA_ID, T.IntegerType()),
        T.StructField(MESSAGE, T.StringType()),
        T.StructField(KEY, T.BinaryType()),
        T.StructField(VALUE, T.BinaryType()),
    ]
)
"""Its type: the number of the schema that wrote it, if known; what is wrong; and its bytes as they came."""


def tells(schema: T.StructType) -> bool:
    """Whether rows come with the column, as the Kafka source gives it."""
    return any(field.name == MALFORMED and field.dataType == TYPE for field in schema)


def whole() -> Column:
    """A condition that raises for a malformed record, so that it is a dead letter after ``divert``."""
    told = F.coalesce(F.col(f"{MALFORMED}.{MESSAGE}"), F.lit(MALFORMED))
    return F.when(F.col(MALFORMED).isNull(), F.lit(True)).otherwise(F.raise_error(told).cast("boolean"))
