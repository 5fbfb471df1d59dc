"""The properties that a broker reveals of its queues, and which of these are refused."""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

import pytest

from sparkjet.connectors.rabbitmq.examination import Examined, examine
from sparkjet.connectors.rabbitmq.source_settings import RabbitSettings
from sparkjet.errors import SourceError
from tests.connectors.rabbitmq.messages import ids, send
from tests.servers.rabbitmq import RabbitServer


def examined(server: RabbitServer, *queues: str) -> Examined:
    settings = RabbitSettings.of({"host": "127.0.0.1", "port": str(server.port), "queues": ",".join(queues)})
    return examine(settings.connection, queues)


def test_a_stream_is_refused_by_name_whether_it_has_messages_or_not(rabbitmq: RabbitServer) -> None:
    other, stream = rabbitmq.queue(), rabbitmq.queue(queue_type="stream")
    for messages in ([], ids(0, 3)):
        send(rabbitmq, stream, *messages)
        with pytest.raises(SourceError, match=f"queue '{stream}' is a stream, .* Bind a quorum queue to the exchange"):
            examined(rabbitmq, other, stream)


def test_a_queue_whose_messages_the_broker_drops_is_refused(rabbitmq: RabbitServer) -> None:
    dropped = rabbitmq.queue(quorum=True, delivery_limit=3)
    with pytest.raises(SourceError, match=rf"drops a message of queue '{dropped}' after 3 deliveries \(x-delivery-lim"):
        examined(rabbitmq, rabbitmq.queue(), dropped)
    buried = rabbitmq.queue(quorum=True, delivery_limit=3, dead_letter_exchange="amq.direct")
    assert examined(rabbitmq, buried) == Examined(frozenset(), frozenset())


def test_a_queue_with_a_single_consumer_or_one_that_goes_with_its_last_is_found(rabbitmq: RabbitServer) -> None:
    plain, single = rabbitmq.queue(), rabbitmq.queue(quorum=True, single_active_consumer=True)
    passing = f"t{uuid4().hex}"
    with closing(rabbitmq.connection()) as connection:
        connection.channel().queue_declare(passing, auto_delete=True)
    assert examined(rabbitmq, plain, single, passing) == Examined(frozenset({single}), frozenset({passing}))
