"""Columns: which of a result's columns make a message, and which values no message can have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import MARKS
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.connectors.message_columns import BYTES, TEXT, TEXTS, MessageColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HEADERS: Mapping[str, str] = {
    "correlation_id": "correlation-id",
    "reply_to": "reply-to",
    "type": "type",
    "content_type": "content-type",
}
"""The JMS headers that a text column sets, with STOMP's names for them."""
COLUMNS = MessageColumns(
    "artemis",
    "message",
    "body",
    {"body": BYTES, **dict.fromkeys(HEADERS, TEXT), "properties": TEXTS},
    'select(F.to_json(F.struct("sym", "px")).alias("body"))',
    ", or into the properties",
)
"""Columns of a message, the same as the source's."""
_OURS = (
    *HEADERS.values(), "ack", "content-length", "destination", "destination-type", "expires", "message-id",
    "persistent", "priority", "receipt", "redelivered", "subscription", "timestamp", "transaction",
    "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", *MARKS,
)  # fmt: skip
"""Names that properties cannot have: STOMP would take them for something else."""
_BROKERS = "_AMQ_"
MOST_HEADERS = 150_000
"""Characters of headers and properties: with a short body they must fit into the broker's journal buffer (490 KiB)."""
MOST_BESIDE_LONG = 45_000
"""The same with a long body, which the broker stores apart: the rest must not be a long message (100 KiB) by itself."""
_LONG_BODY = 50_000
_PER_PROPERTY = 8
"""The broker's storage overhead per property, in characters."""


def messages(rows: DataFrame) -> DataFrame:
    """The rows as they are stored: without null properties; whether a row is early, or shed, is one more property."""
    columns = [F.col(name) for name in rows.columns if name not in {"properties", *MARKS}]
    maps = []
    if "properties" in rows.columns:
        maps.append(F.map_filter("properties", lambda _, value: value.isNotNull()))
    maps += [F.create_map(F.lit(mark), F.col(mark).cast("string")) for mark in MARKS if mark in rows.columns]
    if maps:
        empty = F.create_map().cast("map<string,string>")
        columns.append(F.map_concat(*(F.coalesce(each, empty) for each in maps)).alias("properties"))
    return rows.select(*columns)


def faults(schema: T.StructType) -> list[tuple[str, Column]]:
    """Faults, with conditions, for which the broker would refuse a row after the decision, at every start again."""
    texts = [field.name for field in schema.fields if TEXT.fits(field.dataType)]
    found = [(f"column {name!r} has the character NUL", _has_nul(F.col(name))) for name in texts]
    found += [(f"column {name!r} has text that is not UTF-8", ~F.is_valid_utf8(F.col(name))) for name in texts]
    size = reduce(add, map(_length, [name for name in texts if name != "body"]), F.lit(0))
    if "properties" in schema.fieldNames():
        entries = F.map_entries("properties")
        size += F.aggregate(
            entries,
            F.lit(0),
            lambda total, each: total + _length(each["key"]) + _length(each["value"]) + _PER_PROPERTY,
        )
        names, values = F.map_keys("properties"), F.map_values("properties")
        taken = F.exists(names, lambda name: name.isin(*_OURS) | name.startswith(_BROKERS) | (name == ""))
        found.append((f"a property is called {', '.join(_OURS)}, {_BROKERS}… or nothing", taken))
        for fault, has_it in (("the character NUL", _has_nul), ("text that is not UTF-8", _is_damaged)):
            found.append((f"a property has {fault}", F.exists(names, has_it) | F.exists(values, has_it)))
    found.append((f"headers and properties have more than {MOST_HEADERS} characters", size > MOST_HEADERS))
    if "body" in schema.fieldNames():
        beside_long = (size > MOST_BESIDE_LONG) & (size <= MOST_HEADERS) & (F.octet_length("body") > _LONG_BODY)
        fault = (
            f"headers and properties have more than {MOST_BESIDE_LONG} characters beside a body of {_LONG_BODY} bytes"
        )
        found.append((fault, beside_long))
    return found


def frames(batch: pa.RecordBatch, fixed: Mapping[str, str]) -> Iterator[Frame]:
    """The messages of a batch as made by :func:`messages`, with some headers common to all.

    Those with a length become BytesMessages, those without become TextMessages.
    """
    binary = pa.types.is_binary(batch.schema.field("body").type)
    for row in batch.to_pylist():
        body: Any = row["body"] or b""
        content: bytes = body if isinstance(body, bytes) else body.encode()
        headers = {**fixed, **dict(row.get("properties") or ())}
        for column, header in HEADERS.items():
            value = row.get(column)
            if value is not None:
                headers[header] = value
        if binary:
            headers["content-length"] = str(len(content))
        yield Frame("SEND", headers, content)


def _has_nul(text: Column) -> Column:
    return F.coalesce(text.contains("\0"), F.lit(False))


def _length(text: Column | str) -> Column:
    # The length as a Java string, as the broker keeps it: two for characters outside the basic plane.
    return F.coalesce(F.shiftright(F.octet_length(F.encode(text, "UTF-16BE")), 1), F.lit(0))


def _is_damaged(text: Column) -> Column:
    return F.coalesce(~F.is_valid_utf8(text), F.lit(False))
