"""A proxy in front of an S3 server that counts requests, loses answers, and answers what the server did not say."""

from __future__ import annotations

import re
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import Self

_NOT_PASSED_ON = {"connection", "keep-alive", "transfer-encoding"}


class Fault(Enum):
    """The fate of a request: whether it arrives, and the client's response; None for a closed connection.

    The response of those that end with ``KEYS`` is to a removal of several files, and says why each of them stays.
    """

    LOST = True, None
    ERROR_AFTER = True, 500
    DENIED_AFTER = True, 403
    CONFLICT = False, 409
    BUSY = False, 503
    DENIED = False, 403
    BUSY_KEYS = False, "SlowDown"
    DENIED_KEYS = False, "AccessDenied"


class S3Proxy:
    """Passes requests on; the next ones of a method meet the faults that are planned for them.

    Args:
        port: The server's, on the loopback address.
        method: Which requests meet faults.
    """

    def __init__(self, port: int, method: str = "PUT") -> None:
        self.method = method
        self.planned: deque[Fault] = deque()
        self._always: Fault | None = None
        self.met: list[Fault] = []
        self.requests: list[str] = []
        self._server = _Server(port, self)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def always(self, fault: Fault) -> Iterator[None]:
        """Every request of any method meets a fault for as long as the block runs."""
        self._always = fault
        try:
            yield
        finally:
            self._always = None

    def next_fault(self, method: str) -> Fault | None:
        """The fault that a request meets."""
        fault = self._always
        if fault is None and method == self.method:
            with suppress(IndexError):
                fault = self.planned.popleft()
        if fault is None:
            return None
        self.met.append(fault)
        return fault


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, target: int, proxy: S3Proxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.proxy = target, proxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        proxy = self.server.proxy
        proxy.requests.append(f"{self.command} {self.path}")
        fault = proxy.next_fault(self.command)
        arrives, status = fault.value if fault is not None else (True, None)
        answer = self._passed_on(body) if arrives else (0, {}, b"")
        if fault is Fault.LOST:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._answer(*(answer if status is None else _told(status, body)))

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

    def log_message(self, *_: Any) -> None:
        """Nothing: the log of http.server is the test's output."""

    def _passed_on(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _NOT_PASSED_ON | {"expect"}:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            found = connection.getresponse()
            return found.status, dict(found.getheaders()), found.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _NOT_PASSED_ON | {"content-length"}:
                self.send_header(name, value)
        # Of a HEAD, the length of what is not sent.
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)


def _told(status: int | str, asked: bytes) -> tuple[int, dict[str, str], bytes]:
    said = "<Message>planned by the test</Message>"
    headers = {"Content-Type": "application/xml"}
    if isinstance(status, str):
        keys = re.findall("<Key>[^<]*</Key>", asked.decode())
        errors = "".join(f"<Error>{key}<Code>{status}</Code>{said}</Error>" for key in keys)
        return 200, headers, f"<DeleteResult>{errors}</DeleteResult>".encode()
    code = {500: "InternalError", 409: "ConditionalRequestConflict", 503: "SlowDown", 403: "AccessDenied"}[status]
    return status, headers, f"<Error><Code>{code}</Code>{said}</Error>".encode()
