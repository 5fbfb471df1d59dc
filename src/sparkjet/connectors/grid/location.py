"""Where a source finds a map or a journal, and how it gets access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from sparkjet.connectors.grid.options import ACCESS
from sparkjet.errors import AnalysisError
from sparkjet.options import PATH, Options
from sparkjet_grid.places import split_uri


class Files(TypedDict):
    """Files that give access to members, as readers without Spark take them."""

    token_file: str | None
    certificate: str | None
    key: str | None
    authorities: str | None


@dataclass(frozen=True)
class Location:
    """A map or a journal in a grid; travels to tasks."""

    uri: str
    name: str
    token_file: str | None = None
    certificate: str | None = None
    key: str | None = None
    authorities: str | None = None

    @staticmethod
    def of(options: Options, format: str, kind: str) -> Location:
        """The location in some options."""
        scheme, members, name = split_uri(options[PATH] or "")
        if scheme != "grid" or not name:
            message = (
                f'path: format("{format}") needs load("grid://10.0.0.1:5710/orders"): some members, and the {kind}.'
            )
            raise AnalysisError(message)
        files = (options[each] for each in ACCESS)
        return Location(f"grid://{members}", name, *files)

    @property
    def files(self) -> Files:
        """The files that give access."""
        return Files(
            token_file=self.token_file, certificate=self.certificate, key=self.key, authorities=self.authorities
        )
