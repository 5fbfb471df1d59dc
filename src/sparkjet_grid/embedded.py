"""The embedded member: a grid of one on this machine, which sparkjet's drivers start and which outlives them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sparkjet_grid.access import Access
from sparkjet_grid.connections import Connections
from sparkjet_grid.errors import GridError
from sparkjet_grid.known_types import known
from sparkjet_grid.local_directory import local_directory
from sparkjet_grid.requests import Ping

NOTED = "member.json"
"""Where the one of a directory is noted."""


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
    noted = directory / NOTED
    found = msgspec.json.decode(noted.read_bytes(), type=known(EmbeddedMember)) if noted.exists() else None
    return found if found is not None and found.answers else None
