"""Where a grid is: the members, token and certificates behind a location as given by the user."""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sparkjet.errors import AnalysisError, SparkjetError, StorageError
from sparkjet.executors import is_local
from sparkjet_grid.access import Access, create_token
from sparkjet_grid.client import GridClient
from sparkjet_grid.cluster_state import may_start
from sparkjet_grid.embedded import NOTED, EmbeddedMember, embedded_directory, running_member
from sparkjet_grid.places import split_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_STARTS_WITHIN = 60.0
_LISTENS = "listens at grpc://"
_STARTED: list[subprocess.Popen[bytes]] = []
"""Python warns of a process that outlives its object."""


def embedded_member(directory: Path, max_memory: str) -> EmbeddedMember:
    """The embedded member of a directory; starts it if it is not running.

    Drivers that ask at the same time get the same one. If an earlier one has ended, what it held is gone.
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
        # In its own session: it must outlive the driver, and its terminal.
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
    message = f"The embedded member of the grid did not start within {_STARTS_WITHIN:.0f} s; its log {log}:\n{text}"
    member.kill()
    raise StorageError(message)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


_SETTINGS = {
    "token_file": "spark.sparkjet.grid.tokenFile",
    "certificate": "spark.sparkjet.grid.tlsCertificate",
    "key": "spark.sparkjet.grid.tlsKey",
    "authorities": "spark.sparkjet.grid.tlsAuthorities",
}
"""Names of the session's settings: each names a file, on the driver and on every executor."""
_MEMORY = "spark.sparkjet.grid.maxMemory"
"""Setting that limits what the embedded member may hold."""
_NAME = re.compile(r"[^/\0]+(/[^/\0]+)*")


class GridLocation(msgspec.Struct, frozen=True):
    """Where a grid is, and how to access it; contains no secrets, and travels with tasks.

    Attributes:
        members: Addresses of some members, as ``host:port``.
        access: Where to find token and certificates.
        cluster: Id of the grid, a different one once it is formed again: no client continues with what it knew.
    """

    members: tuple[str, ...]
    access: Access
    cluster: str | None = None

    def __str__(self) -> str:
        return f"grid://{','.join(self.members)}"

    @property
    def client(self) -> GridClient:
        """The client of this process."""
        return _client(self)


def check_whole(client: GridClient, option: str, what: object, way_out: str = "") -> None:
    """Refuse to start on a grid that does not answer, or whose missing members may hold as much."""
    try:
        state = client.state()
    except StorageError as error:
        raise AnalysisError(f'{option}: "{what}" cannot be used: {error}') from error
    if not may_start(state):
        message = (
            f'{option}: "{what}" has {state.present} members left of {state.largest}: the others may go on elsewhere, '
            f"or hold what is missing here. Start members until there are more than half{way_out}."
        )
        raise AnalysisError(message)


def grid_location(location: str, option: str, session: SparkSession) -> tuple[GridLocation, str]:
    """The grid of a location such as ``grid://10.0.0.1:5710,10.0.0.2:5710/orders``, and the name within it.

    Without members, as in ``grid:///orders``, it is the embedded member of this machine, which is started if needed.
    """
    _, members, name = split_uri(location)
    if _NAME.fullmatch(name) is None:
        message = (
            f'{option}: "{location}" names no place in a grid. Give the addresses of some members and a name, as in '
            "grid://10.0.0.1:5710,10.0.0.2:5710/orders; or grid:///orders for a member on this machine."
        )
        raise AnalysisError(message)
    if not members:
        return _embedded(option, session), name
    settings = session.conf
    access = Access(**{field: settings.get(setting, None) for field, setting in _SETTINGS.items()})
    return _found(tuple(members.split(",")), access, option), name


def _embedded(option: str, session: SparkSession) -> GridLocation:
    if not is_local(session):
        message = (
            f"{option}: executors on other machines cannot reach a member that the driver starts on its own. Start one "
            "on each machine with python -m sparkjet grid start, and name some: grid://10.0.0.1:5710,10.0.0.2:5710."
        )
        raise AnalysisError(message)
    member = embedded_member(embedded_directory(), session.conf.get(_MEMORY, "1g") or "1g")
    return _found((member.address,), member.access, option)


def _found(members: tuple[str, ...], access: Access, option: str) -> GridLocation:
    try:
        access.token()
        client = GridClient(members, access)
        try:
            return GridLocation(members, access, client.state().cluster)
        finally:
            client.close()
    except SparkjetError as error:
        raise AnalysisError(f'{option}: "grid://{",".join(members)}" cannot be used: {error}') from error


@lru_cache(maxsize=8)
def _client(location: GridLocation) -> GridClient:
    return GridClient(location.members, location.access, cluster=location.cluster)
