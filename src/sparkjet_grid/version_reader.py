"""Common to readers of maps and journals: the grid that they read, and what missing entries mean."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from typing_extensions import Self

from sparkjet_grid.access import Access
from sparkjet_grid.client import PATIENCE, GridClient
from sparkjet_grid.embedded import client_of
from sparkjet_grid.errors import AnalysisError, nearest
from sparkjet_grid.places import Place, Version
from sparkjet_grid.reader_leases import Lease
from sparkjet_grid.version_store import VersionStore, names_of

V = TypeVar("V", bound=Version)


class VersionReader(Generic[V]):
    """Reads a map or a journal; its arguments are those of :class:`~sparkjet_grid.map_reader.Map`."""

    _place: ClassVar[type[Place]]
    _versions: ClassVar[type[VersionStore[Any]]]

    def __init__(
        self,
        uri: str,
        name: str,
        *,
        token_file: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        authorities: str | None = None,
        patience: float = PATIENCE,
        client: GridClient | None = None,
    ) -> None:
        place = self._place.of(name, "name")
        access = Access(token_file, certificate, key, authorities)
        self._store: VersionStore[V] = self._versions(client or client_of(uri, access, patience), place)
        self._seen: V | None = None
        self._leases: dict[str, Lease] = {}
        """The leases by holder, while they are renewed."""

    def told(self) -> dict[str, Any] | None:
        """The progress that its only writer announces with the newest epoch; None before the first.

        Returns:
            ``query``, ``output``, ``epoch`` and ``watermark``, in microseconds since 1970; None if it has none.
        """
        found = self._store.newest()
        if found is None:
            self._check_known()
            return None
        return {"query": found.query, "output": found.output, "epoch": found.epoch, "watermark": found.watermark}

    def remove(self) -> None:
        """Remove it with all that it holds; a query that still writes it ends with an error."""
        self._check_known()
        self._store.remove()

    def close(self) -> None:
        """Close the connections."""
        self._store.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _newest(self) -> V:
        found = self._store.newest()
        if found is None:
            self._check_known()
            raise AnalysisError(f"name: {self._store.place} has no epoch yet: its query has just started.")
        return found

    def _check_known(self) -> None:
        name, there = self._store.place.name, names_of(self._store.client, self._place)
        if name not in there:
            raise AnalysisError(f"name: the grid has no {self._store.place}; {nearest(name, there)}")

    def _is_replaced(self, version: V) -> bool:
        """Whether there is a newer version than one of which entries are missing; an error if these are lost for good.

        It is an error too if the map or journal was removed, and perhaps recreated with other rows at the same offsets.
        """
        self._store.check_not_removed(version)
        if self._newest().number != version.number:
            return True
        self._store.check(version)
        return False
