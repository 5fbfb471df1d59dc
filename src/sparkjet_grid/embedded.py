"""The embedded member, a grid of one that drivers start and that outlives them; and clients of any grid by its URI."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

import msgspec

from sparkjet_grid.access import Access
from sparkjet_grid.client import PATIENCE, GridClient
from sparkjet_grid.connections import Connections
from sparkjet_grid.errors import AnalysisError, GridError
from sparkjet_grid.known_types import known
from sparkjet_grid.messages import Ping
from sparkjet_grid.places import split_uri

NOTED = "member.json"
"""The file that names the member of a directory."""


class EmbeddedMember(msgspec.Struct, frozen=True):
    """A running embedded member.

    Attributes:
        process: Its id.
        address: Its ``host:port``, on loopback.
        token_file: The file with its token, which only this user can read.
    """

    process: int
    address: str
    token_file: str

    @property
    def access(self) -> Access:
        """Access to it."""
        return Access(self.token_file)

    @property
    def answers(self) -> bool:
        """Whether it answers."""
        connections = Connections(self.access)
        try:
            connections.ask(f"grpc://{self.address}", Ping(), str, 3.0)
        except GridError:
            return False
        finally:
            connections.close()
        return True


def embedded_directory() -> Path:
    """The directory with the token and the address of this user's embedded member on this machine."""
    return local_directory("grid:")


def running_member(directory: Path) -> EmbeddedMember | None:
    """The embedded member of a directory, if it is running."""
    noted = directory / NOTED
    found = msgspec.json.decode(noted.read_bytes(), type=known(EmbeddedMember)) if noted.exists() else None
    return found if found is not None and found.answers else None


def local_directory(home: str) -> Path:
    """A private directory of this user, the same for every driver of a home on this machine.

    That the next start finds it again is a convenience, by which it may see that the home has lost records. Anybody may
    create the name below the temporary directory first, so one that is not this user's alone is not used.
    """
    digest = hashlib.sha256(home.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"sparkjet-{os.getuid()}-{digest}")
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return path if is_ours else Path(tempfile.mkdtemp(prefix="sparkjet-"))


def client_of(uri: str, access: Access, patience: float = PATIENCE) -> GridClient:
    """A client of the grid that a URI names, ``grid://host:port,…``, or ``grid:///`` for the embedded member."""
    scheme, members, name = split_uri(uri)
    if scheme != "grid" or name:
        message = (
            f'uri: "{uri}" names no grid, as grid://10.0.0.1:5710 does. The name of the map or journal is the next '
            "argument."
        )
        raise AnalysisError(message)
    if members:
        access.token()
        return GridClient(members.split(","), access, patience=patience)
    member = running_member(embedded_directory())
    if member is None:
        raise AnalysisError(f'uri: "{uri}" is the member that drivers start on this machine, and none runs.')
    return GridClient([member.address], member.access, patience=patience)
