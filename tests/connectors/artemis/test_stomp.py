"""A connection over STOMP to a real broker: receipts, heartbeats, TLS, and what is refused."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from sparkjet.connectors.artemis.stomp import RefusedError, StompAddress, StompConnection
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.connectors.tls_files import TlsFiles
from tests.faults.waiting import until
from tests.servers.artemis import CLERK, PASSWORD, USER

if TYPE_CHECKING:
    from tests.servers.artemis import ArtemisServer

Connect = Callable[[StompAddress], StompConnection]


@pytest.fixture
def address(artemis: ArtemisServer) -> StompAddress:
    return StompAddress("127.0.0.1", artemis.port, USER, PASSWORD)


@pytest.fixture
def connected() -> Iterator[Connect]:
    opened: list[StompConnection] = []

    def connect(address: StompAddress) -> StompConnection:
        opened.append(StompConnection(address))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()
        each.close()


def sent(queue: str, body: bytes, **headers: str) -> Frame:
    typed = {
        "destination": queue,
        "destination-type": "ANYCAST",
        "persistent": "true",
        "content-length": str(len(body)),
    }
    return Frame("SEND", {**typed, **headers}, body)


def subscription(queue: str) -> Frame:
    # Without a window of its own the second message would wait until the first, which is large, is acknowledged.
    headers = {"id": "a/1", "destination": queue, "ack": "client", "consumer-window-size": "-1"}
    return Frame("SUBSCRIBE", {**headers, "subscription-type": "ANYCAST"})


def received(connection: StompConnection, count: int) -> list[Frame]:
    found: list[Frame] = []
    while len(found) < count:
        found += connection.messages("a", 10)
    return found


def test_any_bytes_and_headers_come_back(artemis: ArtemisServer, address: StompAddress, connected: Connect) -> None:
    queue = artemis.queue()
    body = bytes(range(256)) * 2000
    connection = connected(address)
    connection.confirm([sent(queue, body, name="a:b\n\\c\rü"), sent(queue, b"")])
    # A message that is confirmed is stored; a thread of the broker's puts it into the queue, and counts it.
    until(lambda: artemis.count(queue) == 2, "both messages are in the queue")
    connection.confirm([subscription(queue)])
    first, second = received(connection, 2)
    assert (first.body, first.headers["name"], second.body) == (body, "a:b\n\\c\rü", b"")
    connection.confirm([Frame("ACK", {"id": second.headers["ack"]})])
    connection.close()
    assert artemis.count(queue) == 0


def test_over_tls_the_certificate_is_checked(artemis: ArtemisServer, address: StompAddress, connected: Connect) -> None:
    queue = artemis.queue()
    secure = dataclasses.replace(address, port=artemis.secure_port, tls=TlsFiles(str(artemis.authorities)))
    connection = connected(secure)
    connection.confirm([sent(queue, b"x" * 1_000_000), subscription(queue)])
    assert len(received(connection, 1)[0].body) == 1_000_000
    assert connection.messages("a", 0) == []
    with pytest.raises(ssl.SSLCertVerificationError):
        StompConnection(dataclasses.replace(secure, tls=TlsFiles()))


def test_heartbeats_keep_both_sides_alive(address: StompAddress, connected: Connect) -> None:
    connection = connected(dataclasses.replace(address, heartbeat=0.5))
    for _ in range(20):
        # Without ours the broker closes the connection after a second, without its own we do after half of one.
        assert connection.messages("a", 0.1) == []


@pytest.mark.crash
def test_a_broker_that_says_nothing_is_taken_for_dead(
    artemis: ArtemisServer, address: StompAddress, connected: Connect
) -> None:
    connection = connected(dataclasses.replace(address, heartbeat=0.5))
    artemis.pause()
    try:
        with pytest.raises(TimeoutError, match="nothing was heard from the broker for"):  # noqa: PT012 - until it does
            while True:
                connection.messages("a", 1)
    finally:
        artemis.resume()


def test_a_refusal_has_the_brokers_words(artemis: ArtemisServer, address: StompAddress, connected: Connect) -> None:
    with pytest.raises(RefusedError, match=r"User name \[guest\] or password is invalid"):
        StompConnection(dataclasses.replace(address, password="wrong"))
    connection = connected(dataclasses.replace(address, user=CLERK, password=CLERK))
    with pytest.raises(RefusedError, match=r"^AMQ339011 Error sending message$"):
        connection.confirm([sent("activemq.management", b"")])


def test_a_broker_that_is_gone_is_an_error_of_the_connection(address: StompAddress) -> None:
    with pytest.raises(ConnectionRefusedError):
        StompConnection(dataclasses.replace(address, port=1))
