"""The RabbitMQ source against a real broker: what it delivers again, and what ends a query."""

from __future__ import annotations

import datetime as dt
import socket
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika
import pyarrow as pa
import pytest
import tenacity

from sparkjet.connectors.rabbitmq.data_source import FURTHER, ROWS
from sparkjet.connectors.rabbitmq.source import RabbitSource
from sparkjet.connectors.rabbitmq.source_settings import RabbitSettings
from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.arrived import TOGETHER
from sparkjet.sources.acknowledging.contract import ConnectionLostError, Message
from sparkjet.sources.acknowledging.ledger import Ledger
from sparkjet.sources.acknowledging.receiver import Limits, Receiver
from sparkjet.sources.acknowledging.spool import Spool
from tests.connectors.rabbitmq.messages import ids, ready, send
from tests.servers.rabbitmq import RabbitServer
from tests.sources.acknowledging.waiting import until_alone, until_ended

LONG = 60.0
"""Seconds that a test waits at most."""


def settings(server: RabbitServer, *queues: str, **options: object) -> RabbitSettings:
    texts = {name: str(value) for name, value in options.items()}
    return RabbitSettings.of({"host": "127.0.0.1", "port": str(server.port), "queues": ",".join(queues), **texts})


@pytest.fixture
def opened(rabbitmq: RabbitServer) -> Iterator[Callable[..., RabbitSource]]:
    sources: list[RabbitSource] = []

    def make(*queues: str, **options: object) -> RabbitSource:
        sources.append(RabbitSource(settings(rabbitmq, *queues, **options)))
        sources[-1].open()
        return sources[-1]

    yield make
    for each in sources:
        each.close()
        each.close()


def received(source: RabbitSource, count: int) -> list[str | None]:
    """The ids of so many messages, in their order."""
    found: list[str | None] = []
    while len(found) < count:
        found += [message.id for message in source.receive(count - len(found), LONG)]
    return found


@pytest.mark.parametrize("quorum", [False, True])
def test_it_is_alone_when_others_have_put_back_what_they_had(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource], quorum: bool
) -> None:
    queue = rabbitmq.queue(quorum=quorum)
    send(rabbitmq, queue, *ids(0, 3))
    other = opened(queue)
    received(other, 3)
    source = opened(queue)
    assert source.ready() == {queue: 0}
    assert not source.alone
    other.close()
    until_alone(source, queue, 3)


@pytest.mark.parametrize("quorum", [False, True])
def test_a_queue_that_is_held_back_keeps_its_messages_and_what_was_delivered_counts(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource], quorum: bool
) -> None:
    ahead, behind = rabbitmq.queue(quorum=quorum), rabbitmq.queue(quorum=quorum)
    send(rabbitmq, ahead, *ids(0, 30))
    # Each may deliver ten, which arrive when the connection is used next: here, while the consumer is ended.
    source = opened(ahead, behind, maxUnacknowledged=20)
    source.hold([ahead])
    assert received(source, 10) == ids(0, 10)
    source.acknowledge(10)
    send(rabbitmq, behind, *ids(100, 103))
    assert received(source, 3) == ids(100, 103)
    assert source.ready() == {ahead: 20, behind: 0}
    assert source.alone
    # A new connection leaves it alone, too.
    source.open()
    assert received(source, 3) == ids(100, 103)
    assert source.ready() == {ahead: 20, behind: 0}
    source.hold([])
    messages: list[Message] = []
    while len(messages) < 10:
        messages += source.receive(10, LONG)
    assert [each.id for each in messages] == ids(10, 20)
    # Nothing was put back, which the broker would count as a delivery.
    assert not any(each.redelivered for each in messages)
    source.acknowledge(13)
    assert received(source, 10) == ids(20, 30)


@pytest.mark.parametrize("quorum", [False, True])
def test_a_queue_that_is_held_back_again_and_again_is_read_in_its_order(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource], quorum: bool
) -> None:
    ahead, behind = rabbitmq.queue(quorum=quorum), rabbitmq.queue()
    send(rabbitmq, ahead, *ids(0, 71))
    source = opened(ahead, behind, maxUnacknowledged=20)
    messages: list[Message] = []
    for turn in range(1, 11):
        # What the last acknowledgement has made room for is under way; not all is acknowledged when it is let go of.
        source.hold([ahead])
        while len(messages) < 7 * turn:
            messages += source.receive(7 * turn - len(messages), LONG)
        source.acknowledge(7)
        source.hold([])
    assert [each.id for each in messages] == ids(0, 70)
    assert not any(each.redelivered for each in messages)
    assert source.ready() == {ahead: 1, behind: 0}


def test_a_queue_that_is_deleted_while_it_is_held_back_is_examined_again(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]
) -> None:
    queue, other, connection = rabbitmq.queue(), rabbitmq.queue(), rabbitmq.connection()
    send(rabbitmq, queue, *ids(0, 3))
    source = opened(queue, other, maxUnacknowledged=2)
    source.hold([queue])
    assert received(source, 1) == ["m0"]
    connection.channel().queue_delete(queue)
    with pytest.raises(ConnectionLostError, match="no queue"):
        source.ready()
    connection.channel().queue_declare(queue, durable=True, arguments={"x-single-active-consumer": True})
    source.open()
    with pytest.raises(SourceError, match=f"maxWatermarkDrift: queue '{queue}' is ahead and cannot be without"):
        source.hold([queue])
    connection.close()


def test_a_queue_that_is_deleted_right_before_others_are_held_back_is_reported_as_deleted(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]
) -> None:
    queue, other, connection = rabbitmq.queue(), rabbitmq.queue(), rabbitmq.connection()
    source = opened(other, queue)
    connection.channel().queue_delete(queue)
    connection.close()
    assert source._line is not None
    while source._deleted is None:
        # As while an acknowledgement waits for its answer.
        source._line.wait(0.05)
    with pytest.raises(ConnectionLostError, match=f"queue '{queue}' was deleted"):
        source.hold([other])


def test_a_queue_that_was_redeclared_while_it_was_held_back_is_examined_before_it_is_read(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]
) -> None:
    queue, other, connection = rabbitmq.queue(), rabbitmq.queue(), rabbitmq.connection()
    send(rabbitmq, queue, *ids(0, 3))
    source = opened(queue, other, maxUnacknowledged=2)
    source.hold([queue])
    assert received(source, 1) == ["m0"]
    # Between two looks, so that no answer of the broker shows it.
    connection.channel().queue_delete(queue)
    limited = {"x-queue-type": "quorum", "x-delivery-limit": 3}
    connection.channel().queue_declare(queue, durable=True, arguments=limited)
    assert source.ready() == {queue: 0, other: 0}
    with pytest.raises(SourceError, match=f"the broker drops a message of queue '{queue}' after 3 deliveries"):
        source.hold([])
    connection.channel().queue_delete(queue)
    connection.channel().queue_declare(queue, durable=True, arguments={"x-single-active-consumer": True})
    source.hold([])
    with pytest.raises(SourceError, match=f"maxWatermarkDrift: queue '{queue}' is ahead and cannot be without"):
        source.hold([queue])
    connection.close()


@pytest.mark.parametrize("given", [{"auto_delete": True}, {"arguments": {"x-single-active-consumer": True}}])
def test_a_queue_that_cannot_be_without_a_consumer_is_not_held_back(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource], given: dict[str, Any]
) -> None:
    queue, connection = f"t{uuid4().hex}", rabbitmq.connection()
    connection.channel().queue_declare(queue, durable=True, **given)
    send(rabbitmq, queue, "m1")
    source = opened(queue)
    with pytest.raises(SourceError, match=f"maxWatermarkDrift: queue '{queue}' is ahead and cannot be without"):
        source.hold([queue])
    assert received(source, 1) == ["m1"]
    connection.close()


@pytest.mark.parametrize("quorum", [False, True])
def test_what_is_not_acknowledged_comes_again(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource], quorum: bool
) -> None:
    queue = rabbitmq.queue(quorum=quorum)
    send(rabbitmq, queue, *ids(0, 10))
    first = opened(queue)
    assert received(first, 5) == ids(0, 5)
    first.acknowledge(2)
    assert first.ready() == {queue: 5}
    first.close()
    second = opened(queue)
    assert received(second, 8) == ids(2, 10)
    second.acknowledge(8)
    assert second.ready() == {queue: 0}
    second.close()
    assert opened(queue).receive(1, 0.2) == []


@pytest.mark.parametrize(
    "arguments",
    [{"max_priority": 5}, {"queue_mode": "lazy"}, {"max_length": 10, "overflow": "drop-head"}, {"expires": 600_000}],
    ids=lambda arguments: next(iter(arguments)),
)
def test_a_queue_of_any_kind_delivers_again_what_is_not_acknowledged(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource], arguments: dict[str, Any]
) -> None:
    queue = rabbitmq.queue(**arguments)
    send(rabbitmq, queue, *ids(0, 10))
    first = opened(queue)
    assert received(first, 6) == ids(0, 6)
    first.acknowledge(4)
    first.close()
    second = opened(queue)
    assert received(second, 6) == ids(4, 10)
    second.acknowledge(6)
    assert second.ready() == {queue: 0}


def test_messages_with_priorities_come_in_their_order_and_once(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]
) -> None:
    queue = rabbitmq.queue(max_priority=5)
    connection = rabbitmq.connection()
    for number in range(6):
        properties = pika.BasicProperties(message_id=f"m{number}", delivery_mode=2, priority=number)
        connection.channel().basic_publish("", queue, b"", properties)
    connection.close()
    source = opened(queue)
    assert sorted(received(source, 6)[:2]) == ["m4", "m5"]
    source.acknowledge(6)
    assert source.ready() == {queue: 0}


def test_a_queue_that_goes_with_its_consumer_is_read_and_missed_afterwards(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]
) -> None:
    queue = f"t{uuid4().hex}"
    connection = rabbitmq.connection()
    connection.channel().queue_declare(queue, auto_delete=True)
    connection.close()
    send(rabbitmq, queue, "m0")
    source = opened(queue)
    assert received(source, 1) == ["m0"]
    source.acknowledge(1)
    source.close()
    with pytest.raises(SourceError, match=f"NOT_FOUND - no queue '{queue}'"):
        opened(queue)


def test_what_is_held_is_read_though_its_queue_is_purged(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]
) -> None:
    queue = rabbitmq.queue()
    send(rabbitmq, queue, *ids(0, 3))
    source = opened(queue, maxUnacknowledged=2)
    connection = rabbitmq.connection()
    assert received(source, 1) == ["m0"]
    connection.channel().queue_purge(queue)
    connection.close()
    assert received(source, 1) == ["m1"]
    assert source.ready() == {queue: 0}
    source.acknowledge(2)
    send(rabbitmq, queue, "m3")
    assert received(source, 1) == ["m3"]


def test_large_bodies_come_whole(rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]) -> None:
    queue, body = rabbitmq.queue(), bytes(range(256)) * 80_000
    connection = rabbitmq.connection()
    connection.channel().basic_publish("", queue, body, pika.BasicProperties(message_id="m"))
    connection.close()
    source = opened(queue)
    messages: list[Message] = []
    while not messages:
        messages += source.receive(1, LONG)
    assert messages[0].values[0] == body
    source.acknowledge(1)


def test_large_messages_are_received_a_few_at_a_time(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]
) -> None:
    queue, size = rabbitmq.queue(), 3 << 20
    connection = rabbitmq.connection()
    for each in ids(0, 12):
        connection.channel().basic_publish("", queue, bytes(size), pika.BasicProperties(message_id=each))
    connection.close()
    source, found = opened(queue), list[int]()
    while sum(found) < 12:
        found.append(len(source.receive(5_000, LONG)))
    # A spool is no larger by more than that than it may be.
    assert max(found) * size < TOGETHER + size


def test_odd_names_and_passwords_are_nothing_special(rabbitmq: RabbitServer) -> None:
    host, user, password = "a b/ü%2F#?", f"ü:@ {uuid4().hex}", "p\u00e4ss:w@rd/ %&?"
    rabbitmq.add_host(host)
    rabbitmq.add_user(user, password, host=host, read=".*", write=".*", configure=".*")
    odd = pika.ConnectionParameters("127.0.0.1", rabbitmq.port, host, pika.PlainCredentials(user, password))
    queue = "ö q\u00fceue; drop"
    connection = pika.BlockingConnection(odd)
    connection.channel().queue_declare(queue, durable=True)
    connection.channel().basic_publish("", queue, b"", pika.BasicProperties(message_id="m0"))
    connection.close()
    source = RabbitSource(settings(rabbitmq, queue, virtualHost=host, user=user, password=password))
    source.open()
    assert received(source, 1) == ["m0"]
    source.close()


def test_all_queues_are_acknowledged_together(rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]) -> None:
    queues = rabbitmq.queue(), rabbitmq.queue(quorum=True)
    for queue in queues:
        send(rabbitmq, queue, *ids(0, 3))
    source = opened(*queues)
    assert sorted(received(source, 6)) == sorted([*ids(0, 3), *ids(0, 3)])
    source.acknowledge(6)
    source.close()
    assert opened(*queues).ready() == dict.fromkeys(queues, 0)


def test_the_broker_keeps_what_is_beyond_the_limit(rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]) -> None:
    queue = rabbitmq.queue()
    send(rabbitmq, queue, *ids(0, 5))
    source = opened(queue, maxUnacknowledged=2)
    assert received(source, 2) == ids(0, 2)
    assert source.receive(9, 0.2) == []
    source.acknowledge(1)
    assert received(source, 1) == ["m2"]


def test_a_message_has_its_properties(rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]) -> None:
    queue = rabbitmq.queue()
    connection = rabbitmq.connection()
    properties = pika.BasicProperties(
        message_id="m", timestamp=1_700_000_000, content_type="text/plain", correlation_id="c"
    )
    connection.channel().basic_publish("", queue, b"\x00x", properties)
    connection.channel().basic_publish("", queue, b"")
    connection.close()
    source = opened(queue)
    messages = [*source.receive(1, LONG)]
    while len(messages) < 2:
        messages += source.receive(1, LONG)
    first, second = messages
    assert first.values == (b"\x00x", "m", queue, "", queue, 1_700_000_000_000_000, "text/plain", "c")
    assert (second.id, second.values) == (None, (b"", None, queue, "", queue, None, None, None))
    assert len(first.values) == len(ROWS)


def test_a_message_has_its_headers_if_they_are_wanted(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]
) -> None:
    queue = rabbitmq.queue()
    at = dt.datetime(2026, 1, 5, 10, tzinfo=dt.timezone.utc)
    headers = {
        "tier": "gold", "empty": "", "none": None, "tries": 3, "big": 1 << 40, "valid": True, "raw": b"\xff\x00",
        "at": at, "price": Decimal("1.5"), "path": ["a", {"b": None}],
    }  # fmt: skip
    connection = rabbitmq.connection()
    properties = pika.BasicProperties(message_id="m", headers=headers, type="order", reply_to="answers")
    connection.channel().basic_publish("", queue, b"", properties)
    connection.channel().basic_publish("", queue, b"", pika.BasicProperties(message_id="n"))
    connection.close()
    first = opened(queue, includeHeaders=True)
    rich, plain = rows_of(first, 2)
    assert rich["headers"] == {
        "tier": "gold", "empty": "", "none": None, "tries": "3", "big": "1099511627776", "valid": "true", "raw": "/wA=",
        "at": "2026-01-05T10:00:00Z", "price": "1.5", "path": '["a",{"b":null}]',
    }  # fmt: skip
    assert (rich["type"], rich["reply_to"], rich["redelivered"]) == ("order", "answers", False)
    assert [plain[name] for name in FURTHER.names] == [None, None, None, False]
    first.close()
    again = rows_of(opened(queue, includeHeaders=True), 2)
    assert [(row["message_id"], row["redelivered"]) for row in again] == [("m", True), ("n", True)]


def rows_of(source: RabbitSource, count: int) -> list[dict[str, Any]]:
    """The given number of messages, as the spool has them."""
    schema = pa.schema([*ROWS, *FURTHER])
    messages: list[Message] = []
    while len(messages) < count:
        messages += source.receive(count - len(messages), LONG)
    columns = zip(*(message.values for message in messages), strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    rows = pa.record_batch(arrays, schema=schema).to_pylist()
    return [{**row, "headers": None if row["headers"] is None else dict(row["headers"])} for row in rows]


class Raw(pika.BasicProperties):
    """An id and headers, as bytes that pika would not send."""

    def __init__(self, table: bytes) -> None:
        super().__init__()
        self._table = table

    def encode(self) -> list[bytes]:
        flags = self.FLAG_CONTENT_TYPE | self.FLAG_HEADERS | self.FLAG_MESSAGE_ID
        return [struct.pack(">H", flags), b"\x01t", struct.pack(">I", len(self._table)), self._table, b"\x06poison"]


POISON = {
    "year 5.* is out of range": Raw(b"\x01tT" + struct.pack(">Q", 1_800_000_000_000)),
    r"column correlation_id cannot hold b'\\xff\\xfe'": pika.BasicProperties(
        message_id="poison", correlation_id=b"\xff\xfe"
    ),
    "column timestamp cannot hold": pika.BasicProperties(message_id="poison", timestamp=1 << 60),
}
"""By what the error says of it."""


@pytest.mark.parametrize("reason", POISON)
def test_a_message_that_cannot_be_read_ends_the_query_and_is_named(
    rabbitmq: RabbitServer, tmp_path: Path, reason: str
) -> None:
    queue = rabbitmq.queue()
    send(rabbitmq, queue, *ids(0, 5))
    connection = rabbitmq.connection()
    connection.channel().basic_publish("", queue, b"x", POISON[reason])
    connection.close()
    (tmp_path / "spool").mkdir()
    receiver = Receiver(RabbitSource(settings(rabbitmq, queue)), Spool(tmp_path / "spool", ROWS), lambda: 0, Limits())
    receiver.start({}, Ledger())
    try:
        with pytest.raises(SourceError, match=f"message 'poison' of queue '{queue}' cannot be read: .*{reason}"):
            until_ended(receiver)
        with pytest.raises(SourceError, match="'poison'"):
            receiver.state(5)
    finally:
        receiver.stop()
    assert ready(rabbitmq, queue) == [6]


def test_a_queue_that_is_missing_ends_the_query(opened: Callable[..., RabbitSource]) -> None:
    with pytest.raises(SourceError, match="the broker refuses queues missing: NOT_FOUND - no queue 'missing'"):
        opened("missing")


@pytest.mark.parametrize("quorum", [False, True])
def test_a_queue_that_is_read_by_another_single_consumer_is_tried_again_until_that_ends(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource], quorum: bool
) -> None:
    queue = rabbitmq.queue(quorum=quorum, single_active_consumer=True)
    send(rabbitmq, queue, "m0")
    first, second = opened(queue), RabbitSource(settings(rabbitmq, queue))
    assert received(first, 1) == ["m0"]
    for _ in range(2):
        with pytest.raises(ConnectionLostError, match=rf"queue '{queue}' gives its messages to one consumer .* end it"):
            second.open()
    first.close()
    second.open()
    assert received(second, 1) == ["m0"]
    second.close()


def test_a_user_who_may_only_read_reads(
    rabbitmq: RabbitServer, opened: Callable[..., RabbitSource], caplog: pytest.LogCaptureFixture
) -> None:
    queue, stream, other = rabbitmq.queue(), rabbitmq.queue(queue_type="stream"), rabbitmq.queue()
    reader = f"u{uuid4().hex}"
    rabbitmq.add_user(reader, "secret", read=f"{queue}|{stream}")
    send(rabbitmq, queue, "m0")
    assert received(opened(queue, user=reader, password="secret"), 1) == ["m0"]
    assert f"after some deliveries of queue {queue!r}" in caplog.text
    with pytest.raises(SourceError, match="is a stream"):
        opened(stream, user=reader, password="secret")
    with pytest.raises(
        SourceError, match=rf"ACCESS_REFUSED - access to queue '{other}' .* refused for user '{reader}'"
    ):
        opened(other, user=reader, password="secret")


def test_a_queue_that_has_gone_may_come_back(rabbitmq: RabbitServer, opened: Callable[..., RabbitSource]) -> None:
    queue = rabbitmq.queue()
    source = opened(queue)
    connection = rabbitmq.connection()
    connection.channel().queue_delete(queue)
    # The broker says the same of a queue whose node is down.
    with pytest.raises(ConnectionLostError, match=f"queue '{queue}' was deleted, or its node is down"):
        received(source, 1)
    with pytest.raises(ConnectionLostError, match="NOT_FOUND"):
        source.open()
    connection.channel().queue_declare(queue, durable=True)
    send(rabbitmq, queue, "m0")
    source.open()
    assert received(source, 1) == ["m0"]
    # As another kind, it would be read as empty.
    connection.channel().queue_delete(queue)
    connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
    connection.close()
    with pytest.raises(ConnectionLostError):
        received(source, 1)
    with pytest.raises(SourceError, match="is a stream"):
        source.open()


@pytest.mark.long
def test_a_message_that_is_held_for_too_long_costs_the_connection() -> None:
    # RabbitMQ looks once a minute for messages that nobody has acknowledged.
    with RabbitServer({"consumer_timeout": "1000"}) as server:
        queue = server.queue()
        send(server, queue, "m0")
        source = RabbitSource(settings(server, queue))
        source.open()
        try:
            assert received(source, 1) == ["m0"]
            with pytest.raises(ConnectionLostError, match="delivery acknowledgement on channel 1 timed out"):
                received(source, 1)
            source.open()
            assert received(source, 1) == ["m0"]
        finally:
            source.close()


def test_a_broker_that_has_as_many_connections_as_it_takes_is_tried_again(rabbitmq: RabbitServer) -> None:
    full = f"full{uuid4().hex}"
    rabbitmq.add_host(full)
    rabbitmq.evaluate(f'rabbit_vhost_limit:set(<<"{full}">>, [{{<<"max-connections">>, 0}}], <<"test">>)')
    source = RabbitSource(settings(rabbitmq, "q", virtualHost=full))
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:\d+: .* connection limit \(0\) is reached"):
        source.open()


def test_a_broker_that_takes_connections_and_is_silent_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        chosen = RabbitSettings.of({"host": "127.0.0.1", "port": str(port), "queues": "q"})
        chosen.connection.stack_timeout = 0.5
        with pytest.raises(ConnectionLostError, match=rf":{port}: nothing that speaks AMQP has answered within 0\.5 s"):
            RabbitSource(chosen).open()


def test_a_wrong_password_is_named_and_not_shown(rabbitmq: RabbitServer) -> None:
    source = RabbitSource(settings(rabbitmq, "q", user="guest", password="s3cret"))
    assert "s3cret" not in repr(source._settings)
    with pytest.raises(SourceError, match="user 'guest' may not connect to virtual host '/'") as raised:
        source.open()
    assert "s3cret" not in str(raised.value)


@pytest.mark.crash
@pytest.mark.parametrize("quorum", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_broker_that_was_killed_is_waited_for(rabbitmq: RabbitServer, tmp_path: Path, quorum: bool) -> None:
    queue = rabbitmq.queue(quorum=quorum)
    rabbitmq.restart()
    send(rabbitmq, queue, *ids(0, 100))
    chosen = settings(rabbitmq, queue)
    (tmp_path / "spool").mkdir()
    receiver = Receiver(RabbitSource(chosen), Spool(tmp_path / "spool", ROWS), lambda: 0, Limits())
    receiver.start({}, Ledger())
    try:
        while receiver.end({}, None).get(queue, 0) < 100:
            receiver.wait(99, LONG)
        receiver.acknowledge(30)
        rabbitmq.kill()
        rabbitmq.start()
        # A quorum queue refuses until it has elected its leader.
        for attempt in tenacity.Retrying(stop=tenacity.stop_after_delay(LONG), wait=tenacity.wait_fixed(0.2)):
            with attempt:
                send(rabbitmq, queue, "m100")

        def rows() -> list[str]:
            end = sum(receiver.end({}, None).values())
            # Those before are acknowledged, and removed as their file is.
            return [body.decode() for batch in receiver.rows(30, end) for body in batch.column("body").to_pylist()]

        while "body of m100" not in rows():
            receiver.wait(sum(receiver.end({}, None).values()), LONG)
        assert rows()[-71:] == [f"body of m{number}" for number in range(30, 101)]
        receiver.acknowledge(sum(receiver.end({}, None).values()))
    finally:
        receiver.stop()
    connection = rabbitmq.connection()
    assert connection.channel().queue_declare(queue, passive=True).method.message_count == 0
    connection.close()
