"""Columns: which of a result's columns make a message, how they are stored, and what AMQP cannot carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import MARKS
from sparkjet.connectors.message_columns import BYTES, TEXT, TEXTS, Kind, MessageColumns
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

    from sparkjet.connectors.rabbitmq.sink_settings import RabbitSinkSettings

_TEXTS = ("routing_key", "exchange", "message_id", "content_type", "correlation_id", "type")
_COLUMNS = MessageColumns(
    "rabbitmq",
    "message",
    "body",
    {
        "body": BYTES,
        **dict.fromkeys(_TEXTS, TEXT),
        "timestamp": Kind.of("timestamp", T.TimestampType),
        "headers": TEXTS,
    },
    'select(F.col("sym").alias("routing_key"), F.to_json(F.struct("sym", "px")).alias("body"))',
)
"""Columns of a message, named like the source's and like AMQP's properties."""
_LONGEST = 255
"""Maximum length of a short string in AMQP, in bytes."""
_ROUTING = ("CC", "BCC")
"""Headers by which RabbitMQ also routes a message elsewhere; it accepts them only as lists."""
_MOST_HEADERS = 100_000
"""Bytes: they must fit into one frame, of 131,072 bytes with the defaults of broker and client."""


def check_columns(schema: T.StructType, settings: RabbitSinkSettings) -> None:
    """Reject rows that are not messages."""
    _COLUMNS.check(schema)
    if settings.routing_key is None and "routing_key" not in schema.fieldNames():
        message = (
            'rabbitmq: name the routing key of the rows, with option("routingKey", "…") or a column routing_key; in '
            "the default exchange it is the name of a queue."
        )
        raise AnalysisError(message)


def stored(rows: DataFrame, settings: RabbitSinkSettings) -> DataFrame:
    """The rows as they wait: with exchange and routing key, as the options may have changed by then."""
    given = {"exchange": settings.exchange, "routing_key": settings.routing_key}
    if "exchange" not in rows.columns and settings.exchange is None:
        given["exchange"] = ""
    columns = [F.col("body").cast("binary").alias("body")]
    for name in _TEXTS:
        text = given.get(name)
        if text is not None:
            columns.append(F.lit(text).alias(name))
        elif name in rows.columns:
            columns.append(F.col(name).cast("string").alias(name))
    if "timestamp" in rows.columns:
        columns.append(F.unix_seconds("timestamp").alias("timestamp"))
    if "headers" in rows.columns:
        columns.append(F.col("headers").cast("map<string,string>").alias("headers"))
    columns += [F.col(mark).cast("string").alias(mark) for mark in MARKS if mark in rows.columns]
    return rows.select(*columns)


def faults(names: list[str]) -> Iterator[tuple[str, str, Column]]:
    """Values of the stored columns that no broker takes: the column, the fault, and the condition.

    After the decision, such a row would fail the query at every start.
    """
    for name in ("body", "routing_key", "exchange"):
        yield name, "nulls", F.col(name).isNull()
    for name in _TEXTS:
        if name in names:
            yield name, f"more than {_LONGEST} bytes", F.octet_length(name) > _LONGEST
            yield name, "text that is not UTF-8", ~F.is_valid_utf8(F.col(name))
    if "timestamp" in names:
        yield "timestamp", "times before 1970", F.col("timestamp") < 0
    if "headers" in names:
        keys, entries = F.map_keys("headers"), F.map_entries("headers")
        size = F.aggregate(
            entries, F.lit(0), lambda total, each: total + _bytes(each["key"]) + _bytes(each["value"]) + 6
        )
        invalid = F.exists(entries, lambda each: ~_valid(each["key"]) | ~_valid(each["value"]))
        routing = F.exists(keys, lambda key: key.isin(*_ROUTING))
        yield "headers", "keys CC or BCC (a row for each routing key does what they do)", routing
        yield "headers", f"keys of more than {_LONGEST} bytes", F.exists(keys, lambda key: _bytes(key) > _LONGEST)
        yield "headers", f"more than {_MOST_HEADERS} bytes", size > _MOST_HEADERS
        yield "headers", "text that is not UTF-8", invalid


def _bytes(text: Column) -> Column:
    return F.coalesce(F.octet_length(text), F.lit(0))


def _valid(text: Column) -> Column:
    return F.coalesce(F.is_valid_utf8(text), F.lit(True))
