"""The sockets of kazoo's connections, of which none stays open once it could not be connected."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler


class ClosingHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's own handler leaves a socket open if its server does not listen, or refuses our certificate."""

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        use_ssl: bool = False,
        ca: str | None = None,
        certfile: str | None = None,
        keyfile: str | None = None,
        **_others: Any,
    ) -> socket.socket:
        """A connected socket, over TLS if asked for; called by kazoo's thread, with what its client was made with."""
        connection = socket.create_connection(address, timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not use_ssl:
                return connection
            # Only the authorities of the grid are trusted, not those of the machine.
            context = ssl.create_default_context(cafile=ca)
            if certfile is not None:
                context.load_cert_chain(certfile, keyfile)
            return context.wrap_socket(connection, server_hostname=hostname)
        except OSError:
            connection.close()
            raise
