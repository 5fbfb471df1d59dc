"""Sockets that could not be connected are closed: a member asks a server that is away several times a second."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkjet_grid.zookeeper_session import ClosingHandler
from tests.grid.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "grid")


@contextmanager
def _nothing_left_open() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(warning.message) for warning in left] == []


def _hang_up(server: socket.socket) -> None:
    server.accept()[0].close()


def _options(authority: Authority) -> dict[str, str]:
    certificate, key = authority.signed("member")
    return {"certfile": str(certificate), "keyfile": str(key), "ca": str(authority.certificate)}


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_nobody_listens(authority: Authority, secure: bool) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with _nothing_left_open(), pytest.raises(ConnectionRefusedError):
            ClosingHandler().create_connection(
                unused.getsockname(), "127.0.0.1", 5, use_ssl=secure, **_options(authority), verify_certs=True
            )


def test_a_server_that_hangs_up_instead_of_a_handshake(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        hanging_up = threading.Thread(target=_hang_up, args=[server])
        hanging_up.start()
        with _nothing_left_open(), pytest.raises(OSError):  # noqa: PT011 - reset, or an end amid the handshake
            ClosingHandler().create_connection(
                server.getsockname(), "127.0.0.1", 5, use_ssl=True, **_options(authority)
            )
        hanging_up.join()


def test_files_that_are_not_certificates(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    with socket.create_server(("127.0.0.1", 0)) as server, _nothing_left_open(), pytest.raises(OSError):  # noqa: PT011
        ClosingHandler().create_connection(server.getsockname(), use_ssl=True, certfile=str(file), ca=str(file))
