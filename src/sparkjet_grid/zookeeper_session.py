"""A session with the ZooKeeper servers of a cluster: every call has a deadline, and none outlives the session."""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    NoAuthError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.security import make_digest_acl

from sparkjet_grid.errors import AnalysisError, QuorumLostError
from sparkjet_grid.zookeeper_config import USER
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings

_AGAIN = ConnectionLoss, OperationTimeoutError, SessionMovedError
"""Errors of one connection or server, after which another attempt may succeed at another."""
_PAUSE = 0.02


class ClosingHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's own handler leaks a socket if its server does not listen, or refuses our certificate."""

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
        """A connected socket, with or without TLS; called by kazoo's thread with the arguments of its client."""
        connection = socket.create_connection(address, timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not use_ssl:
                return connection
            # Only the grid's authorities are trusted, not those of the machine.
            context = ssl.create_default_context(cafile=ca)
            if certfile is not None:
                context.load_cert_chain(certfile, keyfile)
            return context.wrap_socket(connection, server_hostname=hostname)
        except OSError:
            connection.close()
            raise


class SessionEndedError(QuorumLostError):
    """The session has ended; while the cluster's state names its member, that may begin another one."""

    condition = "SPARKJET_GRID.SESSION_ENDED"


class ZooKeeperSession:
    """A single session: kazoo itself would silently begin another one after its end. Thread-safe.

    Args:
        contacts: The addresses of servers.
        settings: Of the control plane.
        woken: Called when the connection has changed, from kazoo's thread.
    """

    def __init__(self, contacts: Sequence[str], settings: ZooKeeperSettings, woken: Callable[[], None]) -> None:
        self._settings, self._woken = settings, woken
        self._ended: str | None = None
        self._connected_since: float | None = None
        self._was_connected = False
        self.acl = [make_digest_acl(USER, settings.password, all=True)]
        self._client = KazooClient(
            hosts=",".join(contacts),
            timeout=settings.session,
            auth_data=[("digest", f"{USER}:{settings.password}")],
            default_acl=self.acl,
            randomize_hosts=False,
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.4},
            use_ssl=settings.is_encrypted,
            certfile=settings.certificate,
            keyfile=settings.key,
            ca=settings.authorities,
            check_hostname=settings.is_encrypted,
            handler=ClosingHandler(),
        )
        self._client.add_listener(self._heard)

    @property
    def ended(self) -> str | None:
        """Why the session has ended; None while it is alive as far as known."""
        return self._ended

    @property
    def id(self) -> int:
        """The id of the session."""
        number: int = self._client.client_id[0]
        return number

    @property
    def steady(self) -> float:
        """Seconds since the last interruption of the connection; 0 during one, infinite if there was none."""
        since = self._connected_since
        return 0.0 if since is None else time.monotonic() - since

    def start(self, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        """Connect, within some seconds."""
        deadline = time.monotonic() + seconds
        answered = self._client.start_async()
        while not answered.wait(_PAUSE):
            check()
            if time.monotonic() > deadline:
                message = f"no ZooKeeper server of the grid has answered at {self._hosts()} for {seconds:.0f} s."
                raise QuorumLostError(message)

    def close(self, reason: str) -> None:
        """End the session and its ephemeral nodes; a second call does nothing."""
        if self._ended is None:
            self._ended = reason
        self._client.remove_listener(self._heard)
        self._client.stop()
        self._client.close()

    def use(self, contacts: Sequence[str]) -> None:
        """Use other addresses from now on; an open connection is kept."""
        if contacts:
            self._client.set_hosts(",".join(contacts))

    def ask(self, request: Callable[[KazooClient], Any], seconds: float | None = None) -> Any:
        """The answer to a request; it must be idempotent, as it is repeated if the connection is lost."""
        deadline = time.monotonic() + (self._settings.patience if seconds is None else seconds)
        while True:
            self.check()
            try:
                return request(self._client).get(timeout=max(deadline - time.monotonic(), 0.001))
            except _AGAIN:
                # Perhaps closed by ourselves, which the next round finds out.
                if time.monotonic() > deadline:
                    raise self._silent() from None
                threading.Event().wait(_PAUSE)
            except self._client.handler.timeout_exception:
                raise self._silent() from None
            except SessionExpiredError:
                self._heard(KazooState.LOST)
            except (AuthFailedError, NoAuthError) as error:
                message = f"token: the grid at {self._hosts()} has another one. All members of a grid have the same."
                raise AnalysisError(message) from error

    def check(self) -> None:
        """Raise an error if the session has ended."""
        if self._ended is not None:
            raise SessionEndedError(f"this member is cut off: {self._ended}.")

    def _silent(self) -> QuorumLostError:
        patience = self._settings.patience
        return QuorumLostError(
            f"this member is cut off from the majority: nobody has answered at {self._hosts()} for {patience:.0f} s."
        )

    def _hosts(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self._client.hosts)

    def _heard(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._connected_since = time.monotonic() if self._was_connected else -math.inf
            self._was_connected = True
        else:
            self._connected_since = None
        if state == KazooState.LOST and self._ended is None:
            self._ended = "its session has ended, as it was silent for too long"
        self._woken()
