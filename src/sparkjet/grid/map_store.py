"""Versions of a map in a grid, and what is said of one that is lost."""

from __future__ import annotations

from collections.abc import Sequence

from sparkjet.grid.entries import Key
from sparkjet.grid.map_version import MapVersion, epochs_of
from sparkjet.grid.messages import Held
from sparkjet.grid.reader_leases import holder_of
from sparkjet.grid.version_store import VersionStore


class MapStore(VersionStore[MapVersion]):
    """The versions of one map, of which leases hold some. See :class:`sparkjet.grid.version_store.VersionStore`."""

    _type = MapVersion

    def _lost_of(self, version: MapVersion, lost: Sequence[Key]) -> str:
        epochs = epochs_of(key.name for key in lost) or [version.epoch]
        return f"with rows of epochs up to {epochs[-1]} (its newest is {version.epoch})"

    def _leased(self, leases: Sequence[Held]) -> set[int]:
        return {int(holder_of(each)) for each in leases}
