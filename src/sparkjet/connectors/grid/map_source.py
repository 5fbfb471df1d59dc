"""The data source ``sparkjet-grid-map``: a map of a grid as a DataFrame, of one whole epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparkjet.connectors.grid.location import Location
from sparkjet.connectors.grid.options import EPOCH, GRID_MAP, MAP_SOURCE_OPTIONS, ONLY_KEYS
from sparkjet.errors import AnalysisError
from sparkjet.options import Options, text
from sparkjet_grid.known_types import known
from sparkjet_grid.map_keys import key_of, texts_of_keys
from sparkjet_grid.map_reader import Map
from sparkjet_grid.messages import Held

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkjet_grid.map_version import MapVersion

NAME = GRID_MAP
MANIFEST = text("sparkjet.manifest", "One version to read.")
"""Option with which an epoch of a query reads one version, even if it is no longer visible: the epoch holds it."""
_TASK_BYTES = 32 << 20
"""Bytes of layers per task, unless a single partition has more."""
_TASK_KEYS = 10_000
"""Number of keys that a task looks up."""


@dataclass(frozen=True)
class MapSettings:
    """The options of one read; travels to tasks."""

    location: Location
    epoch: int | None
    manifest: Held | None = None
    keys: str | None = None

    @classmethod
    def of(cls, options: Options) -> MapSettings:
        """The settings in some options."""
        options.only([*MAP_SOURCE_OPTIONS, MANIFEST], NAME)
        pinned = options[MANIFEST]
        manifest = None if pinned is None else msgspec.json.decode(pinned, type=known(Held))
        return cls(Location.of(options, NAME, "map"), options[EPOCH], manifest, options[ONLY_KEYS])

    def open(self) -> Map:
        """The map."""
        return Map(self.location.uri, self.location.name, **self.location.files)

    def keys_of(self, version: MapVersion) -> list[tuple[object, ...]] | None:
        """The keys to read; None for all."""
        if self.keys is None:
            return None
        kinds = version.kinds
        try:
            given = json.loads(self.keys)
            each = [[key] if len(kinds) == 1 else key for key in given] if isinstance(given, list) else [given]
            found = [key_of(key, kinds) for key in each]
        except ValueError as error:
            wanted = ", ".join(f"{name} ({kind})" for name, kind in zip(version.keys, kinds, strict=True))
            message = f"keys: {self.keys!r} is not a JSON list of keys of this map, which has {wanted}: {error}."
            raise AnalysisError(message) from error
        texts_of_keys(found, kinds)
        return list(dict.fromkeys(found))


class GridMapDataSource(DataSource):
    """A map of a grid; see docs/guide/map.md."""

    @classmethod
    def name(cls) -> str:
        """The name in ``read.format(…)``."""
        return NAME

    @cached_property
    def settings(self) -> MapSettings:
        """The parsed options."""
        return MapSettings.of(Options(dict(self.options)))

    def schema(self) -> StructType:
        """The columns of the map."""
        with self.settings.open() as map_:
            version = map_.version(self.settings.epoch)
        self.settings.keys_of(version)
        return StructType.fromJson(msgspec.json.decode(version.spark_schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A read of one epoch: the newest one at the time of planning."""
        return MapSourceReader(self.settings, schema)


class MapPart(InputPartition):
    """The part that one task reads: some partitions of an epoch, or keys."""

    def __init__(
        self, manifest: Held, partitions: Sequence[int], keys: Sequence[tuple[object, ...]] | None = None
    ) -> None:
        super().__init__(manifest.name)
        self.manifest, self.partitions, self.keys = manifest, list(partitions), keys


class MapSourceReader(DataSourceReader):
    """Reads a map; planned once, and then read by tasks.

    It takes keys as an option rather than filters: Spark uses the plan made with the filters of one scan for all others
    of the same DataFrame.

    Args:
        settings: The options of the read.
        schema: The columns known to Spark.
    """

    def __init__(self, settings: MapSettings, schema: StructType) -> None:
        self._settings, self._schema = settings, schema

    def partitions(self) -> Sequence[InputPartition]:
        """One epoch in parts; it is held until the tasks have had a minute to begin."""
        with self._settings.open() as map_:
            if self._settings.manifest is None:
                manifest, version = map_.planned(self._settings.epoch)
            else:
                manifest = self._settings.manifest
                version = map_.at(manifest)
        keys = self._settings.keys_of(version)
        if keys is not None:
            starts = range(0, max(1, len(keys)), _TASK_KEYS)
            return [MapPart(manifest, [], keys[start : start + _TASK_KEYS]) for start in starts]
        groups: list[list[int]] = [[]]
        size = 0
        for partition, layers in sorted(version.layers.items()):
            size += sum(layer.size for layer in layers)
            if size > _TASK_BYTES and groups[-1]:
                groups.append([])
                size = 0
            groups[-1].append(partition)
        return [MapPart(manifest, group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task: the rows of its part."""
        assert isinstance(partition, MapPart)  # noqa: S101 - as planned
        with self._settings.open() as map_:
            yield from map_.part(partition.manifest, partition.partitions, partition.keys)
