"""A version of a map, as its manifest has it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparkjet_grid.map_keys import hash_of, kind_of
from sparkjet_grid.messages import Held
from sparkjet_grid.places import Version

_EPOCH = re.compile(r"/layers/\d+-(\d+)-")


class MapVersion(Version, frozen=True, kw_only=True):
    """One version of a map, as its manifest has it; rows expire by its ``clock``.

    Attributes:
        partitions: Of the grid.
        layers: Of each partition that has some, the newest first.
        expiry: The first and the last time at which rows may expire; None if none ever does.
        endless: Whether there may be rows that never expire.
    """

    partitions: int
    layers: dict[int, tuple[Held, ...]]
    expiry: tuple[int, int] | None = None
    endless: bool = True

    @property
    def kinds(self) -> list[str]:
        """The kinds of the values of keys."""
        schema = self.schema
        return [str(kind_of(schema.field(name).type)) for name in self.keys]

    def held(self) -> list[Held]:
        """All its layers."""
        return [layer for layers in self.layers.values() for layer in layers]

    def expiry_at(self, clock: int) -> tuple[int, int] | None:
        """:attr:`expiry` as of a later time: which rows are left is not known, so one may expire at once."""
        return None if self.expiry is None or self.expiry[1] <= clock else (max(self.expiry[0], clock), self.expiry[1])

    def partition(self, text: str) -> int:
        """The partition of a key, by its text."""
        return hash_of(text) % self.partitions


def epochs_of(names: Iterable[str]) -> list[int]:
    """The epochs that have written some layers, ascending; a layer may have rows of earlier epochs too."""
    return sorted({int(match[1]) for name in names if (match := _EPOCH.search(name)) is not None})
