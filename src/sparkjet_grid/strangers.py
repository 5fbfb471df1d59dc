"""Strangers: connections to a member's port without any authenticated call, of which only few may stay."""

from __future__ import annotations

import os
import resource
import socket
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from sparkjet_grid.background import Loop
from sparkjet_grid.log import logger

_OPEN = Path("/proc/self/fd")
_LOOK = 1.0
_STAYS = 20.0
"""Seconds for which a connection may stay without a call."""
_MOST = 64
"""Number of such connections that may stay longer than from one check to the next."""
_SEARCHED = 1 << 16


class Strangers:
    """Ends connections without an authenticated call, as each takes one of this process's file descriptors.

    Flight does not limit them, so somebody without a token could exhaust the member's descriptors. Nothing is done on
    systems that do not list a process's descriptors, which are all but Linux.

    Args:
        stays: Seconds for which a connection may stay without a call.
    """

    def __init__(self, stays: float = _STAYS) -> None:
        self._port, self._stays = 0, stays
        self._known: set[tuple[str, int]] = set()
        self._gone: set[tuple[str, int]] = set()
        self._since: dict[tuple[str, int], float] = {}
        self._loop = Loop("grid-strangers", self._step)

    def start(self, port: int) -> None:
        """Start checking the connections to a port."""
        self._port = port
        if _OPEN.is_dir():
            self._loop.start()

    def stop(self) -> None:
        """Stop checking."""
        self._loop.stop()

    def entered(self, peer: str) -> None:
        """Note that an authenticated call has come from a peer, as Flight names it."""
        _, _, address = unquote(peer).partition(":")
        host, _, port = address.rpartition(":")
        if port.isdecimal():
            self._known.add((_plain(host), int(port)))

    def _step(self) -> None:
        self._loop.pause(_LOOK)
        if not self._loop.is_stopped:
            self.look()

    def look(self) -> None:
        """End the connections that have stayed for too long."""
        now, found = time.monotonic(), dict(self._connected())
        # Twice in a row, as a connection may arrive, and become known, between the listing and this line.
        gone = self._known - found.keys()
        self._known -= gone & self._gone
        self._gone = gone
        strangers = {peer for peer in found if peer not in self._known}
        before = sorted(strangers & self._since.keys(), key=lambda peer: self._since[peer])
        self._since = {peer: self._since.get(peer, now) for peer in strangers}
        too_many = max(len(strangers) - _MOST, 0)
        for number, peer in enumerate(before):
            if number < too_many or now > self._since[peer] + self._stays:
                self._end(found[peer], peer)

    def _connected(self) -> Iterator[tuple[tuple[str, int], int]]:
        for descriptor in _descriptors():
            with _borrowed(descriptor) as connection:
                if connection is not None and (peer := self._peer(connection)) is not None:
                    yield peer, descriptor

    def _peer(self, connection: socket.socket) -> tuple[str, int] | None:
        try:
            if connection.family in {socket.AF_INET, socket.AF_INET6} and connection.getsockname()[1] == self._port:
                host, port = connection.getpeername()[:2]
                return _plain(host), port
        except OSError:
            # A listening socket, or one that has just ended.
            return None
        return None

    def _end(self, descriptor: int, peer: tuple[str, int]) -> None:
        with _borrowed(descriptor) as connection:
            # The descriptor may be another connection's by now.
            if connection is not None and self._peer(connection) == peer:
                connection.shutdown(socket.SHUT_RDWR)


def raise_limit() -> None:
    """Raise the limit of open files as far as allowed: each Python worker of an executor takes a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:
        # Some systems name a hard limit, or none, that they do not allow.
        logger.warning("The soft limit of open files stays at %d: %s", soft, error)


def _descriptors() -> Iterable[int]:
    try:
        return [int(path.name) for path in _OPEN.iterdir()]
    except OSError:
        # Listing them takes a free descriptor; if there is none, all numbers are tried.
        return range(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _SEARCHED))


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket | None]:
    """A descriptor owned by Flight as a socket, and not closed with it; None if it is not a socket."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            yield None
            return
        connection = socket.socket(fileno=descriptor)
    except OSError:
        yield None
        return
    try:
        yield connection
    finally:
        connection.detach()


def _plain(host: str) -> str:
    return host.strip("[]").removeprefix("::ffff:")
