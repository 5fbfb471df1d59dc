"""Where a grid is: the members, token and certificates behind a location as the user gives it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from sparkjet.errors import AnalysisError
from sparkjet.grid.access import Access
from sparkjet.grid.client import GridClient

if TYPE_CHECKING:
    from pyspark.sql.conf import RuntimeConfig

_SETTINGS = {
    "token_file": "spark.sparkjet.grid.tokenFile",
    "certificate": "spark.sparkjet.grid.tlsCertificate",
    "key": "spark.sparkjet.grid.tlsKey",
    "authorities": "spark.sparkjet.grid.tlsAuthorities",
}
"""Names of the session's settings: each is a file, on the driver and on every executor."""
_NAME = re.compile(r"[^/\0]+(/[^/\0]+)*")


class GridLocation(msgspec.Struct, frozen=True):
    """Where a grid is, and how it is entered; it holds no secret, and travels with tasks.

    Attributes:
        members: Addresses of some members, as ``host:port``.
        access: Where token and certificates are.
    """

    members: tuple[str, ...]
    access: Access

    def __str__(self) -> str:
        return f"grid://{','.join(self.members)}"

    @property
    def client(self) -> GridClient:
        """The client of this process."""
        return _client(self)


def grid_location(location: str, option: str, settings: RuntimeConfig) -> tuple[GridLocation, str]:
    """The grid of a location such as ``grid://10.0.0.1:5710,10.0.0.2:5710/orders``, and the name in it.

    Args:
        location: The location.
        option: Name of the user's option, for messages.
        settings: Of the session; they name the files with the token and the certificates.

    Raises:
        AnalysisError: It names no member or no directory, or there is no token.
    """
    parts = urlsplit(location)
    name = parts.path.strip("/")
    if not parts.netloc or _NAME.fullmatch(name) is None:
        message = (
            f'{option}: "{location}" is not a place in a grid. Give the addresses of some members and a name for the '
            "query, as in grid://10.0.0.1:5710,10.0.0.2:5710/orders."
        )
        raise AnalysisError(message)
    access = Access(**{field: settings.get(name, None) for field, name in _SETTINGS.items()})
    found = GridLocation(tuple(parts.netloc.split(",")), access)
    # Both complain of what is wrong with an address or a token.
    access.token()
    _client(found)
    return found, name


@lru_cache(maxsize=8)
def _client(location: GridLocation) -> GridClient:
    return GridClient(location.members, location.access)
