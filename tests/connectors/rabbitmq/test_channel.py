"""A channel that is used in turns, against a real broker."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pika
import pytest
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, ProbableAuthenticationError, StreamLostError

from sparkjet.connectors.rabbitmq.channel import RabbitChannel
from tests.connectors.rabbitmq.messages import send
from tests.servers.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from tests.servers.rabbitmq import RabbitServer


def at(port: int, password: str = "guest") -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", port, credentials=pika.PlainCredentials("guest", password))


def count(line: RabbitChannel, queue: str) -> int:
    answer = line.ask(lambda answered: line.channel.queue_declare(queue, passive=True, callback=answered))
    return int(answer.method.message_count)


def test_it_answers_and_ends_waiting_when_a_message_comes(rabbitmq: RabbitServer) -> None:
    queue = rabbitmq.queue()
    got = []
    with closing(RabbitChannel(at(rabbitmq.port))) as line:
        assert count(line, queue) == 0
        line.wait(0)

        def accept(_: object, method: object, properties: pika.BasicProperties, body: bytes) -> None:
            got.append(properties.message_id)
            line.wake()

        line.ask(lambda answered: line.channel.basic_consume(queue, accept, callback=answered))
        send(rabbitmq, queue, "m0")
        # It would take the whole time of the test.
        while not got:
            line.wait(3600)
    assert got == ["m0"]


def test_a_channel_that_the_broker_closes_says_why_from_then_on(rabbitmq: RabbitServer) -> None:
    with closing(RabbitChannel(at(rabbitmq.port))) as line:
        for _ in range(2):
            with pytest.raises(ChannelClosedByBroker, match="no queue 'missing'"):
                count(line, "missing")
        with pytest.raises(ChannelClosedByBroker, match="no queue 'missing'"):
            line.wait(3600)


def test_a_connection_that_is_cut_ends_waiting(rabbitmq: RabbitServer) -> None:
    with TcpProxy(rabbitmq.port) as proxy, closing(RabbitChannel(at(proxy.port))) as line:
        proxy.cut()
        with pytest.raises(StreamLostError):
            line.wait(3600)


def test_a_connection_that_cannot_be_opened_says_why(rabbitmq: RabbitServer) -> None:
    with pytest.raises(ProbableAuthenticationError):
        RabbitChannel(at(rabbitmq.port, "wrong"))
    with pytest.raises(AMQPConnectionError):
        RabbitChannel(at(1))
