"""Starts the embedded member of a grid: the first driver that asks for it does, and it outlives drivers."""

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
from sparkjet_grid.access import create_token
from sparkjet_grid.embedded import NOTED, EmbeddedMember, running_member

_STARTS_WITHIN = 60.0
_LISTENS = "listens at grpc://"
_STARTED: list[subprocess.Popen[bytes]] = []
"""Python warns of a process that outlives the object for it."""


def embedded_member(directory: Path, max_memory: str) -> EmbeddedMember:
    """The embedded member of a directory; it is started if it does not run.

    Drivers that ask at the same time get the same one. What an earlier one held is gone with it.
    """
    token = directory / "token"
    with _alone(directory / "lock"):
        create_token(token)
        found = running_member(directory)
        if found is None:
            found = _started(directory / "member.log", token, max_memory)
            (directory / NOTED).write_bytes(msgspec.json.encode(found))
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
