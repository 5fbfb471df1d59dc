"""Members that talk over TLS: who has no certificate of theirs, or no token, can do nothing at any port."""

from __future__ import annotations

import dataclasses
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.grid.certificates import Authority
from tests.grid.control_contract import put
from tests.grid.controls import SETTINGS, Controls, address

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "grid")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "stranger")


@pytest.fixture(scope="module")
def zookeeper(authority: Authority) -> Iterator[Controls]:
    certificate, key = authority.signed("member")
    settings = dataclasses.replace(
        SETTINGS, certificate=str(certificate), key=str(key), authorities=str(authority.certificate)
    )
    with Controls(settings) as controls:
        controls.fill(3)
        yield controls


def test_members_agree_over_tls(zookeeper: Controls) -> None:
    for slot in range(10):
        assert put(zookeeper.members[slot % 3].control, f"log/{slot}", b"token")
    assert zookeeper.members[2].control.slots("log") == [f"log/{slot}" for slot in range(10)]


def test_where_members_listen_nobody_else_gets_in(
    zookeeper: Controls, authority: Authority, stranger: Authority
) -> None:
    server = address(zookeeper.leader())
    assert server is not None
    unknown = stranger.signed("member")
    for port in (server.client, server.quorum, server.election):
        for pair in (None, unknown):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                _talk(port, authority, pair)
        assert _talk(port, authority, authority.signed("member"))


def _talk(port: int, authority: Authority, pair: tuple[Path, Path] | None) -> bool:
    """Whether the other side has taken our certificate; with TLS 1.3 that is known with the first answer."""
    context = ssl.create_default_context(cafile=authority.certificate)
    if pair is not None:
        context.load_cert_chain(*pair)
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.settimeout(2)
        try:
            return connection.recv(1) != b""
        except TimeoutError:
            # It waits for what we have to say.
            return True


@pytest.mark.parametrize("secure", [True, False], ids=["secure port", "plain port"])
def test_a_certificate_without_the_token_can_do_nothing(
    zookeeper: Controls, authority: Authority, secure: bool
) -> None:
    server = address(zookeeper.members[0])
    assert server is not None
    options: dict[str, Any] = {}
    if secure:
        certificate, key = authority.signed("curious")
        options = {"use_ssl": True, "certfile": str(certificate), "keyfile": str(key), "ca": str(authority.certificate)}
    client = KazooClient(f"127.0.0.1:{server.client if secure else server.plain}", **options)
    # The plain port is there because ZooKeeper wants one; even with the token nobody gets anything from it.
    password = "wrong" if secure else zookeeper.settings.password
    try:
        client.start(10)
        client.add_auth_async("digest", f"super:{password}")
        for request in (
            lambda: client.get_async("/sparkjet/state"),
            lambda: client.create_async("/other"),
            lambda: client.reconfig_async(None, "1", None, -1),
        ):
            with pytest.raises((KazooException, KazooTimeoutError)):
                request().get(timeout=5)  # type: ignore[no-untyped-call] # kazoo has no types
    finally:
        client.stop()
        client.close()
