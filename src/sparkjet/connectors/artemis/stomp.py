"""A connection to ActiveMQ Artemis over STOMP, for one thread."""

from __future__ import annotations

import contextlib
import math
import re
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from sparkjet.connectors.artemis.stomp_frames import HEARTBEAT, Frame, FrameReader, encoded
from sparkjet.connectors.tls_files import TlsFiles

_CONNECTS_WITHIN = 10.0
"""Seconds for the connection and the login."""
_READ = 1 << 18
_DUMP = re.compile(r" (?:CoreMessage|ServerConsumerImpl) ?\[.*\](?:@\d+)?", re.DOTALL)
_LOST = "the broker has closed the connection"


class RefusedError(Exception):
    """The broker has responded with an error, in its own words; it may close the connection."""


@dataclass(frozen=True)
class StompAddress:
    """How to connect.

    Attributes:
        host: Host name of the broker.
        port: Port of an acceptor for STOMP.
        user: The user who logs in.
        password: Never shown.
        tls: TLS files if it is used: the authorities to trust, and the client's certificate.
        heartbeat: Seconds after which each side considers the other dead.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: TlsFiles | None = None
    heartbeat: float = 60.0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class StompConnection:
    """Sends frames and receives messages; sends heartbeats while it waits for something.

    Every method raises :class:`OSError` when the connection is gone, and :class:`RefusedError` when the broker refuses.
    After either, only :meth:`close` may be called.

    Args:
        address: Where the broker is, and who logs in.
    """

    def __init__(self, address: StompAddress) -> None:
        self._address = address
        self._reader = FrameReader()
        self._messages: dict[str, list[Frame]] = {}
        self._confirmed: set[str] = set()
        self._receipts = map(str, count(1))
        self._heard = self._sent = time.monotonic()
        self._silence = math.inf
        self._socket = socket.create_connection((address.host, address.port), _CONNECTS_WITHIN)
        try:
            # Otherwise each receipt waits for the kernel to merge the frame it responds to with more.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls is not None:
                self._socket = address.tls.context().wrap_socket(self._socket, server_hostname=address.host)
            self._log_in()
        except BaseException:
            self._socket.close()
            raise

    def send(self, frames: Iterable[Frame]) -> None:
        """Send frames, without waiting for the broker."""
        self._write(b"".join(map(encoded, frames)))

    def confirm(self, frames: Sequence[Frame]) -> None:
        """Send frames, and wait until the broker has done what the last one asks for, and has it on disk."""
        receipt = next(self._receipts)
        last = frames[-1]
        self.send([*frames[:-1], last._replace(headers={**last.headers, "receipt": receipt})])
        waited = time.monotonic() + self._address.heartbeat
        while receipt not in self._confirmed:
            self._read(waited - time.monotonic())
            if time.monotonic() > waited:
                raise TimeoutError(f"no answer to {last.command} within {self._address.heartbeat:.0f} s")
        self._confirmed.remove(receipt)

    def messages(self, of: str, seconds: float) -> list[Frame]:
        """Messages that have arrived for some subscriptions; if there are none, waits once, for at most this long."""
        if of not in self._messages:
            self._read(seconds)
        return self._messages.pop(of, [])

    def close(self) -> None:
        """End the connection; a second call does nothing."""
        with contextlib.suppress(OSError, RefusedError):
            self._write(encoded(Frame("DISCONNECT", {})))
        self._socket.close()

    def _log_in(self) -> None:
        address = self._address
        beat = round(address.heartbeat * 500)
        headers = {
            "accept-version": "1.2",
            "host": address.host,
            "login": address.user,
            "passcode": address.password,
            # The broker waits for twice as long.
            "heart-beat": f"{beat},{beat}",
        }
        self._write(encoded(Frame("CONNECT", headers)))
        waited = time.monotonic() + _CONNECTS_WITHIN
        while not self._confirmed:
            self._read(waited - time.monotonic())
            if time.monotonic() > waited:
                raise TimeoutError("nothing that speaks STOMP answers")
        self._confirmed.clear()

    def _read(self, seconds: float) -> None:
        """Take what has arrived, waiting no longer than this or until the next heartbeat is due."""
        self._beat()
        self._take(max(min(seconds, self._address.heartbeat / 4), 0.0))

    def _take(self, seconds: float) -> None:
        self._socket.settimeout(seconds)
        try:
            arrived = self._socket.recv(_READ)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            if time.monotonic() - self._heard > self._silence:
                raise TimeoutError(f"nothing was heard from the broker for {self._silence:.1f} s") from None
            return
        if not arrived:
            raise ConnectionResetError(_LOST)
        self._heard = time.monotonic()
        for frame in self._reader.feed(arrived):
            if frame.command == "MESSAGE":
                of, _, _ = frame.headers["subscription"].partition("/")
                self._messages.setdefault(of, []).append(frame)
            elif frame.command == "ERROR":
                raise RefusedError(_words(frame))
            elif frame.command == "RECEIPT":
                self._confirmed.add(frame.headers["receipt-id"])
            else:
                self._confirmed.add("")
                # The broker may choose to send less often than it was asked to.
                period = int(frame.headers.get("heart-beat", "0,0").split(",")[0]) / 1000
                self._silence = max(self._address.heartbeat, 3 * period) if period else math.inf

    def _beat(self) -> None:
        if time.monotonic() - self._sent > self._address.heartbeat / 4:
            self._write(HEARTBEAT)

    def _write(self, content: bytes) -> None:
        self._socket.settimeout(self._address.heartbeat)
        try:
            self._socket.sendall(content)
        except OSError:
            # Before the broker closes a connection it says why.
            with contextlib.suppress(OSError):
                self._take(0.0)
            raise
        self._sent = time.monotonic()


def _words(error: Frame) -> str:
    """The broker's message, in the header or, if it has colons, in the body."""
    texts = (error.body.decode(errors="replace"), error.headers.get("message", ""))
    text = next((text.strip() for text in texts if text.strip()), "it gives no reason; its log may")
    # It shows its objects with all their contents, such as a message with the user's properties.
    return _DUMP.sub("", text)
