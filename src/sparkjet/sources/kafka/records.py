"""The records of a range as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkjet.sources.kafka.consumers import borrow, discard, give_back
from sparkjet.sources.kafka.reading import Range, Reading

if TYPE_CHECKING:
    from sparkjet.sources.kafka.consumer_settings import KafkaSourceSettings

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)


def record_batches(wanted: Range, settings: KafkaSourceSettings) -> Iterator[pa.RecordBatch]:
    """Read a range, in an executor; each batch blocks until its records have arrived.

    Offsets without a record (transaction markers, aborted or compacted records) are skipped.

    Raises:
        SourceError: The cluster does not answer, refuses, or no longer has the records.
    """
    consumer = borrow(settings)
    try:
        for messages in Reading(consumer, wanted, settings).messages():
            yield batch_of(messages, wanted.topic, wanted.partition, headers=settings.headers)
    except Exception:
        # Not cached for the next attempt, which would get the same broken client.
        discard(consumer)
        raise
    except GeneratorExit:
        # The reader stopped early (LIMIT, or the task was cancelled); nothing is wrong with the consumer.
        give_back(consumer)
        raise
    give_back(consumer)


def batch_of(messages: Sequence[Any], topic: str, partition: int, *, headers: bool) -> pa.RecordBatch:
    """Messages of one partition, oldest first, with the columns of the source."""
    count = len(messages)
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times: list[int] = []
    kinds: list[int] = []
    add_key, add_value, add_time, add_kind = keys.append, values.append, times.append, kinds.append
    # One pass and no lasting tuples: several passes over so many objects take twice as long.
    for message in messages:
        add_key(message.key())
        add_value(message.value())
        kind, milliseconds = message.timestamp()
        add_time(milliseconds)
        # Spark counts from Java's -1 (none), librdkafka from 0.
        add_kind(kind - 1)
    first, last = messages[0].offset(), messages[-1].offset()
    # Usually there are no gaps, and messages need not be asked for their offsets.
    dense = last - first + 1 == count
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array(range(first, last + 1) if dense else [message.offset() for message in messages], pa.int64()),
        pa.array(times, pa.timestamp("ms", tz="UTC")).cast(_SCHEMA.field("timestamp").type),
        pa.array(kinds, pa.int32()),
    ]
    if not headers:
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
    columns.append(pa.array([_headers(message) for message in messages], _HEADERS))
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA.append(pa.field("headers", _HEADERS)))


def _headers(message: Any) -> list[dict[str, Any]] | None:
    found = message.headers()
    return [{"key": key, "value": value} for key, value in found] if found else None
