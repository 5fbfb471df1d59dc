"""Maps of a grid that a query joins: each epoch reads one version of each, which is recorded before it begins."""

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

    An epoch that is run again reads the same versions as before, even if newer ones are visible by then: rows at a
    destination that accepts rows twice must not come from two versions. Not thread-safe.

    Args:
        tables: All static tables of a query.
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
        """The versions that an epoch reads: those that the record names for it, or otherwise the newest.

        They are held from now on, and those of earlier epochs no longer are.
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
        """Rows that read the versions that were :meth:`chosen`, in place of the newest."""
        if not self._reads:
            return frame
        return exchanged(frame, GRID_MAP, partial(self._read, frame.sparkSession))

    def close(self) -> None:
        """End the connections; holds last for another minute, for a driver that continues with the epoch."""
        for each in self._taken.values():
            each.lease.leave()
        for map_ in self._maps.values():
            map_.close()
        self._taken, self._maps, self._keys = {}, {}, {}

    def _take(self, key: str, settings: MapSettings, epoch: int, recorded: Mapping[str, MapRead]) -> Taken:
        from sparkjet_grid.messages import Held  # noqa: PLC0415 - the extra is optional

        map_, before = self._maps[key], recorded.get(key) or _of_lost_grid(key, recorded)
        if settings.epoch is not None and key in self._taken:
            # It may no longer be visible: it is held.
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
        """The record's name for a map, which is open from now on."""
        from sparkjet.connectors.grid.map_source import MapSettings  # noqa: PLC0415 - the extra is optional

        settings, name = MapSettings.of(Options(dict(read))), frozenset(read.items())
        if name not in self._keys:
            map_ = settings.open()
            # Not by the members' addresses, which change; and with a character that no name of a map has.
            key = f"{map_.cluster}/{settings.location.name}"
            self._keys[name] = key = key if settings.epoch is None else f"{key}/{settings.epoch}"
            if self._maps.setdefault(key, map_) is not map_:
                map_.close()
        return self._keys[name], settings

    def _read(self, session: SparkSession, options: Mapping[str, str]) -> DataFrame | None:
        from sparkjet.connectors.grid.map_source import MANIFEST  # noqa: PLC0415 - the extra is optional

        key = self._keys.get(frozenset(options.items()))
        # From read_every_epoch(…); or it already reads the version of this epoch, in rows that would be computed again
        # if they were no longer the persisted ones.
        if key is None or MANIFEST.name in options:
            return None
        taken = self._taken[key]
        # Otherwise Spark would start a Python process to ask for it.
        schema = StructType.fromJson(msgspec.json.decode(taken.version.spark_schema))
        reader = session.read
        pinned = msgspec.json.encode(taken.manifest).decode()
        return reader.format(GRID_MAP).options(**options).option(MANIFEST.name, pinned).schema(schema).load()


def _of_lost_grid(key: str, recorded: Mapping[str, MapRead]) -> MapRead | None:
    """The record's entry for a map of this name in a grid that has been re-formed since."""
    name = key.partition("/")[2]
    return next((read for other, read in recorded.items() if other.partition("/")[2] == name), None)
