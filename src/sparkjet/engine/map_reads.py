"""Maps of a grid that a query joins: each epoch reads one version of each, which its record names before it begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.types import StructType

from sparkjet.catalyst.python_sources import exchanged
from sparkjet.connectors.grid.options import GRID_MAP
from sparkjet.errors import SourceError
from sparkjet.known_types import known
from sparkjet.options import Options
from sparkjet.plan.static_tables import MapTable, StaticTable
from sparkjet.snapshots.record import MapRead

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.connectors.grid.map_source import MapSettings
    from sparkjet_grid.map_reader import Map, Taken


class MapReads:
    """The maps that the static tables of a query read, and the versions that its epochs hold; on the driver.

    An epoch that is run again reads what it has read before, though newer versions are visible by then: what has gone
    to a destination that takes rows twice must not come from two versions. Not thread-safe.

    Args:
        tables: All of a query.
    """

    def __init__(self, tables: Iterable[StaticTable]) -> None:
        reads = [read for table in tables if isinstance(table, MapTable) for read in table.reads]
        self._reads = [*{frozenset(read.items()): read for read in reads}.values()]
        self._maps: dict[str, Map] = {}
        self._keys: dict[frozenset[tuple[str, str]], str] = {}
        self._taken: dict[str, Taken] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._reads)

    def chosen(self, epoch: int, recorded: Mapping[str, MapRead]) -> dict[str, MapRead]:
        """The versions that an epoch reads: those that the record names for it, or else the newest.

        They are held from now on, and those of epochs before are not.
        """
        taken: dict[str, Taken] = {}
        try:
            for read in self._reads:
                key, settings = self._opened(read)
                if key not in taken:
                    taken[key] = self._take(key, settings, epoch, recorded)
        except BaseException:
            for each in taken.values():
                each.lease.leave()
            raise
        before, self._taken = self._taken, taken
        for key, each in before.items():
            if taken.get(key) is not each:
                each.lease.release()
        return {
            key: MapRead(epoch, each.version.epoch, each.version.number, msgspec.to_builtins(each.manifest))
            for key, each in taken.items()
        }

    def fixed(self, frame: DataFrame) -> DataFrame:
        """Rows that read the versions that were :meth:`chosen`, in the place of the newest."""
        if not self._reads:
            return frame
        return exchanged(frame, GRID_MAP, partial(self._read, frame.sparkSession))

    def close(self) -> None:
        """End the connections; what is held lasts for another minute, for who goes on with the epoch."""
        for each in self._taken.values():
            each.lease.leave()
        for map_ in self._maps.values():
            map_.close()
        self._taken, self._maps, self._keys = {}, {}, {}

    def _take(self, key: str, settings: MapSettings, epoch: int, recorded: Mapping[str, MapRead]) -> Taken:
        from sparkjet_grid.messages import Held  # noqa: PLC0415 - the extra is optional

        map_, before = self._maps[key], recorded.get(key) or _of_lost_grid(key, recorded)
        if settings.epoch is not None and key in self._taken:
            # It need not be visible any more: it is held.
            return self._taken[key]
        if before is None or before.epoch != epoch:
            return map_.taken(settings.epoch)
        found = (
            map_.taken_again(msgspec.convert(before.manifest, known(Held)), before.number) if key in recorded else None
        )
        if found is None:
            name = settings.location.name
            message = (
                f'epoch {epoch} of this query has begun with epoch {before.of_map} of map "{name}", and would be run '
                "again with another one: that epoch is gone, as the query was not started within a minute, or its "
                "members were lost. Nothing of the query's epoch was decided. If rows of it may come from two epochs "
                f"of the map where a destination takes them twice, choose one that is visible now (python -m sparkjet "
                f'grid map ls): start the query once with spark.read.format("{GRID_MAP}").option("epoch", …).'
            )
            raise SourceError(message)
        return found

    def _opened(self, read: Mapping[str, str]) -> tuple[str, MapSettings]:
        """What the record calls a map, which is open from now on."""
        from sparkjet.connectors.grid.map_source import MapSettings  # noqa: PLC0415 - the extra is optional

        settings, name = MapSettings.of(Options(dict(read))), frozenset(read.items())
        if name not in self._keys:
            map_ = settings.open()
            # Not by addresses of members, which change; and with what no name of a map has.
            key = f"{map_.cluster}/{settings.location.name}"
            self._keys[name] = key = key if settings.epoch is None else f"{key}/{settings.epoch}"
            if self._maps.setdefault(key, map_) is not map_:
                map_.close()
        return self._keys[name], settings

    def _read(self, session: SparkSession, options: Mapping[str, str]) -> DataFrame | None:
        from sparkjet.connectors.grid.map_source import MANIFEST  # noqa: PLC0415 - the extra is optional

        key = self._keys.get(frozenset(options.items()))
        # Of read_every_epoch(…); or of this epoch already, in rows that would be computed again if they were no longer
        # those that are persisted.
        if key is None or MANIFEST.name in options:
            return None
        taken = self._taken[key]
        # Otherwise Spark would start a process of Python's to ask for it.
        schema = StructType.fromJson(msgspec.json.decode(taken.version.spark_schema))
        reader = session.read
        pinned = msgspec.json.encode(taken.manifest).decode()
        return reader.format(GRID_MAP).options(**options).option(MANIFEST.name, pinned).schema(schema).load()


def _of_lost_grid(key: str, recorded: Mapping[str, MapRead]) -> MapRead | None:
    """What the record says of a map of this name in a grid that was formed anew since."""
    name = key.partition("/")[2]
    return next((read for other, read in recorded.items() if other.partition("/")[2] == name), None)
