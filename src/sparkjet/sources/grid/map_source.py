"""The data source ``sparkjet-grid-map``: a map of a grid as a DataFrame, of one whole epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, In, InputPartition
from pyspark.sql.types import StructType

from sparkjet.grid.map_reader import Map
from sparkjet.grid.messages import Held
from sparkjet.known_types import known
from sparkjet.options import Options
from sparkjet.sources import GRID_MAP
from sparkjet.sources.grid.location import LOCATION_OPTIONS, Location

if TYPE_CHECKING:
    import pyarrow as pa

NAME = GRID_MAP
OPTIONS = {**LOCATION_OPTIONS, "epoch": "The epoch to read, while it is visible (the newest)."}
MANIFEST = "sparkjet.manifest"
"""The option by which an epoch of a query reads one version, whether or not it is visible still: it holds it."""
_TASK_BYTES = 32 << 20
"""Bytes of layers that a task reads, unless one partition has more."""
_MOST_KEYS = 10_000
"""Keys that are looked for one by one; for more the whole map is read."""


@dataclass(frozen=True)
class MapSettings:
    """The options of one read; travels to tasks."""

    location: Location
    epoch: int | None
    manifest: Held | None = None

    @classmethod
    def of(cls, options: Options) -> MapSettings:
        """The settings of some options.

        Raises:
            AnalysisError: One is missing or wrong.
        """
        options.only([*OPTIONS, MANIFEST], NAME)
        epoch = None if options.get("epoch") is None else options.number("epoch", default=1)
        pinned = options.get(MANIFEST)
        manifest = None if pinned is None else msgspec.json.decode(pinned, type=known(Held))
        return cls(Location.of(options, NAME, "map"), epoch, manifest)

    def open(self) -> Map:
        """The map."""
        return Map(self.location.uri, self.location.name, **self.location.files)


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
        return StructType.fromJson(msgspec.json.decode(version.spark_schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A read of one epoch: the one that is the newest when it is planned."""
        return MapSourceReader(self.settings, schema)


class MapPart(InputPartition):
    """What one task reads: some partitions of an epoch, or keys."""

    def __init__(self, manifest: Held, partitions: Sequence[int], keys: Sequence[tuple[object, ...]] | None) -> None:
        super().__init__(manifest.name)
        self.manifest, self.partitions, self.keys = manifest, list(partitions), keys


class MapSourceReader(DataSourceReader):
    """Reads a map; planned once, and then read by tasks.

    Args:
        settings: Where it is.
        schema: The columns that Spark knows.
    """

    def __init__(self, settings: MapSettings, schema: StructType) -> None:
        self._settings, self._schema = settings, schema
        self._keys: list[tuple[object, ...]] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take conditions on all key columns as keys to look for; Spark evaluates them once more."""
        values: dict[str, list[Any]] = {}
        for each in filters:
            if isinstance(each, (EqualTo, In)) and len(each.attribute) == 1:
                given = each.value if isinstance(each, In) else [each.value]
                # Nothing equals null, and no key is.
                values.setdefault(each.attribute[0], [value for value in dict.fromkeys(given) if value is not None])
        with self._settings.open() as map_:
            keys = map_.keys if self._settings.manifest is None else map_.at(self._settings.manifest).keys
        # Counted first: of two long lists there are more pairs than memory has room for.
        if all(name in values for name in keys) and prod(len(values[name]) for name in keys) <= _MOST_KEYS:
            self._keys = list(product(*(values[name] for name in keys)))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """One epoch in parts; it is held until the tasks have had a minute to begin."""
        with self._settings.open() as map_:
            if self._settings.manifest is None:
                manifest, version = map_.planned(self._settings.epoch)
            else:
                manifest = self._settings.manifest
                version = map_.at(manifest)
        if self._keys is not None:
            return [MapPart(manifest, [], self._keys)]
        groups: list[list[int]] = [[]]
        size = 0
        for partition, layers in sorted(version.layers.items()):
            size += sum(layer.size for layer in layers)
            if size > _TASK_BYTES and groups[-1]:
                groups.append([])
                size = 0
            groups[-1].append(partition)
        return [MapPart(manifest, group, None) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the rows of its part."""
        assert isinstance(partition, MapPart)  # noqa: S101 - as planned
        with self._settings.open() as map_:
            yield from map_.part(partition.manifest, partition.partitions, partition.keys)
