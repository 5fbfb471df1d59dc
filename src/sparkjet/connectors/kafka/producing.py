"""Producing Arrow batches into a transaction that is left open: the part of the sink that runs in the executors.

Spark ships this module to its workers, where sparkjet need not be installed, so it imports nothing from sparkjet
except what is shipped with it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import confluent_kafka
import pyarrow as pa
import pyarrow.compute as pc

from sparkjet.connectors.kafka.native import ArrowProducer, library
from sparkjet.sinks.attempt import attempt, pooled_attempt

SLICE = 10_000
SLICE_BYTES = 16 << 20
"""The most rows and bytes that are handed to librdkafka at once."""
WAITING_BYTES = 64 << 20
WAITING_ROWS = 200_000
"""The most bytes and rows that may wait for the brokers, in a task's memory."""
_BYTES = frozenset({"key", "value"})
_HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
_UNDECIDED = -1
"""The partition of a row for which librdkafka chooses one."""
_SINGLY = frozenset({"headers", "partition"})
"""Parts of a message that are lost in a batch, so that the message must be produced on its own."""
_CONFLUENTS = frozenset({"sasl.oauthbearer.metadata.authentication.type", "plugin.library.paths", "logger"})
"""Properties that confluent-kafka does not just hand on: for tokens of AWS it gives librdkafka a callback."""

NAME = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")
NAMES = "1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', but neither '.' nor '..'"
"""Names that Kafka accepts for topics; clients would cut others off at a NUL, or crash."""
_FENCED = (
    "Another start of the query has the transactional id, or the brokers have rolled the transaction back after "
    "kafka.transaction.timeout.ms: raise that if writing takes longer."
)
_REMEDIES = {
    "_FENCED": _FENCED,
    "_FATAL": _FENCED,
    "INVALID_RECORD": "A topic with cleanup.policy=compact takes no row without a key: give each row a column key that "
    "is not null, or set the topic's cleanup.policy to delete.",
    "MSG_SIZE_TOO_LARGE": "Raise the option kafka.message.max.bytes and the topic's max.message.bytes.",
    "UNKNOWN_TOPIC_OR_PART": "Create the topic; the option topic or the column topic names it.",
    "_UNKNOWN_TOPIC": "Create the topic; the option topic or the column topic names it.",
    "_UNKNOWN_PARTITION": "The column partition names one that the topic does not have.",
    "TOPIC_AUTHORIZATION_FAILED": "Allow the user to write to the topic.",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "Allow the user transactional ids that begin with sparkjet/: "
    "kafka-acls.sh --add --allow-principal User:… --operation Write --operation Describe --transactional-id sparkjet/ "
    "--resource-pattern-type prefixed",
    "INVALID_TRANSACTION_TIMEOUT": "Lower the option kafka.transaction.timeout.ms, or raise the brokers' limit.",
    "OFFSET_NOT_AVAILABLE": "Too few replicas of the topic are in sync (min.insync.replicas).",
    "NOT_ENOUGH_REPLICAS": "Too few replicas of the topic are in sync (min.insync.replicas).",
    "_MSG_TIMED_OUT": "The brokers did not take the rows in kafka.message.timeout.ms: they are away, there is no such "
    "topic, or too few of its replicas are in sync (min.insync.replicas).",
    "_TIMED_OUT": "Check that the brokers run, that kafka.bootstrap.servers is right, and that enough replicas are in "
    "sync (min.insync.replicas).",
    "CONCURRENT_TRANSACTIONS": "Brokers are still ending the transaction before, and cannot where too few replicas of "
    "the topic are in sync (min.insync.replicas), a partition has no leader, or the topic refuses what they write "
    "because it is a moment old (message.timestamp.before.max.ms).",
    "INVALID_TIMESTAMP": "Compare this machine's clock with the brokers', and see the topic's "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms.",
}
_OF_ROWS = frozenset({"INVALID_RECORD", "MSG_SIZE_TOO_LARGE", "_UNKNOWN_PARTITION"})
"""Errors of a single row. A missing topic is not one: all rows may be for it, and each look takes half a minute."""

NAMELESS = (
    "a header has no key, and Kafka takes no such header. Leave it out, e.g. with "
    'F.filter("headers", lambda each: each.key.isNotNull()).'
)
CUT_OFF = (
    "a header's key has the character NUL, at which librdkafka would cut it off. Remove it, e.g. with "
    'F.transform("headers", lambda each: each.withField("key", F.replace(each.key, F.lit("\\0")))).'
)


class ProduceError(Exception):
    """Kafka rejected the rows of a task, or could not be reached; the message says what to do."""


class RefusedRowError(ProduceError):
    """Kafka will never take some row of a task, but would take the others."""


def explain(error: confluent_kafka.KafkaError, topic: str | None = None) -> str:
    """The error of librdkafka or a broker, for one topic or for all, on one line, with the remedy."""
    text = " ".join(str(error.str()).split())
    stop = "" if text.endswith(".") else "."
    where = "" if topic is None else f"topic {topic!r}: "
    return f"Kafka: {where}{error.name()}: {text}{stop} {_REMEDIES.get(error.name(), '')}".rstrip()


@dataclass(frozen=True)
class KafkaWriter:
    """Writes each task's rows into its own transaction and leaves it open; stateless, so any task may run it.

    Attributes:
        properties: librdkafka's properties; include the password and are never shown.
        prefix: The prefix of this epoch's transactional ids; None to write without transactions.
        topic: The topic of rows without a column ``topic``.
        patience: Seconds to wait for a broker when a producer starts.
    """

    properties: Mapping[str, str] = field(repr=False)
    prefix: str | None
    topic: str | None
    patience: float = 60.0

    def write(
        self, writer: str, batches: Iterable[pa.RecordBatch], before_prepare: Callable[[], None] = lambda: None
    ) -> tuple[str, int]:
        """Produce the rows; returns the transactional id and the number of rows.

        Once it has returned, every row is on the brokers, in an open transaction: the producer is gone without ending
        it, and the driver commits or aborts it.
        """
        name = "" if self.prefix is None else f"{self.prefix}{writer}"
        filled = iter(batches)
        first = next(filled, None)
        headers = first is not None and "headers" in first.schema.names
        producer: Any = None
        try:
            properties = {**self.properties, "transactional.id": name} if name else self.properties
            producer = producer_of(properties, headers=headers)
            # A new producer epoch for each transaction: otherwise a repeated commit of the last one would commit this.
            if name:
                producer.init_transactions(self.patience)
                producer.begin_transaction()
            queue = Queue(producer)
            for _ in queue.fill([] if first is None else chain([first], filled), self.topic):
                pass
            before_prepare()
            queue.drain()
        except Exception as error:
            # A fenced producer raises SystemError at times.
            if name and producer is not None:
                with contextlib.suppress(Exception):
                    producer.abort_transaction(1)
            if isinstance(error, confluent_kafka.KafkaException):
                kind = RefusedRowError if error.args[0].name() in _OF_ROWS else ProduceError
                raise kind(explain(*error.args)) from error
            if isinstance(error, SystemError):
                raise ProduceError(f"Kafka: the producer of {name!r} was fenced.") from error
            raise
        return name, queue.rows

    def task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The body of a Spark task, for ``mapInArrow``."""
        return attempt(self.write, batches) if self.prefix is None else pooled_attempt(self.write, batches)


def producer_of(properties: Mapping[str, Any], *, headers: bool) -> Any:
    """A producer, of confluent-kafka's kind if the rows or properties need that, or librdkafka cannot be called."""
    # Reports of successful deliveries would cost more than the rows.
    made = {**properties, "delivery.report.only.error": True}
    functions = None if headers or not _CONFLUENTS.isdisjoint(properties) else library()
    return confluent_kafka.Producer(made) if functions is None else ArrowProducer(functions, made)


class Queue:
    """Messages on their way to the brokers, bounded by what a task's memory should hold."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._failed: list[tuple[confluent_kafka.KafkaError, str | None]] = []
        self._arrow = isinstance(producer, ArrowProducer)
        if self._arrow:
            self._failed = producer.failures
            # Of an earlier transaction, which was rolled back.
            self._failed.clear()
        self.rows = 0

    def fill(self, batches: Iterable[pa.RecordBatch], topic: str | None) -> Iterator[int]:
        """Hand rows to librdkafka, in order; yields how many, after each slice."""
        for batch in batches:
            size = 1 + batch.nbytes / max(1, batch.num_rows)
            step = max(1, min(SLICE, int(SLICE_BYTES / size)))
            for start in range(0, batch.num_rows, step):
                part = batch.slice(start, step)
                for where, rows in _by_topic(part, topic):
                    if self._arrow:
                        self._put_rows(where, rows)
                    else:
                        self.put(where, _messages(rows))
                self.make_room(size)
                yield part.num_rows

    def put(self, topic: str, messages: list[dict[str, Any]]) -> None:
        """Hand messages to librdkafka, in order."""
        if self._arrow:
            self._put_rows(topic, pa.RecordBatch.from_pylist(messages))
            return
        # produce_batch drops headers and each message's own partition: librdkafka would choose one.
        if messages and not _SINGLY.isdisjoint(messages[0]):
            for message in messages:
                self._producer.produce(topic, on_delivery=self._delivered, **message)
        elif self._producer.produce_batch(topic, messages, on_delivery=self._delivered) < len(messages):
            self._failed += [(message["_error"], topic) for message in messages if "_error" in message][:1]
        self._have_put(len(messages))

    def _put_rows(self, topic: str, rows: pa.RecordBatch) -> None:
        self._producer.produce_rows(topic, rows)
        self._have_put(rows.num_rows)

    def _have_put(self, count: int) -> None:
        self.rows += count
        self._producer.poll(0)
        self._check()

    def make_room(self, size: float) -> None:
        """Wait until the queue is within its bounds; ``size`` is the size of a row in bytes."""
        # librdkafka's own limit rejects some messages and accepts others after them: their order would be lost.
        most = min(WAITING_ROWS, WAITING_BYTES / size)
        while len(self._producer) > most:
            self._producer.poll(0.01)
            self._check()

    def drain(self) -> None:
        """Wait until the brokers have all messages."""
        # Terminates, as a message fails after message.timeout.ms.
        while self._producer.flush(1.0):
            self._check()
        self._check()

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self._failed.append((error, message.topic()))

    def _check(self) -> None:
        if self._failed:
            raise confluent_kafka.KafkaException(*self._failed[0])


def _by_topic(part: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by their topic, in order within each topic, as librdkafka takes them: without that column."""
    names = part.schema.names
    if "partition" in names:
        part = part.set_column(names.index("partition"), "partition", _partitions(part.column("partition")))
    rows = part.select([name for name in names if name != "topic"])
    if topic is not None:
        yield topic, rows
        return
    topics = part.column("topic").dictionary_encode()
    if topics.null_count:
        refused = "Kafka: the column topic is null in a row. Give each row its topic, or use the option topic."
        raise RefusedRowError(refused)
    # Strings in Spark may have any bytes.
    given = [each.decode(errors="replace") for each in topics.dictionary.cast(pa.binary()).to_pylist()]
    for where in given:
        if not NAME.fullmatch(where):
            refused = f"Kafka: the column topic has {where!r}, which is not a valid name of a topic: {NAMES}."
            raise RefusedRowError(refused)
    for number, where in enumerate(given):
        yield where, rows.filter(pc.equal(topics.indices, number)) if len(given) > 1 else rows


def _partitions(column: pa.Array) -> pa.Array:
    found = pc.fill_null(column.cast(pa.int32()), _UNDECIDED)
    if pc.min(column).as_py() is not None and pc.min(column).as_py() < 0:
        # librdkafka takes -1 for a null.
        message = "Kafka: the column partition has a negative number. Leave it null where the key is to decide."
        raise RefusedRowError(message)
    return found


def _messages(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Messages as confluent-kafka takes them."""
    names = rows.schema.names
    values = [_python(rows.column(name), name) for name in names]
    if names == ["key", "value"]:
        # Takes a third of the time of the general case.
        return [{"key": key, "value": value} for key, value in zip(*values, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _python(column: pa.Array, name: str) -> list[Any]:
    if name in _BYTES:
        column = column.cast(pa.binary())
    elif name == "headers":
        column = column.cast(_HEADERS)
    values: list[Any] = column.to_pylist()
    if name == "headers":
        return [[_header(header) for header in each or () if header] for each in values]
    return values


def _header(header: Mapping[str, Any]) -> tuple[str, bytes | None]:
    key: bytes | None = header["key"]
    # confluent-kafka would send the word None, or what is before the NUL.
    if key is None or b"\0" in key:
        raise RefusedRowError(f"Kafka: {NAMELESS if key is None else CUT_OFF}")
    # Like Spark's own sink: strings in Spark may have any bytes, and an error would come after the decision.
    return key.decode(errors="replace"), header["value"]
