"""Connections to brokers that close them, do not speak TLS or refuse it, and invalid host names."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.cluster import Cluster
from sparkjet.connectors.kafka.connection import BrokerError, Connection, RefusedError
from sparkjet.connectors.kafka.requests import Node

HANDSHAKE_FAILURE = bytes([21, 3, 3, 0, 2, 2, 40])


@contextmanager
def listening(*answers: bytes) -> Iterator[tuple[Cluster, list[bytes]]]:
    """A cluster over TLS whose broker gives each response once and closes; and its clients' first messages."""
    greetings: list[bytes] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            # Reads everything: unread data would cause a reset instead of an end of stream.
            greetings.append(self.request.recv(1 << 16))
            self.request.sendall(answers[len(greetings) - 1])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.server_address[1]}"
        with Cluster(Access.of({"bootstrap.servers": address, "security.protocol": "SSL"}), 20.0) as cluster:
            yield cluster, greetings
        server.shutdown()
        thread.join()


def test_a_broker_that_stops_in_the_handshake_is_asked_again() -> None:
    with listening(b"", b"", HANDSHAKE_FAILURE) as (cluster, greetings):
        with pytest.raises(RefusedError, match="HANDSHAKE_FAILURE"):
            cluster.metadata()
        assert len(greetings) == 3


def test_a_host_that_cannot_be_is_an_error_of_the_broker_that_gave_it() -> None:
    with pytest.raises(BrokerError, match=r"a\.\.b:9092 cannot be reached"):
        Connection(Node("a..b", 9092), Access.of({"bootstrap.servers": "127.0.0.1:1"}))


@pytest.mark.parametrize("answer", [HANDSHAKE_FAILURE, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_broker_that_refuses_tls_is_not_asked_again(answer: bytes) -> None:
    with listening(answer) as (cluster, greetings):
        with pytest.raises(RefusedError, match="no TLS connection"):
            cluster.metadata()
        assert len(greetings) == 1
