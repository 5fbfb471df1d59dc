"""The executors' part without brokers: what librdkafka receives, in which order, and how much may wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.connectors.kafka import producing
from sparkjet.connectors.kafka.producing import (
    WAITING_BYTES,
    WAITING_ROWS,
    ProduceError,
    Queue,
    RefusedRowError,
    _by_topic,
    explain,
)
from sparkjet.connectors.kafka.producing import _messages as _of_rows
from tests.laws import law


def _messages(part: pa.RecordBatch, topic: str | None) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(where, _of_rows(rows)) for where, rows in _by_topic(part, topic)]


class Waiting:
    """A producer whose brokers accept ten messages per poll."""

    def __init__(self, refuses: KafkaError | None = None) -> None:
        self.given: list[tuple[str, dict[str, Any]]] = []
        self.most = self.waiting = 0
        self._refuses = refuses

    def __len__(self) -> int:
        return self.waiting

    def produce_batch(
        self, topic: str, messages: Sequence[dict[str, Any]], on_delivery: Callable[[Any, Any], None]
    ) -> int:
        if self._refuses is not None:
            messages[-1]["_error"] = self._refuses
            return len(messages) - 1
        self.given += [(topic, message) for message in messages]
        self.waiting += len(messages)
        self.most = max(self.most, self.waiting)
        return len(messages)

    def produce(self, topic: str, on_delivery: Callable[[Any, Any], None], **message: Any) -> None:
        self.produce_batch(topic, [message], on_delivery)

    def poll(self, _: float) -> None:
        self.waiting = max(0, self.waiting - 10_000)

    def flush(self, _: float) -> int:
        self.poll(0)
        return self.waiting


def test_a_topic_that_is_not_text_is_refused_like_other_names() -> None:
    names = pa.array([b"a", b"\xff"]).view(pa.string())
    part = pa.record_batch({"value": pa.array([b"1", b"2"]), "topic": names})
    with pytest.raises(RefusedRowError, match="which is not a valid name of a topic"):
        _messages(part, None)


@law(100)
@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2)), max_size=30))
def test_rows_of_a_topic_keep_their_order(rows: list[tuple[str, int]]) -> None:
    part = pa.record_batch(
        {"value": pa.array([b"%d" % n for n in range(len(rows))]), "topic": pa.array([topic for topic, _ in rows])}
    )
    found = {topic: [int(message["value"]) for message in messages] for topic, messages in _messages(part, None)}
    for topic, numbers in found.items():
        assert numbers == [n for n, (where, _) in enumerate(rows) if where == topic]
    ((where, messages),) = _messages(part, "one") if rows else [("one", [])]
    assert (where, len(messages)) == ("one", len(rows))


def test_every_part_of_a_message_is_there_and_a_null_stays_one() -> None:
    part = pa.record_batch(
        {
            "key": pa.array([b"k", None]),
            "value": pa.array([None, b""]),
            "partition": pa.array([3, None], pa.int32()),
            "headers": [[{"key": "h", "value": b"x"}, {"key": "h", "value": None}], None],
        }
    )
    ((_, messages),) = _messages(part, "t")
    assert messages == [
        {"key": b"k", "value": None, "partition": 3, "headers": [("h", b"x"), ("h", None)]},
        {"key": None, "value": b"", "partition": -1, "headers": []},
    ]


def test_a_header_whose_key_is_not_unicode_is_sent_as_spark_sends_it() -> None:
    texts = pa.array([b"caf\xe9"], pa.binary()).view(pa.string())
    headers = pa.StructArray.from_arrays([texts, pa.array([b"x"])], names=["key", "value"])
    part = pa.record_batch({"value": pa.array([b"x"]), "headers": pa.ListArray.from_arrays([0, 1], headers)})
    [(_, [message])] = _messages(part, "t")
    assert message["headers"] == [("caf\ufffd", b"x")]


@pytest.mark.parametrize(
    ("key", "message"), [(None, r"a header has no key.*F.filter"), ("h\0i", r"the character NUL.*F.transform")]
)
def test_a_header_that_would_arrive_with_another_key_is_refused(key: str | None, message: str) -> None:
    part = pa.record_batch({"value": pa.array([b"x"]), "headers": [[{"key": key, "value": b"x"}]]})
    with pytest.raises(ProduceError, match=message):
        list(_messages(part, "t"))


def test_a_row_without_a_topic_is_refused() -> None:
    part = pa.record_batch({"value": pa.array([b"x"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(ProduceError, match="topic is null"):
        list(_messages(part, None))


@pytest.mark.parametrize("size", [1.0, 1000.0, 10.0 * WAITING_BYTES])
def test_no_more_waits_than_fits_the_memory(size: float) -> None:
    brokers = Waiting()
    queue = Queue(brokers)
    rows = max(1, min(10_000, int(producing.SLICE_BYTES / size)))
    for _ in range(30):
        queue.put("t", [{"value": b""}] * rows)
        queue.make_room(size)
        assert len(brokers) <= min(WAITING_ROWS, WAITING_BYTES / size)
    queue.drain()
    assert (len(brokers), queue.rows) == (0, 30 * rows)


def test_a_message_that_is_refused_at_once_ends_the_task() -> None:
    queue = Queue(Waiting(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)))
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        queue.put("t", [{"value": b"x"}])
    assert "Raise the option kafka.message.max.bytes" in explain(refused.value.args[0])


def test_a_clock_that_brokers_do_not_take_is_named() -> None:
    assert "Compare this machine's clock with the brokers'" in explain(KafkaError(KafkaError.INVALID_TIMESTAMP))
