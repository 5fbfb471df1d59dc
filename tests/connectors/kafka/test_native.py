"""Rows that librdkafka takes from Arrow's memory: the same records as by confluent-kafka, and the same errors."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from pyspark import cloudpickle

from sparkjet.connectors.kafka import native, producing
from sparkjet.connectors.kafka.native import ArrowProducer, library
from sparkjet.connectors.kafka.producing import KafkaWriter, Queue, explain, producer_of
from sparkjet.sinks import attempt
from tests.protocol.kafka.checks import committed

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


def written(kafka: KafkaServer, topic: str, *batches: pa.RecordBatch) -> list[tuple[Any, Any]]:
    """What readers get."""
    KafkaWriter({**kafka.client(), "enable.idempotence": "true"}, None, topic).write("only", batches)
    return [(message.key(), message.value()) for message in committed(kafka, topic)]


@pytest.mark.parametrize("type_", [pa.binary(), pa.string(), pa.large_binary(), pa.binary_view()])
def test_nulls_and_empty_values_arrive_as_such_from_any_layout(kafka: KafkaServer, type_: pa.DataType) -> None:
    texts = [b"a", b"", None, b"dd", b"e"]
    keys, values = (pa.array(each, pa.binary()).cast(type_) for each in ([b"k", None, b"", b"lk", b"k"], texts))
    whole = pa.record_batch({"key": keys, "value": values})
    # Slices share their memory, and begin in the middle of it.
    found = written(kafka, kafka.topic(), whole.slice(1, 3), whole.slice(4), whole.slice(0, 1))
    expected = list(zip([b"k", None, b"", b"lk", b"k"], texts, strict=True))
    assert found == [*expected[1:], expected[0]]


def test_values_without_a_single_byte_are_no_nulls(kafka: KafkaServer) -> None:
    rows = pa.record_batch({"key": pa.array([b"", b""]), "value": pa.array([b"", None], pa.binary())})
    assert written(kafka, kafka.topic(), rows) == [(b"", b""), (b"", None)]


def test_each_topic_gets_its_rows_in_order(kafka: KafkaServer) -> None:
    topics = [kafka.topic(), kafka.topic()]
    rows = pa.record_batch(
        {"value": pa.array([b"%d" % n for n in range(100)]), "topic": pa.array([topics[n % 3 % 2] for n in range(100)])}
    )
    KafkaWriter({**kafka.client(), "enable.idempotence": "true"}, None, None).write("only", [rows])
    for number, topic in enumerate(topics):
        found = [int(message.value()) for message in committed(kafka, topic)]
        assert found == [n for n in range(100) if n % 3 % 2 == number]


def test_the_same_key_goes_to_the_partition_of_every_other_producer(kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=4)
    keys = [b"key-%d" % number for number in range(50)]
    properties = {**kafka.client(), "partitioner": "murmur2_random"}
    theirs = confluent_kafka.Producer(properties)
    for key in keys:
        theirs.produce(topic, key=key, value=b"theirs")
    theirs.flush()
    written_by = KafkaWriter(properties, None, topic)
    written_by.write("only", [pa.record_batch({"key": pa.array(keys), "value": pa.array([b"ours"] * len(keys))})])
    where = {(message.value(), message.key()): message.partition() for message in committed(kafka, topic)}
    assert [where[b"ours", key] for key in keys] == [where[b"theirs", key] for key in keys]


def test_named_partitions_of_a_topic_that_is_not_known_yet_are_written_in_a_transaction(kafka: KafkaServer) -> None:
    topic, properties = kafka.topic(partitions=3), {**kafka.client(), "transactional.id": "named"}
    producer = producer_of(properties, headers=False)
    producer.init_transactions(60)
    producer.begin_transaction()
    queue = Queue(producer)
    queue.put(topic, [{"key": b"k", "value": b"%d" % n, "partition": n % 3} for n in range(9)])
    queue.drain()
    producer.commit_transaction(60)
    found = sorted((message.partition(), int(message.value())) for message in committed(kafka, topic))
    assert found == [(where, n) for where in range(3) for n in range(where, 9, 3)]


def test_a_row_that_is_refused_at_once_is_an_error_with_its_topic() -> None:
    queue = Queue(producer_of({**NOBODY, "message.max.bytes": "1000"}, headers=False))
    rows = pa.record_batch({"value": pa.array([b"x", bytes(2000), b"y"])})
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        list(queue.fill([rows], "t"))
    error, topic = refused.value.args
    assert (error.code(), topic) == (KafkaError.MSG_SIZE_TOO_LARGE, "t")


def test_rows_that_are_not_delivered_are_an_error_with_their_topic() -> None:
    queue = Queue(producer_of({**NOBODY, "message.timeout.ms": "1"}, headers=False))
    list(queue.fill([pa.record_batch({"value": pa.array([b"x"])})], "t"))
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        queue.drain()
    error, topic = refused.value.args
    assert (error.code(), topic) == (KafkaError._MSG_TIMED_OUT, "t")


def test_a_producer_that_was_fenced_says_so(kafka: KafkaServer) -> None:
    topic, properties = kafka.topic(), {**kafka.client(), "transactional.id": "fenced"}
    first, second = (producer_of(properties, headers=False) for _ in range(2))
    first.init_transactions(60)
    first.begin_transaction()
    second.init_transactions(60)
    first.produce_rows(topic, pa.record_batch({"value": pa.array([b"x"])}))
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        first.commit_transaction(60)
    assert (fenced.value.args[0].code(), fenced.value.args[0].fatal()) == (KafkaError._FENCED, True)
    assert committed(kafka, topic) == []


@pytest.mark.parametrize("columns", [(), ("partition",)])
def test_rows_for_a_producer_that_was_fenced_say_why_they_are_refused(
    kafka: KafkaServer, columns: tuple[str, ...]
) -> None:
    topic, properties = kafka.topic(), {**kafka.client(), "transactional.id": "ended", "linger.ms": "0"}
    first, second = (producer_of(properties, headers=False) for _ in range(2))
    first.init_transactions(60)
    first.begin_transaction()
    second.init_transactions(60)
    rows = pa.record_batch({"value": pa.array([b"x"]), **{name: pa.array([0], pa.int32()) for name in columns}})
    first.produce_rows(topic, rows)
    while not first.failures:
        first.poll(1)
    first.failures.clear()
    first.produce_rows(topic, rows)
    ((error, where),) = first.failures
    assert (error.code(), error.fatal(), where) == (KafkaError._FATAL, True, topic)
    assert "fenced by" in explain(error, where)
    assert "kafka.transaction.timeout.ms" in explain(error, where)


@pytest.mark.parametrize("property_", [("no.such.property", "1"), ("message.max.bytes", "many")])
def test_what_librdkafka_does_not_take_is_an_error_as_of_confluent_kafka(property_: tuple[str, str]) -> None:
    name, value = property_
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        ArrowProducer(library(), {**NOBODY, name: value})
    assert refused.value.args[0].code() == KafkaError._INVALID_ARG
    assert name in str(refused.value)


def test_a_producer_that_nobody_has_is_gone_at_once() -> None:
    producer = producer_of(NOBODY, headers=False)
    producer.produce_rows("t", pa.record_batch({"value": pa.array([b"x"])}))
    gone = weakref.ref(producer)
    gc.disable()
    try:
        # An open transaction must have no producer that could still write when it is decided.
        del producer
        assert gone() is None
    finally:
        gc.enable()


def test_tasks_take_it_with_them_to_where_sparkjet_is_not_installed() -> None:
    shipped = attempt, native, producing
    for module in shipped:
        cloudpickle.register_pickle_by_value(module)
    try:
        writer = cloudpickle.dumps(KafkaWriter(NOBODY, None, "t"))
    finally:
        for module in shipped:
            cloudpickle.unregister_pickle_by_value(module)
    worker = (
        "import sys; sys.modules['sparkjet'] = None\n"
        "from pyspark import cloudpickle; import pyarrow\n"
        "print(cloudpickle.loads(sys.stdin.buffer.read()).write('only', []))"
    )
    answered = subprocess.run([sys.executable, "-c", worker], input=writer, capture_output=True, check=False)
    assert answered.stdout == b"('', 0)\n", answered.stderr.decode()


def test_rows_with_headers_take_the_other_way() -> None:
    assert isinstance(producer_of(NOBODY, headers=True), confluent_kafka.Producer)
    assert isinstance(producer_of(NOBODY, headers=False), ArrowProducer)


def test_properties_that_confluent_kafka_handles_itself_take_the_other_way() -> None:
    # With aws_iam it gives librdkafka a callback, without which there is no token.
    tokens = {**NOBODY, "sasl.oauthbearer.metadata.authentication.type": "none"}
    assert isinstance(producer_of(tokens, headers=False), confluent_kafka.Producer)
