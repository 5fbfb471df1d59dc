"""Messages: the stored rows of an epoch as the publisher sends them, each with an id that repetitions share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pika

from sparkjet.catalyst.columns import MARKS
from sparkjet.connectors.rabbitmq.publisher import Message

if TYPE_CHECKING:
    import pyarrow as pa

_PERSISTENT = 2
_PROPERTIES = ("message_id", "content_type", "correlation_id", "type", "timestamp")


def messages_of(batches: Iterable[pa.RecordBatch], ids: str) -> Iterator[Message]:
    """The rows in order; those without a user's id get ``ids`` and their number."""
    number = 0
    for batch in batches:
        names = batch.schema.names
        columns = [column.to_pylist() for column in batch.columns]
        for values in zip(*columns, strict=True):
            row = dict(zip(names, values, strict=True))
            properties = pika.BasicProperties(
                delivery_mode=_PERSISTENT, headers=_headers(row), **{name: row.get(name) for name in _PROPERTIES}
            )
            if properties.message_id is None:
                properties.message_id = f"{ids}-{number}"
            yield Message(row["exchange"], row["routing_key"], row["body"], properties)
            number += 1


def _headers(row: dict[str, Any]) -> dict[str, str | None] | None:
    headers = dict(row.get("headers") or ())
    headers |= {mark: row[mark] for mark in MARKS if mark in row}
    return headers or None
