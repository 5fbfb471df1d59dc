"""Dead letters as Kafka records, with the headers that Kafka Streams gives to those of its dead letter queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType

from sparkjet.catalyst.columns import quoted
from sparkjet.connectors.kafka.formats.malformed import MALFORMED, tells
from sparkjet.plan.diverting import ADDED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ERRORS = "__streams.errors."
"""Prefix of the names of Kafka Streams' headers."""
OWN = "sparkjet.errors."
"""Prefix of the names of headers that only sparkjet knows."""
_STREAMS = {"exception": "_error", "message": "_message", "stacktrace": "_trace"}
_ORIGIN = ("topic", "partition", "offset")
_FURTHER = {"stage": "_stage", "substream": "_substream", "epoch": "_epoch", "outputs": "_outputs"}


def records(letters: DataFrame) -> list[Column]:
    """The columns ``key``, ``value`` and ``headers`` of dead letters."""
    types = {field.name: field.dataType for field in letters.schema}
    rows = [name for name in types if name not in ADDED]
    if isinstance(types.get("value"), BinaryType | StringType):
        value = F.col("value").cast("binary")
    else:
        value = F.to_json(F.struct(*(F.col(quoted(name)) for name in rows))).cast("binary")
    key = F.col("key").cast("binary") if isinstance(types.get("key"), BinaryType | StringType) else None
    if tells(letters.schema):
        # What could not be decoded goes back as it came, with its key.
        come = F.col(MALFORMED).isNotNull()
        value = F.when(come, F.col(f"{MALFORMED}.value")).otherwise(value)
        key = F.when(come, F.col(f"{MALFORMED}.key")).otherwise(F.lit(None) if key is None else key)
    known = {f"{ERRORS}{name}": column for name, column in _STREAMS.items()}
    known |= {f"{ERRORS}{name}": name for name in _ORIGIN if {*_ORIGIN} <= types.keys()}
    known |= {f"{OWN}{name}": column for name, column in _FURTHER.items()}
    headers = F.array(
        *(
            # Numbers as text, as in Kafka Streams.
            F.struct(F.lit(name).alias("key"), F.col(column).cast("string").cast("binary").alias("value"))
            for name, column in known.items()
        )
    )
    if "headers" in types:
        kind = "array<struct<key: string, value: binary>>"
        given = F.coalesce(F.col("headers").cast(kind), F.array().cast(kind))
        headers = F.concat(given, headers)
    return [*([] if key is None else [key.alias("key")]), value.alias("value"), headers.alias("headers")]
