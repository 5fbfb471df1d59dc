"""The embedded member: a grid of one, started by the first driver that asks for it, which outlives drivers."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sparkjet.errors import StorageError
from sparkjet.grid.access import Access, create_token
from sparkjet.grid.connections import Connections
from sparkjet.grid.errors import GridError
from sparkjet.grid.local_directory import local_directory
from sparkjet.grid.requests import Ping
from sparkjet.known_types import known

_STARTS_WITHIN = 60.0
_NOTED = "member.json"
_LISTENS = "listens at grpc://"
_STARTED: list[subprocess.Popen[bytes]] = []
"""Python warns of a process that outlives the object for it."""


class EmbeddedMember(msgspec.Struct, frozen=True):
    """A member that runs.

    Attributes:
        process: Its id.
        address: Its ``host:port``, on loopback.
        token_file: Contains the token, which only this user can read.
    """

    process: int
    address: str
    token_file: str

    @property
    def access(self) -> Access:
        """How it is entered."""
        return Access(self.token_file)

    @property
    def answers(self) -> bool:
        """Whether it is there."""
        connections = Connections(self.access)
        try:
            connections.ask(f"grpc://{self.address}", Ping(), str, 3.0)
        except GridError:
            return False
        finally:
            connections.close()
        return True


def embedded_directory() -> Path:
    """Where the embedded member of this user and machine is noted, with its token."""
    return local_directory("grid:")


def running_member(directory: Path) -> EmbeddedMember | None:
    """The embedded member of a directory, if it runs."""
    noted = directory / _NOTED
    found = msgspec.json.decode(noted.read_bytes(), type=known(EmbeddedMember)) if noted.exists() else None
    return found if found is not None and found.answers else None


def embedded_member(directory: Path, max_memory: str) -> EmbeddedMember:
    """The embedded member of a directory; it is started if it does not run.

    Drivers that ask at the same time get the same one. What an earlier one held is gone with it.

    Args:
        directory: A directory of this user's alone, on this machine; the member's token and log are there.
        max_memory: What its entries may take, if it is started, as in ``grid start --max-memory``.

    Raises:
        StorageError: It does not start; with its log.
    """
    token = directory / "token"
    with _alone(directory / "lock"):
        create_token(token)
        found = running_member(directory)
        if found is None:
            found = _started(directory / "member.log", token, max_memory)
            (directory / _NOTED).write_bytes(msgspec.json.encode(found))
        return found


def _started(log: Path, token: Path, max_memory: str) -> EmbeddedMember:
    command = [sys.executable, "-m", "sparkjet", "grid", "start", "--alone", "--port", "0"]
    command += ["--token-file", str(token), "--max-memory", max_memory]
    with log.open("wb") as output:
        # A session of its own: it must outlive the driver, and its terminal.
        member = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    until = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < until:
        text = log.read_text(errors="replace")
        if _LISTENS in text:
            _STARTED.append(member)
            return EmbeddedMember(member.pid, text.partition(_LISTENS)[2].split()[0], str(token))
        try:
            member.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    text = log.read_text(errors="replace")[-2000:]
    message = f"The embedded member of the grid has not started within {_STARTS_WITHIN:.0f} s; its log {log}:\n{text}"
    member.kill()
    raise StorageError(message)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
