"""The control line: requests and answers between two processes, of which one may be gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.control import Acknowledge, ControlClient, ControlServer, Held, Request, Start
from sparkjet.sources.acknowledging.ledger import Expected, LedgerState

STATE = LedgerState(7, expected=[Expected("broker", 9, None, {"orders": ["m1", "ü\n"]})])


def answer(request: Request) -> LedgerState | None:
    if isinstance(request, Held):
        return STATE
    if isinstance(request, Acknowledge):
        raise SourceError(f"position {request.position} cannot be acknowledged")
    assert request == Start(identified=True, state=STATE)
    return None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    server = ControlServer(tmp_path / "control", answer)
    yield server
    server.close()


@pytest.mark.usefixtures("server")
def test_every_request_is_answered(tmp_path: Path) -> None:
    clients = [ControlClient(str(tmp_path / "control")) for _ in range(2)]
    for client in clients:
        assert client.ask(Start(identified=True, state=STATE)) is None
        assert client.ask(Held(7)) == STATE
        with pytest.raises(SourceError, match=r"^\[SPARKJET_SOURCE\] position 9 cannot be acknowledged$"):
            client.ask(Acknowledge(9))
        assert client.ask(Held(7)) == STATE
        client.close()
        client.close()


def test_a_path_may_be_longer_than_that_of_a_socket(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 30) / ("ü" * 60)
    directory.mkdir(parents=True)
    server = ControlServer(directory / "control", answer)
    client = ControlClient(str(directory / "control"))
    assert client.ask(Held(7)) == STATE
    client.close()
    server.close()
    assert list(directory.iterdir()) == []


def test_a_receiver_that_is_gone_is_named(server: ControlServer, tmp_path: Path) -> None:
    client = ControlClient(str(tmp_path / "control"))
    server.close()
    server.close()
    for _ in range(2):
        with pytest.raises(SourceError, match=r"does not answer at .*control: "):
            ControlClient(str(tmp_path / "control"))
    assert list(tmp_path.iterdir()) == []
    client.close()
