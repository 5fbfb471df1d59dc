"""The link between the engine and a receiver, which live in different processes on the driver's machine."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from sparkjet.errors import SourceError
from sparkjet.known_types import known
from sparkjet.sources.acknowledging.ledger import LedgerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ANSWERS_WITHIN = 60.0
"""Seconds; a receiver answers from memory."""
_LONGEST = 100
"""Bytes; every system accepts a socket path of this length."""


class Start(msgspec.Struct, frozen=True, tag=True):
    """Begin to read; a second one changes nothing, as an epoch may be retried.

    Attributes:
        identified: Whether messages are told apart by their ids.
        state: The ledger's state in the newest record; None if the source has had no epoch yet.
    """

    identified: bool
    state: LedgerState | None


class Held(msgspec.Struct, frozen=True, tag=True):
    """Ask for the state that the record of an epoch up to a position must contain."""

    position: int


class Acknowledge(msgspec.Struct, frozen=True, tag=True):
    """Acknowledge the messages up to a position, which are decided."""

    position: int


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Acknowledge what is due, and end: Spark ends the process without notifying the source."""


Request: TypeAlias = Start | Held | Acknowledge | Stop


class _Answer(msgspec.Struct, frozen=True):
    error: str | None = None
    state: LedgerState | None = None


_request = msgspec.json.Decoder(known(Request))
_answer = msgspec.json.Decoder(known(_Answer))


class ControlServer:
    """Answers requests on a socket in the file system, which only the driver's user may open.

    Args:
        path: Path of the socket; its directory must be private.
        handle: Called with each request, in a server thread.
    """

    def __init__(self, path: Path, handle: Callable[[Request], LedgerState | None]) -> None:
        self._closed = closed = threading.Event()

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    if closed.is_set():
                        return
                    self.wfile.write(_answered(handle, line))

        with _short(path) as address:
            self._server = socketserver.ThreadingUnixStreamServer(address, Handler)
        # A driver that is gone would keep the process from ending.
        self._server.daemon_threads = True
        self._path = path
        self._thread = threading.Thread(target=self._server.serve_forever, name="sparkjet control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering; a second call does nothing."""
        self._closed.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._path.unlink(missing_ok=True)


class ControlClient:
    """Sends requests to the receiver at a path; for one thread at a time.

    Raises:
        SourceError: From the constructor and from :meth:`ask`: there is no answer at the path, or the receiver has
        failed.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_ANSWERS_WITHIN)
        try:
            with _short(Path(path)) as address:
                self._socket.connect(address)
        except OSError as error:
            self._socket.close()
            raise self._gone(error) from error
        self._file = self._socket.makefile("rb")

    def ask(self, request: Request) -> LedgerState | None:
        """Send a request and wait for its answer."""
        try:
            self._socket.sendall(msgspec.json.encode(request) + b"\n")
            line = self._file.readline()
        except OSError as error:
            raise self._gone(error) from error
        if not line:
            raise self._gone(EOFError("it has closed the connection"))
        answer = _answer.decode(line)
        if answer.error is not None:
            raise SourceError(answer.error)
        return answer.state

    def close(self) -> None:
        """End the connection; a second call does nothing."""
        with contextlib.suppress(OSError):
            self._file.close()
            self._socket.close()

    def _gone(self, error: Exception) -> SourceError:
        return SourceError(f"the process that reads the queues does not answer at {self._path}: {error}")


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """The path of a socket as the system accepts it: at most 107 bytes, which ``TMPDIR`` alone may exceed."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _answered(handle: Callable[[Request], LedgerState | None], line: bytes) -> bytes:
    answer: Any
    try:
        answer = _Answer(state=handle(_request.decode(line)))
    except Exception as error:  # noqa: BLE001 - the driver raises it
        answer = _Answer(error=str(error))
    return msgspec.json.encode(answer) + b"\n"
