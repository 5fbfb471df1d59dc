"""A version of a map: what a slot names."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
import pyarrow as pa

from sparkjet_grid.map_keys import hash_of, kind_of
from sparkjet_grid.messages import Held

_EPOCH = re.compile(r"/layers/\d+-(\d+)-")


class MapVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a map, as its manifest has it.

    Attributes:
        number: Counts the versions.
        epoch: Of the query, the newest one whose rows are in it.
        clock: Microseconds of the epoch's clock, by which rows expire.
        watermark: Of the epoch, in microseconds; None if there was none.
        query: Id of the query that writes the map.
        output: Name of its output.
        run: Of the driver that wrote it.
        keys: The key columns.
        arrow_schema: Of the rows, as Arrow serializes it.
        spark_schema: The same in Spark's JSON.
        partitions: Of the grid.
        layers: Of each partition that has some, the newest first.
        expiry: The first and the last time at which rows that were there may expire; None if none ever does.
        endless: Whether there may be rows that never expire.
        ahead: Microseconds that ``clock`` is ahead of the query's, which was set back.
    """

    number: int
    epoch: int
    clock: int
    watermark: int | None
    query: str
    output: str
    run: str
    keys: tuple[str, ...]
    arrow_schema: bytes
    spark_schema: str
    partitions: int
    layers: dict[int, tuple[Held, ...]]
    expiry: tuple[int, int] | None = None
    # Versions of earlier releases do not say.
    endless: bool = True
    ahead: int = 0

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return pa.ipc.read_schema(pa.py_buffer(self.arrow_schema))

    @property
    def kinds(self) -> list[str]:
        """What the values of keys are."""
        schema = self.schema
        return [str(kind_of(schema.field(name).type)) for name in self.keys]

    def held(self) -> list[Held]:
        """All of its layers."""
        return [layer for layers in self.layers.values() for layer in layers]

    def expiry_at(self, clock: int) -> tuple[int, int] | None:
        """What :attr:`expiry` is at a later time: which rows are left is not known, so one may expire at once."""
        return None if self.expiry is None or self.expiry[1] <= clock else (max(self.expiry[0], clock), self.expiry[1])

    def partition(self, text: str) -> int:
        """The partition of a key, by its text."""
        return hash_of(text) % self.partitions


def epochs_of(names: Iterable[str]) -> list[int]:
    """The epochs that wrote some layers, ascending: each has rows of that one, and perhaps of earlier ones."""
    return sorted({int(match[1]) for name in names if (match := _EPOCH.search(name)) is not None})
