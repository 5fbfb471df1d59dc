"""The records of a range as Arrow batches."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Message
from pyarrow import compute

from sparkjet.connectors.kafka.consumers import borrow, discard, give_back
from sparkjet.connectors.kafka.reading import Range, Reading
from sparkjet.errors import SourceError

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings
    from sparkjet.connectors.kafka.formats.layout import Decoders

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


def record_batches(
    wanted: Range, settings: KafkaSourceSettings, decoders: Decoders | None = None
) -> Iterator[pa.RecordBatch]:
    """Read a range, in an executor; each batch blocks until its records have arrived.

    Offsets without a record (transaction markers, aborted or compacted records) are skipped.

    Args:
        wanted: The range.
        settings: The settings of the source.
        decoders: What decodes keys and values, with formats.
    """
    consumer = borrow(settings)
    try:
        with _uncollected():
            for messages in Reading(consumer, wanted, settings).messages():
                yield batch_of(messages, wanted.topic, wanted.partition, headers=settings.headers, decoders=decoders)
    except Exception:
        # Not cached for the next attempt, which would get the same broken client.
        discard(consumer)
        raise
    except GeneratorExit:
        # The reader stopped early (LIMIT, or the task was cancelled); nothing is wrong with the consumer.
        give_back(consumer)
        raise
    give_back(consumer)


def batch_of(
    messages: Sequence[Any], topic: str, partition: int, *, headers: bool, decoders: Decoders | None = None
) -> pa.RecordBatch:
    """Messages of one partition, oldest first, with the columns of the source."""
    count = len(messages)
    # No loop in Python: it would take longer than everything else here together.
    kinds, times = zip(*map(Message.timestamp, messages), strict=True)
    keys, values = list(map(Message.key, messages)), list(map(Message.value, messages))
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        _offsets(messages),
        _times(times, messages),
        # Spark counts from Java's -1 (none), librdkafka from 0.
        compute.subtract(pa.array(kinds, pa.int32()), pa.scalar(1, pa.int32())),
    ]
    schema = _SCHEMA
    if headers:
        columns.append(pa.array(list(map(_headers, messages)), _HEADERS))
        schema = schema.append(pa.field("headers", _HEADERS))
    if decoders is None:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    # In the order of the source's columns; one that is new comes last.
    decoded = {**dict(zip(schema.names, columns, strict=True)), **decoders.columns(keys, values, messages)}
    return pa.RecordBatch.from_arrays([*decoded.values()], names=[*decoded])


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause Python's garbage collector, which every thousand messages would trigger, although it would find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _offsets(messages: Sequence[Any]) -> pa.Array:
    first, last = messages[0].offset(), messages[-1].offset()
    # Usually there are no gaps, and neither messages nor Python count.
    if last - first + 1 != len(messages):
        return pa.array(list(map(Message.offset, messages)), pa.int64())
    return compute.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(messages)), start=first - 1)


def _times(milliseconds: Sequence[int], messages: Sequence[Any]) -> pa.Array:
    counted = pa.array(milliseconds, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    try:
        return counted.cast(_SCHEMA.field("timestamp").type)
    except pa.ArrowInvalid as error:
        # Any writer may put any number there; Spark counts microseconds.
        wrong = max(messages, key=lambda each: abs(each.timestamp()[1]))
        raise _unreadable(wrong, f"the time {wrong.timestamp()[1]} ms, which no timestamp can hold") from error


def _headers(message: Any) -> list[dict[str, Any]] | None:
    try:
        found = message.headers()
    except (SystemError, UnicodeError) as error:
        what = "a header whose key is not UTF-8, which confluent-kafka cannot read: leave includeHeaders out"
        raise _unreadable(message, what) from error
    return [{"key": key, "value": value} for key, value in found] if found else None


def _unreadable(message: Any, what: str) -> SourceError:
    """The error for a record that stops the query at every start."""
    where = f"{message.topic()}-{message.partition()}"
    return SourceError(
        f"sparkjet-kafka: the record of {where} at {message.offset()} has {what}. To go on after it: delete the "
        f'records before {message.offset() + 1} there (kafka-delete-records.sh), and set option("failOnDataLoss", '
        '"false").'
    )
