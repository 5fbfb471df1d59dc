"""Options of the Artemis source: what they become, and what is refused before anything connects."""

from __future__ import annotations

import re

import pytest
from pyspark import cloudpickle

from sparkjet.connectors.artemis.data_source import ArtemisDataSource
from sparkjet.connectors.artemis.source_settings import ArtemisSettings
from sparkjet.connectors.tls_files import TlsFiles
from sparkjet.errors import AnalysisError


def test_queues_are_all_that_is_needed() -> None:
    found = ArtemisSettings.of({"queues": "orders, news::returns,orders,"})
    assert found.queues == ("orders", "news::returns")
    assert (found.window, found.id_property) == (1 << 24, None)
    address = found.address
    assert (address.host, address.port, address.user, address.tls) == ("localhost", 61616, "", None)


def test_options_are_those_of_the_connection_and_the_reader() -> None:
    options = {
        "QUEUES": "q", "host": "broker", "port": "61613", "user": "u", "password": "s3cret", "heartbeat": "10",
        "idProperty": "number", "consumerWindowSize": "4k", "maxMessagesPerTrigger": "7", "maxUnacknowledged": "20",
        "maxSpoolBytes": "1000", "reconnectTimeoutMs": "1500",
    }  # fmt: skip
    found = ArtemisSettings.of(options)
    address = found.address
    assert (address.host, address.port, address.user, address.password) == ("broker", 61613, "u", "s3cret")
    assert (address.heartbeat, found.window, found.id_property) == (10, 4096, "number")
    assert "s3cret" not in repr(found)


def test_a_source_over_tls_can_be_sent_to_the_process_that_reads() -> None:
    source = ArtemisDataSource({"queues": "q", "tls": "true"})
    reader = source.streamReader(source.schema())
    assert ArtemisSettings.of(source.options).address.tls == TlsFiles()
    assert cloudpickle.loads(cloudpickle.dumps((source, reader)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'needs option("queues", "name, …")'),
        ({"queues": "orders, orders::orders"}, "names one queue twice: 'orders' and 'orders::orders'"),
        ({"queues": " , "}, 'needs option("queues", "name, …")'),
        ({"queues": "q", "virtualHost": "x"}, '"virtualHost" is not an option of format("sparkjet-artemis")'),
        ({"queues": "q", "port": "stomp"}, 'port must be a positive whole number, not "stomp"'),
        (
            {"queues": "q", "consumerWindowSize": "-1"},
            'consumerWindowSize must be a number of bytes, such as 1048576, 512m or 4g, not "-1"',
        ),
        ({"queues": "q", "keyFile": "key.pem"}, 'keyFile is for TLS: set option("tls", True)'),
        ({"queues": "q", "tls": "true", "caFile": "missing.pem"}, "caFile, certFile or keyFile cannot be used"),
    ],
)
def test_bad_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisError, match=re.escape(message)):
        ArtemisDataSource(options).schema()
