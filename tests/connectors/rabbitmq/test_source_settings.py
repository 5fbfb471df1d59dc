"""Options of the RabbitMQ source: what they become, and what is refused before anything connects."""

from __future__ import annotations

import re

import pytest

from sparkjet.connectors.rabbitmq.data_source import RabbitDataSource
from sparkjet.connectors.rabbitmq.source_settings import RabbitSettings
from sparkjet.errors import AnalysisError


def test_queues_are_all_that_is_needed() -> None:
    found = RabbitSettings.of({"queues": "orders, returns,orders,"})
    assert found.queues == ("orders", "returns")
    assert found.prefetch == 25_000
    connection = found.connection
    assert (connection.host, connection.port, connection.virtual_host) == ("localhost", 5672, "/")
    assert connection.ssl_options is None


def test_options_are_those_of_the_connection_and_the_reader() -> None:
    options = {
        "QUEUES": "q", "host": "broker", "port": "5673", "virtualHost": "shop", "user": "u", "password": "s3cret",
        "heartbeat": "10", "maxMessagesPerTrigger": "7", "maxUnacknowledged": "20",
    }  # fmt: skip
    found = RabbitSettings.of(options)
    connection = found.connection
    assert (connection.host, connection.port, connection.virtual_host) == ("broker", 5673, "shop")
    assert (connection.credentials.username, connection.credentials.password) == ("u", "s3cret")
    assert connection.heartbeat == 10
    assert found.prefetch == 20
    assert "s3cret" not in repr(found)


def test_over_tls_there_is_another_port() -> None:
    connection = RabbitSettings.of({"queues": "q", "tls": "true"}).connection
    assert connection.port == 5671
    assert connection.ssl_options.context.check_hostname


def test_columns_are_added_after_the_others_if_they_are_wanted() -> None:
    old = "body, message_id, queue, exchange, routing_key, timestamp, content_type, correlation_id"
    assert ", ".join(RabbitDataSource({"queues": "q"}).schema().names) == old
    wanted = RabbitDataSource({"queues": "q", "includeHeaders": "true"}).schema()
    assert ", ".join(wanted.names) == f"{old}, headers, type, reply_to, redelivered"
    assert wanted["headers"].dataType.simpleString() == "map<string,string>"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'needs option("queues", "name, …")'),
        ({"queues": " , "}, 'needs option("queues", "name, …")'),
        ({"queue": "q"}, '"queue" is not an option of format("sparkjet-rabbitmq"); did you mean "queues"'),
        ({"queues": "q", "port": "amqp"}, 'port must be a positive whole number, not "amqp"'),
        ({"queues": "a,b,c", "maxUnacknowledged": "2"}, "maxUnacknowledged=2 is for 3 queues"),
        ({"queues": "q", "maxUnacknowledged": "65536"}, "each may deliver 1 to 65535 messages"),
        ({"queues": f"q,{'ü' * 128}"}, "no queue's name has more than 255 bytes"),
        ({"queues": "q", "includeHeaders": "perhaps"}, "includeHeaders"),
        ({"queues": "q", "caFile": "ca.pem"}, 'caFile is for TLS: set option("tls", True)'),
        ({"queues": "q", "tls": "true", "caFile": "missing.pem"}, "caFile, certFile or keyFile cannot be used"),
    ],
)
def test_bad_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisError, match=re.escape(message)):
        RabbitDataSource(options).schema()
