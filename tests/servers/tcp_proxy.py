"""A proxy for one server's connections, which can be cut as a network that fails would."""

from __future__ import annotations

import contextlib
import socket
import threading

from typing_extensions import Self


class TcpProxy:
    """Passes on what both sides send; a context manager.

    Args:
        port: The server's, on the loopback address.
    """

    def __init__(self, port: int) -> None:
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    @property
    def port(self) -> int:
        """Where clients connect to."""
        number: int = self._listening.getsockname()[1]
        return number

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """End all connections; new ones are let through."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

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
            with self._lock:
                self._open |= {client, server}
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := one.recv(1 << 16):
                other.sendall(content)
        with self._lock:
            for each in (one, other):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            # The other direction still reads from it.
            self._open.discard(one)
        one.close()
