"""Connections to members: those that one side has given up without a word."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sparkjet_grid.connections import Connections, Sending
from sparkjet_grid.errors import UnreachableError
from sparkjet_grid.messages import Part, Ping, Put
from tests.faults.waiting import holds_within, until
from tests.grid.batches import ROWS, rows_of
from tests.grid.grids import Grid, grid_of

pytestmark = pytest.mark.crash
_RESET = struct.pack("ii", 1, 0)
"""Seconds to linger: closing sends a reset, as the kernel does for a connection that it does not know."""


class Forgetful:
    """Connects whoever connects to it with a member, until it forgets the connection.

    Args:
        uri: Of the member.
    """

    def __init__(self, uri: str) -> None:
        address = urlsplit(uri)
        self._member = address.hostname or "", address.port or 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self.is_silent = self.has_forgotten = False
        self._connected: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more, and end what is connected.

        A server that ends waits 20 seconds for connections that do not answer; closing ends none that a thread reads.
        """
        self._listener.close()
        for each in self._connected:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        # Closed by the test's end.
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                member = socket.create_connection(self._member)
                self._connected += [client, member]
                threading.Thread(target=self._answers, args=(member, client), daemon=True).start()
                threading.Thread(target=self._requests, args=(client, member), daemon=True).start()

    def _answers(self, member: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := member.recv(1 << 16):
                if not self.is_silent:
                    client.sendall(content)

    def _requests(self, client: socket.socket, member: socket.socket) -> None:
        with contextlib.suppress(OSError), member:
            while content := client.recv(1 << 16):
                if self.has_forgotten:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    client.close()
                    return
                member.sendall(content)


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    with grid_of(tmp_path, 1, backup_count=0) as grid:
        yield grid


@pytest.fixture
def between(grid: Grid) -> Iterator[Forgetful]:
    between = Forgetful(grid.members[0].address.uri)
    yield between
    between.close()


@pytest.fixture
def connections(grid: Grid, between: Forgetful) -> Iterator[Connections]:
    made = Connections(grid.access)
    # A connection that is open already.
    assert made.ask(between.uri, Ping(), str) == grid.members[0].id
    yield made
    made.close()


def test_a_call_on_a_connection_that_was_given_up_ends_when_something_is_sent(
    grid: Grid, between: Forgetful, connections: Connections
) -> None:
    between.is_silent = True
    sending = Sending(connections, between.uri, Put("", 600.0), ROWS)
    sending.send(Part(0, "a", 1), [rows_of(3)])
    sending.finish()
    until(lambda: len(grid.members[0].entries) == 1, "the entry")
    between.has_forgotten = True
    assert not holds_within(sending.answer.done, 1.0)
    connections.nudge(between.uri)
    until(sending.answer.done, "the end of the call", 60)
    with pytest.raises(UnreachableError, match="does not answer"):
        sending.answer.result()


def test_a_call_is_not_disturbed(between: Forgetful, connections: Connections) -> None:
    sending = Sending(connections, between.uri, Put("", 600.0), ROWS)
    connections.nudge(between.uri)
    sending.send(Part(0, "a", 1), [rows_of(3)])
    connections.nudge(between.uri)
    sending.finish()
    assert [held.rows for held in sending.answer.result(30)] == [3]
