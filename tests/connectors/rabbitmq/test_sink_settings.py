"""Options of the RabbitMQ sink: what they become, and what is refused before anything connects."""

from __future__ import annotations

import re

import pytest

from sparkjet.connectors.rabbitmq.options import SINK_OPTIONS
from sparkjet.connectors.rabbitmq.sink_settings import RabbitSinkSettings
from sparkjet.errors import AnalysisError
from sparkjet.options import Options


def test_without_options_rows_go_where_their_columns_say() -> None:
    found = RabbitSinkSettings.of(Options({}))
    assert (found.exchange, found.routing_key, found.patience) == (None, None, 60.0)
    assert (found.connection.host, found.connection.port, found.connection.virtual_host) == ("localhost", 5672, "/")


def test_options_are_those_of_the_messages_and_the_connection() -> None:
    given = {
        "exchange": "", "ROUTINGKEY": "orders", "confirmTimeoutMs": "1500", "host": "broker", "port": "5673",
        "virtualHost": "shop", "user": "u", "password": "s3cret", "heartbeat": "10",
    }  # fmt: skip
    options = Options(given)
    options.only(SINK_OPTIONS, "rabbitmq")
    found = RabbitSinkSettings.of(options)
    assert (found.exchange, found.routing_key, found.patience) == ("", "orders", 1.5)
    connection = found.connection
    assert (connection.host, connection.port, connection.virtual_host) == ("broker", 5673, "shop")
    assert (connection.credentials.username, connection.credentials.password) == ("u", "s3cret")
    assert connection.heartbeat == 10
    assert "s3cret" not in repr(found)


def test_over_tls_there_is_another_port() -> None:
    connection = RabbitSinkSettings.of(Options({"tls": "true"})).connection
    assert connection.port == 5671
    assert connection.ssl_options.context.check_hostname


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"routing_key": "q"}, '"routing_key" is not an option of format("rabbitmq"); did you mean "routingKey"'),
        ({"confirmTimeoutMs": "0"}, 'confirmTimeoutMs must be a positive whole number, not "0"'),
        ({"keyFile": "key.pem"}, 'keyFile is for TLS: set option("tls", True)'),
        ({"tls": "true", "certFile": "missing.pem"}, "caFile, certFile or keyFile cannot be used"),
    ],
)
def test_bad_options_are_named(options: dict[str, str], message: str) -> None:
    def parse(given: Options) -> RabbitSinkSettings:
        given.only(SINK_OPTIONS, "rabbitmq")
        return RabbitSinkSettings.of(given)

    with pytest.raises(AnalysisError, match=re.escape(message)):
        parse(Options(options))
