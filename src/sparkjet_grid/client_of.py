"""The client of a grid that is named by a URI, for processes without Spark."""

from __future__ import annotations

from sparkjet_grid.access import Access
from sparkjet_grid.client import PATIENCE, GridClient
from sparkjet_grid.embedded import embedded_directory, running_member
from sparkjet_grid.errors import AnalysisError
from sparkjet_grid.places import split_uri


def client_of(uri: str, access: Access, patience: float = PATIENCE) -> GridClient:
    """A client of the grid of a URI."""
    scheme, members, name = split_uri(uri)
    if scheme != "grid" or name:
        message = f'uri: "{uri}" names no grid, as grid://10.0.0.1:5710 does. What it holds is the next argument.'
        raise AnalysisError(message)
    if members:
        access.token()
        return GridClient(members.split(","), access, patience=patience)
    member = running_member(embedded_directory())
    if member is None:
        message = f'uri: "{uri}" is the member that drivers start on this machine, and none runs.'
        raise AnalysisError(message)
    return GridClient([member.address], member.access, patience=patience)
