"""A proxy for one server's connections, which can be slow, cut, silent or half open, as networks are."""

from __future__ import annotations

import contextlib
import socket
import threading

from typing_extensions import Self


class TcpProxy:
    """Passes on what both sides send; a context manager.

    Args:
        port: The server's, on the loopback address.

    Attributes:
        delay: Seconds by which everything comes later.
        left: How many bytes of the server's are passed on before all connections are cut, once; None for any number.
        unanswered: Whether the next request is passed on and all connections are cut in place of its answer, once.
    """

    def __init__(self, port: int) -> None:
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[_Pair] = set()
        self._passing, self._ended = threading.Event(), threading.Event()
        self._passing.set()
        self.delay = 0.0
        self.left: int | None = None
        self.unanswered = False

    @property
    def port(self) -> int:
        """Where clients connect to."""
        number: int = self._listening.getsockname()[1]
        return number

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._listening.close()
        self.cut()
        self.release()

    def cut(self) -> None:
        """End all connections; new ones are let through."""
        with self._lock:
            for pair in self._open:
                _shut(pair.client)
                _shut(pair.server)
            self._open.clear()

    def hold(self) -> None:
        """Pass nothing on, of new connections neither, until :meth:`release`; nobody is told."""
        self._passing.clear()

    def release(self) -> None:
        """Pass on what was held, and what comes."""
        self._passing.set()

    def lose_servers(self) -> None:
        """End all connections for the server; their clients hear nothing of it, and nothing any more."""
        with self._lock:
            for pair in self._open:
                pair.is_half_open = True
                _shut(pair.server)

    def lose_clients(self) -> None:
        """End all connections for the clients; the server hears nothing of it, and nothing any more."""
        with self._lock:
            for pair in self._open:
                pair.is_half_open = True
                _shut(pair.client)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                client.close()
                continue
            pair = _Pair(client, server)
            with self._lock:
                self._open.add(pair)
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(pair, one, other), daemon=True).start()

    def _pass_on(self, pair: _Pair, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := one.recv(1 << 16):
                self._passing.wait()
                self._ended.wait(self.delay)
                is_last = False
                if one is pair.client and self.unanswered:
                    # From here on: late bytes of an answer before it would be cut in its place.
                    self.unanswered, self.left = False, 0
                if one is pair.server:
                    content, is_last = self._within(content)
                other.sendall(content)
                # Told before they are sent: who is set a limit by what it receives next would be cut without an answer.
                if is_last:
                    self.left = None
                    self.cut()
        if pair.is_half_open:
            # The other side must not hear of it.
            self._ended.wait()
        with self._lock:
            _shut(one)
            _shut(other)
            # The other direction still reads from it.
            self._open.discard(pair)
        one.close()

    def _within(self, content: bytes) -> tuple[bytes, bool]:
        """The part of it that is passed on, and whether these are the last bytes."""
        with self._lock:
            if self.left is None:
                return content, False
            content = content[: self.left]
            self.left -= len(content)
            return content, self.left == 0


class _Pair:
    """The two connections that are one to both sides."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.is_half_open = False


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
