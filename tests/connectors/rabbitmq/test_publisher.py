"""The publisher against a real broker: nothing counts as published that the broker has not confirmed."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pika
import pytest
import tenacity

from sparkjet.connectors.rabbitmq.publisher import Message, publish
from sparkjet.connectors.rabbitmq.sink_settings import RabbitSinkSettings
from sparkjet.errors import SinkError
from sparkjet.options import Options
from tests.connectors.rabbitmq.messages import held, ready
from tests.servers.rabbitmq import RabbitServer
from tests.servers.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0
MANY = 5_000
"""Messages of more than two windows."""


def at(port: int, **options: str) -> pika.ConnectionParameters:
    return RabbitSinkSettings.of(Options({"host": "127.0.0.1", "port": str(port), **options})).connection


def messages(queue: str, count: int, exchange: str = "", body: bytes = b"body") -> Iterator[Message]:
    for number in range(count):
        properties = pika.BasicProperties(message_id=f"m{number}", delivery_mode=2)
        yield Message(exchange, queue, body, properties)


def then(messages: Iterator[Message], number: int, do: Callable[[], object]) -> Iterator[Message]:
    """Messages between two of which something happens."""
    for each, message in enumerate(messages):
        if each == number:
            do()
        yield message


def ids_in(server: RabbitServer, queue: str) -> list[str]:
    return [properties.message_id for properties, _ in held(server, queue)]


def patiently() -> tenacity.Retrying:
    """Attempts until an assertion holds, of what the broker does by and by."""
    return tenacity.Retrying(stop=tenacity.stop_after_delay(PATIENCE), wait=tenacity.wait_fixed(0.2), reraise=True)


@pytest.mark.parametrize("quorum", [False, True])
def test_all_messages_are_there_once_in_their_order(rabbitmq: RabbitServer, quorum: bool) -> None:
    queue = rabbitmq.queue(quorum=quorum)
    publish(at(rabbitmq.port), messages(queue, MANY), PATIENCE)
    assert ids_in(rabbitmq, queue) == [f"m{number}" for number in range(MANY)]
    assert all(properties.delivery_mode == 2 for properties, _ in held(rabbitmq, queue))


def test_large_messages_are_sent_as_the_broker_confirms(rabbitmq: RabbitServer) -> None:
    queue, body = rabbitmq.queue(), bytes(3 << 20)
    taken = []

    def counted() -> Iterator[Message]:
        for message in messages(queue, 12, body=body):
            taken.append(ready(rabbitmq, queue)[0])
            yield message

    publish(at(rabbitmq.port), counted(), PATIENCE)
    assert ready(rabbitmq, queue) == [12]
    # Three fill the window of 8 MB.
    assert taken[:3] == [0, 0, 0]
    assert all(number - there <= 3 for number, there in enumerate(taken))


def test_no_messages_are_nothing_to_wait_for(rabbitmq: RabbitServer) -> None:
    publish(at(rabbitmq.port), iter(()), PATIENCE)


def test_a_message_that_no_queue_takes_is_an_error(rabbitmq: RabbitServer) -> None:
    queue = rabbitmq.queue()

    def mixed() -> Iterator[Message]:
        yield from messages(queue, 10)
        yield Message("", "nowhere", b"", pika.BasicProperties(message_id="lost"))
        yield from messages(queue, 10)

    with pytest.raises(SinkError, match=r"no queue takes message 'lost' \(exchange '', routing key 'nowhere'\): NO_RO"):
        publish(at(rabbitmq.port), mixed(), PATIENCE)


def test_an_exchange_that_is_missing_is_an_error(rabbitmq: RabbitServer) -> None:
    with pytest.raises(SinkError, match="the broker refuses: NOT_FOUND - no exchange 'missing'"):
        publish(at(rabbitmq.port), messages("key", MANY, exchange="missing"), PATIENCE)


def test_a_full_queue_is_an_error(rabbitmq: RabbitServer) -> None:
    queue = f"t{uuid4().hex}"
    connection = rabbitmq.connection()
    arguments: dict[str, Any] = {"x-max-length": 20, "x-overflow": "reject-publish"}
    connection.channel().queue_declare(queue, durable=True, arguments=arguments)
    connection.close()
    publish(at(rabbitmq.port), messages(queue, 20), PATIENCE)
    with pytest.raises(SinkError, match=r"does not take message 'm\d+' .*: a queue is full or out of order"):
        publish(at(rabbitmq.port), messages(queue, MANY), PATIENCE)


def test_a_queue_that_drops_its_oldest_messages_takes_all(rabbitmq: RabbitServer) -> None:
    queue = rabbitmq.queue(max_length=20, overflow="drop-head")
    publish(at(rabbitmq.port), messages(queue, MANY), PATIENCE)
    assert ids_in(rabbitmq, queue) == [f"m{number}" for number in range(MANY - 20, MANY)]


def test_a_user_who_may_not_write_is_named(rabbitmq: RabbitServer) -> None:
    reader = f"u{uuid4().hex}"
    rabbitmq.add_user(reader, "s3cret", read=".*")
    with pytest.raises(SinkError, match=f"ACCESS_REFUSED - .* refused for user '{reader}'") as raised:
        publish(at(rabbitmq.port, user=reader, password="s3cret"), messages(rabbitmq.queue(), 1), PATIENCE)
    assert "s3cret" not in str(raised.value)


def test_a_broker_that_is_short_of_memory_is_waited_for(rabbitmq: RabbitServer) -> None:
    queue = rabbitmq.queue()
    with ThreadPoolExecutor() as beside:
        with rabbitmq.short_of_memory():
            published = beside.submit(publish, at(rabbitmq.port), messages(queue, MANY), PATIENCE)
            assert not wait([published], 1.0).done
        published.result(PATIENCE)
    assert ids_in(rabbitmq, queue) == [f"m{number}" for number in range(MANY)]


def test_a_connection_that_is_cut_is_an_error_and_a_repetition_has_the_same_ids(rabbitmq: RabbitServer) -> None:
    queue = rabbitmq.queue()
    with TcpProxy(rabbitmq.port) as proxy:
        with pytest.raises(SinkError, match=r"127\.0\.0\.1:\d+: StreamLostError"):
            publish(at(proxy.port), then(messages(queue, MANY), MANY - 1_000, proxy.cut), PATIENCE)
        publish(at(proxy.port), messages(queue, MANY), PATIENCE)
    # Not in between: the broker may still have had to read what it was sent.
    found = Counter(ids_in(rabbitmq, queue))
    assert set(found) == {f"m{number}" for number in range(MANY)}
    repeated = {each for each, times in found.items() if times == 2}
    assert 0 < len(repeated) < MANY
    assert repeated == {f"m{number}" for number in range(len(repeated))}


def test_a_message_that_cannot_be_read_is_the_error_and_ends_the_connection(rabbitmq: RabbitServer) -> None:
    class UnreadableError(Exception):
        """Of the test."""

    def fail() -> None:
        raise UnreadableError

    queue = rabbitmq.queue()
    with pytest.raises(UnreadableError):
        publish(at(rabbitmq.port), then(messages(queue, 10), 5, fail), PATIENCE)
    # They were not confirmed: the broker may still be at them.
    for attempt in patiently():
        with attempt:
            assert ids_in(rabbitmq, queue) == [f"m{number}" for number in range(5)]


def test_a_broker_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SinkError, match=r"127\.0\.0\.1:1: AMQPConnectionError.*ConnectionRefusedError"):
        publish(at(1), messages("q", 1), PATIENCE)


def test_a_broker_that_takes_connections_and_is_silent_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(
            SinkError, match=rf"127\.0\.0\.1:{port}: nothing that speaks AMQP has answered within 0\.5 s"
        ):
            publish(at(port), messages("q", 1), 0.5)


def test_a_broker_that_falls_silent_is_given_up_at_once_when_its_time_is_over(rabbitmq: RabbitServer) -> None:
    queue = rabbitmq.queue()
    with TcpProxy(rabbitmq.port) as proxy:
        with pytest.raises(SinkError, match=r"the broker has confirmed nothing for 0\.5 s\. Repair it"):
            publish(at(proxy.port), then(messages(queue, 10), 5, proxy.hold), 0.5)
        proxy.release()
        publish(at(proxy.port), messages(queue, 10), PATIENCE)
    assert set(ids_in(rabbitmq, queue)) == {f"m{number}" for number in range(10)}


def test_a_broker_that_has_as_many_connections_as_it_takes_says_so(rabbitmq: RabbitServer) -> None:
    shop = f"shop {uuid4().hex}"
    rabbitmq.add_host(shop)
    rabbitmq.evaluate(f'rabbit_vhost_limit:set(<<"{shop}">>, [{{<<"max-connections">>, 0}}], <<"test">>)')
    with pytest.raises(SinkError, match=r"connection limit \(0\) is reached") as raised:
        publish(at(rabbitmq.port, virtualHost=shop), messages("q", 1), PATIENCE)
    assert "may not connect" not in str(raised.value)


def test_a_wrong_password_is_named_and_not_shown(rabbitmq: RabbitServer) -> None:
    with pytest.raises(SinkError, match="user 'guest' may not connect to virtual host '/'") as raised:
        publish(at(rabbitmq.port, user="guest", password="s3cret"), messages("q", 1), PATIENCE)
    assert "s3cret" not in str(raised.value)


def test_a_broker_that_confirms_nothing_more_is_given_up_with_its_reason(rabbitmq: RabbitServer) -> None:
    queue = rabbitmq.queue()
    # From the first message on it reads nothing.
    with (
        rabbitmq.short_of_memory(),
        pytest.raises(SinkError, match="has confirmed nothing for 1 s; it has blocked publishers: low on memory"),
    ):
        publish(at(rabbitmq.port), messages(queue, 10), 1.0)


@pytest.mark.crash
@pytest.mark.parametrize("quorum", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_broker_that_is_killed_in_the_middle_loses_nothing_that_counts(rabbitmq: RabbitServer, quorum: bool) -> None:
    queue = rabbitmq.queue(quorum=quorum)
    # Killed, it may forget queues that are only seconds old.
    rabbitmq.restart()
    publish(at(rabbitmq.port), messages(queue, MANY), PATIENCE)
    try:
        with pytest.raises(SinkError, match=r"127\.0\.0\.1:\d+: StreamLostError"):
            publish(at(rabbitmq.port), then(messages(queue, MANY), MANY - 1_000, rabbitmq.kill), PATIENCE)
    finally:
        rabbitmq.start()
    # A quorum queue refuses, or says that it is empty, until it has elected its leader.
    complete = [f"m{number}" for number in range(MANY)]
    for attempt in patiently():
        with attempt:
            assert ids_in(rabbitmq, queue)[:MANY] == complete
    publish(at(rabbitmq.port), messages(queue, MANY), PATIENCE)
    assert ids_in(rabbitmq, queue)[-MANY:] == complete
