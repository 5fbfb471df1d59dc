"""Records of one partition between two offsets, as Arrow batches."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sparkjet.errors import SourceError

if TYPE_CHECKING:
    from sparkjet.sources.kafka.settings import KafkaSourceSettings

logger = logging.getLogger("sparkjet")

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
_GONE = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - its public name
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - as above
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - as above
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_OUT_OF_RANGE,
)
_PASSING = (
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
    KafkaError._MAX_POLL_EXCEEDED,  # noqa: SLF001 - as above
    KafkaError._RESOLVE,  # noqa: SLF001 - as above
    KafkaError._TIMED_OUT,  # noqa: SLF001 - as above
    KafkaError._TRANSPORT,  # noqa: SLF001 - as above
)
_MOST_RECORDS, _FIRST_RECORDS, _MOST_BYTES = 4_000, 1_000, 8 << 20
# A call waits for all that it asks for, and the gaps that transactions leave never come.
_WAIT = 0.05
_ANSWER = 30.0

_consumers: dict[tuple[tuple[str, str], ...], Consumer] = {}
"""By configuration: Spark's workers live on, and a connection with TLS and SASL takes longer than a small batch."""


@dataclass(frozen=True)
class Range:
    """The records of a partition from one offset up to, and without, another."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.end}"


def record_batches(wanted: Range, settings: KafkaSourceSettings) -> Iterator[pa.RecordBatch]:
    """Read a range, in an executor; blocks until all of it is read.

    Offsets without a record (marks of transactions, aborted ones, what compaction removed) are passed over.

    Raises:
        SourceError: The cluster does not answer, refuses, or no longer has the records.
    """
    consumer = _consumer(settings)
    try:
        for messages in _Reading(consumer, wanted, settings).messages():
            yield batch_of(messages, wanted.topic, wanted.partition, headers=settings.headers)
    finally:
        # What was fetched beyond the end must not stay in memory until this worker's next task.
        consumer.unassign()


def batch_of(messages: Sequence[Any], topic: str, partition: int, *, headers: bool) -> pa.RecordBatch:
    """Messages of one partition, oldest first, with the columns of the source."""
    count = len(messages)
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times: list[int] = []
    kinds: list[int] = []
    add_key, add_value, add_time, add_kind = keys.append, values.append, times.append, kinds.append
    # One pass, and no tuple that outlives its turn: several passes over so many objects take twice as long.
    for message in messages:
        add_key(message.key())
        add_value(message.value())
        kind, milliseconds = message.timestamp()
        add_time(milliseconds)
        # Spark counts from Java's -1 (none), librdkafka from 0.
        add_kind(kind - 1)
    first, last = messages[0].offset(), messages[-1].offset()
    # Without gaps, which is the rule, nobody has to be asked for his own.
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


class _Reading:
    """One range on its way out of a consumer."""

    def __init__(self, consumer: Consumer, wanted: Range, settings: KafkaSourceSettings) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._settings = settings
        self._trouble: KafkaError | None = None
        self._position = 0
        self._go_on_at(wanted.start)

    def messages(self) -> Iterator[list[Any]]:
        """The messages, in lists that are not empty."""
        end, size, heard = self._wanted.end, _FIRST_RECORDS, time.monotonic()
        while self._position < end:
            received = self._consumer.consume(min(size, end - self._position), _WAIT)
            found: list[Any] = [message for message in received if message.error() is None]
            reached = found[-1].offset() + 1 if found else self._position
            # First: where records are gone, it goes on behind those that have come.
            self._position = reached
            if len(found) < len(received):
                self._hear(received)
            if not found:
                if self._position < end and time.monotonic() > heard + self._settings.patience:
                    raise SourceError(self._explained(self._trouble))
                continue
            if reached > end:
                found = [message for message in found if message.offset() < end]
            if found:
                size = _sized(found[0])
                yield found
            # Not before: whoever takes the messages may take longer than brokers are waited for.
            heard = time.monotonic()

    def _hear(self, received: Sequence[Any]) -> None:
        """Take note of what is no message."""
        for message in received:
            error = message.error()
            if error is None:
                continue
            code = error.code()
            if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                # Up to here are nothing but gaps.
                self._position = max(self._position, min(message.offset(), self._wanted.end))
            elif code in _GONE:
                self._skip(error)
            elif code in _PASSING or error.retriable():
                self._trouble = error
            else:
                raise SourceError(self._explained(error))

    def _skip(self, error: KafkaError) -> None:
        """Go on where there are records again, if the user said that the query may.

        Raises:
            SourceError: He did not.
        """
        if self._settings.fail_on_data_loss:
            raise SourceError(
                f"sparkjet-kafka: of {self._wanted}, what is at {self._position} has gone: expired, or the topic was "
                f"deleted ({self._settings.shown(error.str())}). Nothing was skipped. To go on without it: "
                'option("failOnDataLoss", "false").'
            )
        partition = TopicPartition(self._wanted.topic, self._wanted.partition)
        try:
            oldest, _ = self._consumer.get_watermark_offsets(partition, min(self._settings.patience, _ANSWER))
        except KafkaException:
            oldest = self._wanted.end
        # Not below what was reached: a broker that has lost its newest records would have us read others twice.
        resumed = oldest if self._position < oldest < self._wanted.end else self._wanted.end
        logger.warning(
            "sparkjet-kafka: of %s, %d to %d have gone and are skipped", self._wanted, self._position, resumed
        )
        self._go_on_at(resumed)

    def _go_on_at(self, position: int) -> None:
        self._position = position
        self._consumer.assign([TopicPartition(self._wanted.topic, self._wanted.partition, position)])

    def _explained(self, error: KafkaError | None) -> str:
        settings = self._settings
        what = "nothing came" if error is None else settings.shown(error.str())
        return (
            f"sparkjet-kafka: reading {self._wanted} from {settings.client['bootstrap.servers']} stopped at "
            f"{self._position}: {what}. Waited for {settings.patience:g} seconds at most (kafkaConsumer.pollTimeoutMs)."
        )


def _sized(message: Any) -> int:
    """How many messages like one are worth a call, and no more bytes than a worker can hold twice."""
    return max(1, min(_MOST_RECORDS, _MOST_BYTES // max(1, len(message))))


def _consumer(settings: KafkaSourceSettings) -> Consumer:
    key = tuple(sorted(settings.client.items()))
    if key not in _consumers:
        # Thousands of messages set the collector off again and again: without this it would walk through all modules
        # each time, which doubles the time of consume().
        gc.freeze()
        _consumers[key] = Consumer(dict(settings.client), logger=logging.getLogger("sparkjet.kafka"))
    return _consumers[key]
