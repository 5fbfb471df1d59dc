"""librdkafka's producer, given rows straight from Arrow's memory: as Python objects they would cost as much as sending.

confluent-kafka has no such call, so librdkafka is called with ctypes: the library that confluent-kafka has loaded, by
functions of its public interface. Spark ships this module to its workers, where sparkjet need not be installed, so it
imports nothing from sparkjet.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import cimpl

_POINTER, _INT, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_FUNCTIONS: Mapping[str, tuple[Any, list[Any]]] = {
    "conf_new": (_POINTER, []),
    "conf_set": (_INT, [_POINTER, _TEXT, _TEXT, _TEXT, ctypes.c_size_t]),
    "conf_set_dr_msg_cb": (None, [_POINTER, _POINTER]),
    "conf_destroy": (None, [_POINTER]),
    "new": (_POINTER, [_INT, _POINTER, _TEXT, ctypes.c_size_t]),
    "destroy": (None, [_POINTER]),
    "topic_new": (_POINTER, [_POINTER, _TEXT, _POINTER]),
    "topic_name": (_TEXT, [_POINTER]),
    "topic_destroy": (None, [_POINTER]),
    "produce": (
        _INT,
        [_POINTER, ctypes.c_int32, _INT, _POINTER, ctypes.c_size_t, _POINTER, ctypes.c_size_t, _POINTER],
    ),
    "last_error": (_INT, []),
    "fatal_error": (_INT, [_POINTER, _TEXT, ctypes.c_size_t]),
    "produce_batch": (_INT, [_POINTER, ctypes.c_int32, _INT, _POINTER, _INT]),
    "poll": (_INT, [_POINTER, _INT]),
    "flush": (_INT, [_POINTER, _INT]),
    "outq_len": (_INT, [_POINTER]),
    "init_transactions": (_POINTER, [_POINTER, _INT]),
    "begin_transaction": (_POINTER, [_POINTER]),
    "commit_transaction": (_POINTER, [_POINTER, _INT]),
    "abort_transaction": (_POINTER, [_POINTER, _INT]),
    "error_code": (_INT, [_POINTER]),
    "error_string": (_TEXT, [_POINTER]),
    "error_is_fatal": (_INT, [_POINTER]),
    "error_is_retriable": (_INT, [_POINTER]),
    "error_txn_requires_abort": (_INT, [_POINTER]),
    "error_destroy": (None, [_POINTER]),
}
"""The functions ``rd_kafka_…`` that are called, each with its result and its arguments."""
_PRODUCER, _FROM_PARTITIONER = 0, -1
_COPY = 0x2
"""The flag by which librdkafka copies the bytes."""
_ERROR_SIZE, _INVALID = 512, -186
_WORDS, _VALUE, _VALUE_SIZE, _KEY, _KEY_SIZE = 9, 3, 4, 5, 6
"""The size of ``rd_kafka_message_t`` in words of eight bytes, and what they are; its error is half of the first."""
_TOPIC = 8
"""Where it has its topic, in bytes."""
_FLAGS = ("is_fatal", "is_retriable", "txn_requires_abort")


def library() -> Any:
    """The functions of librdkafka; None if they cannot be called here, as where confluent-kafka hides them."""
    if ctypes.sizeof(_POINTER) != ctypes.sizeof(ctypes.c_int64):
        return None
    try:
        # Its symbols, and those of what it was linked with.
        found = ctypes.CDLL(cimpl.__file__)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(found, f"rd_kafka_{name}")
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return found


class ArrowProducer:
    """A producer with the methods of confluent-kafka's that sparkjet calls; used by one thread.

    Args:
        functions: See :func:`library`.
        properties: librdkafka's properties.

    Attributes:
        failures: Errors of rows that were not delivered, each with its topic, as far as :meth:`poll` has seen them.

    Raises:
        confluent_kafka.KafkaException: From every method.
    """

    def __init__(self, functions: Any, properties: Mapping[str, Any]) -> None:
        self._kafka = functions
        self.failures: list[tuple[confluent_kafka.KafkaError, str | None]] = []
        self._topics: dict[str, int] = {}
        report = _reporting(functions, self.failures)
        self._handle = _created(functions, properties, report)
        ended = weakref.finalize(self, _destroy, functions, self._handle, self._topics, report)
        # A process that ends does not wait for brokers.
        ended.atexit = False

    def __len__(self) -> int:
        return int(self._kafka.rd_kafka_outq_len(self._handle))

    def produce_rows(self, topic: str, rows: pa.RecordBatch) -> None:
        """Hand over rows, in order: columns ``value`` and perhaps ``key`` and ``partition``; their bytes are copied."""
        found = [
            # Until the bytes are copied.
            (rows.column(name).cast(pa.large_binary()), where, size)
            for name, where, size in (("value", _VALUE, _VALUE_SIZE), ("key", _KEY, _KEY_SIZE))
            if name in rows.schema.names
        ]
        messages = bytearray(8 * _WORDS * rows.num_rows)
        words = memoryview(messages).cast("q")
        for column, where, size in found:
            words[where::_WORDS], words[size::_WORDS] = map(_numbers, _pointed(column))
        if "partition" in rows.schema.names:
            partitions = pc.fill_null(rows.column("partition"), _FROM_PARTITIONER).to_pylist()
            self._produce_each(topic, partitions, words)
        else:
            self._produce_all(topic, messages, rows.num_rows)

    def _produce_all(self, topic: str, messages: bytearray, count: int) -> None:
        address = ctypes.addressof(ctypes.c_char.from_buffer(messages))
        taken = self._kafka.rd_kafka_produce_batch(self._topic(topic), _FROM_PARTITIONER, _COPY, address, count)
        if taken < count:
            refused = next(code for code in memoryview(messages).cast("i")[:: 2 * _WORDS] if code)
            self.failures.append((self._refusal(refused), topic))

    def _produce_each(self, topic: str, partitions: Sequence[int], words: memoryview) -> None:
        """Like :meth:`_produce_all`, one by one.

        A batch into named partitions of a topic that is not known yet would add partition -1 to the transaction, which
        the brokers refuse.
        """
        handle, produce = self._topic(topic), self._kafka.rd_kafka_produce
        parts = (words[where::_WORDS].tolist() for where in (_VALUE, _VALUE_SIZE, _KEY, _KEY_SIZE))
        for partition, *message in zip(partitions, *parts, strict=True):
            if produce(handle, partition, _COPY, *message, None):
                self.failures.append((self._refusal(self._kafka.rd_kafka_last_error()), topic))
                return

    def _refusal(self, code: int) -> confluent_kafka.KafkaError:
        if code != confluent_kafka.KafkaError._FATAL:  # noqa: SLF001 - public, its name is librdkafka's
            return confluent_kafka.KafkaError(code)
        # The code says only that there was an error before, which no callback is told of here.
        said = ctypes.create_string_buffer(_ERROR_SIZE)
        self._kafka.rd_kafka_fatal_error(self._handle, said, _ERROR_SIZE)
        return confluent_kafka.KafkaError(code, said.value.decode(errors="replace"), True)

    def poll(self, seconds: float) -> None:
        """Wait for reports of deliveries."""
        self._kafka.rd_kafka_poll(self._handle, _milliseconds(seconds))

    def flush(self, seconds: float) -> int:
        """Wait until the brokers have everything; returns the number of messages that they do not have."""
        self._kafka.rd_kafka_flush(self._handle, _milliseconds(seconds))
        return len(self)

    def init_transactions(self, seconds: float) -> None:
        """Fence others that have the transactional id."""
        self._check(self._kafka.rd_kafka_init_transactions(self._handle, _milliseconds(seconds)))

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._check(self._kafka.rd_kafka_begin_transaction(self._handle))

    def commit_transaction(self, seconds: float) -> None:
        """Commit."""
        self._check(self._kafka.rd_kafka_commit_transaction(self._handle, _milliseconds(seconds)))

    def abort_transaction(self, seconds: float) -> None:
        """Roll back."""
        self._check(self._kafka.rd_kafka_abort_transaction(self._handle, _milliseconds(seconds)))

    def _topic(self, name: str) -> int:
        found = self._topics.get(name)
        if found is None:
            found = self._kafka.rd_kafka_topic_new(self._handle, name.encode(), None)
            if not found:
                raise _error(_INVALID, f"{name!r} cannot be a topic")
            self._topics[name] = found
        return found

    def _check(self, error: int | None) -> None:
        if not error:
            return
        kafka = self._kafka
        code, text = kafka.rd_kafka_error_code(error), kafka.rd_kafka_error_string(error).decode(errors="replace")
        flags = [bool(getattr(kafka, f"rd_kafka_error_{each}")(error)) for each in _FLAGS]
        kafka.rd_kafka_error_destroy(error)
        raise _error(code, text, *flags)


def _created(functions: Any, properties: Mapping[str, Any], report: Any) -> int:
    said, configuration = ctypes.create_string_buffer(_ERROR_SIZE), functions.rd_kafka_conf_new()
    for name, value in properties.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if functions.rd_kafka_conf_set(configuration, name.encode(), text.encode(), said, _ERROR_SIZE):
            functions.rd_kafka_conf_destroy(configuration)
            raise _error(_INVALID, said.value.decode(errors="replace"))
    functions.rd_kafka_conf_set_dr_msg_cb(configuration, ctypes.cast(report, _POINTER))
    handle = functions.rd_kafka_new(_PRODUCER, configuration, said, _ERROR_SIZE)
    if not handle:
        # It owns the configuration only if it succeeds.
        functions.rd_kafka_conf_destroy(configuration)
        raise _error(_INVALID, said.value.decode(errors="replace"))
    created: int = handle
    return created


def _reporting(functions: Any, failures: list[tuple[confluent_kafka.KafkaError, str | None]]) -> Any:
    """A callback that notes failures; it does not refer to the producer, which would then stay as long as it does."""

    def report(_: int, message: int, __: int) -> None:
        code = ctypes.c_int.from_address(message).value
        if code:
            name = functions.rd_kafka_topic_name(_POINTER.from_address(message + _TOPIC).value)
            failures.append((confluent_kafka.KafkaError(code), name.decode(errors="replace")))

    return ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _POINTER)(report)


def _destroy(functions: Any, handle: int, topics: Mapping[str, int], report: Any) -> None:
    del report  # not before
    for each in topics.values():
        functions.rd_kafka_topic_destroy(each)
    functions.rd_kafka_destroy(handle)


def _pointed(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The address and the size of each value, both 0 for a null."""
    _, offsets, data = column.buffers()
    starts = pa.Array.from_buffers(pa.int64(), len(column), [None, offsets], offset=column.offset)
    # Arrow has an address, though of nothing, where no value has a byte: an empty value does not become a null.
    addresses = pc.add(starts, data.address)
    sizes = pc.binary_length(column)
    if column.null_count:
        addresses, sizes = pc.if_else(column.is_valid(), addresses, 0), pc.fill_null(sizes, 0)
    return addresses, sizes


def _numbers(array: pa.Array) -> Any:
    words = memoryview(array.cast(pa.int64()).buffers()[1]).cast("q")
    return words[array.offset : array.offset + len(array)]


def _error(code: int, text: str, *flags: bool) -> confluent_kafka.KafkaException:
    return confluent_kafka.KafkaException(confluent_kafka.KafkaError(code, text, *flags))


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
