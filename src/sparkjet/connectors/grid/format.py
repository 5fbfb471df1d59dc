"""The formats ``grid-map`` and ``grid-journal``, ``sparkjet-grid-map`` and ``sparkjet-grid-journal``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.connectors.format import KnownSource, SinkFormat, SourceFormat, Target, extra
from sparkjet.connectors.grid.options import (
    GRID_JOURNAL,
    GRID_MAP,
    JOURNAL_OPTIONS,
    JOURNAL_SOURCE_OPTIONS,
    MAP_OPTIONS,
    MAP_SOURCE_OPTIONS,
)
from sparkjet.storage.shipping import GRID_PACKAGES

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from sparkjet.sinks.protocol import Sink


def _map(target: Target) -> Sink:
    with extra("grid"):
        from sparkjet.connectors.grid.map_journal import grid_map_sink  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.grid.map_sink_settings import GridMapSettings  # noqa: PLC0415 - as above
    return grid_map_sink(GridMapSettings.of(target.options), target.session, target.clock)


def _journal(target: Target) -> Sink:
    with extra("grid"):
        from sparkjet.connectors.grid.journal_sink import grid_journal_sink  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.grid.journal_sink_settings import GridJournalSettings  # noqa: PLC0415 - as above
    return grid_journal_sink(GridJournalSettings.of(target.options), target.session, target.clock)


def _map_source() -> type[DataSource]:
    from sparkjet.connectors.grid.map_source import GridMapDataSource  # noqa: PLC0415 - the extra is optional

    return GridMapDataSource


def _journal_source() -> type[DataSource]:
    from sparkjet.connectors.grid.journal_source import GridJournalDataSource  # noqa: PLC0415 - the extra is optional

    return GridJournalDataSource


_PACKAGES = {"sparkjet_grid": '"sparkjet[grid]"', **GRID_PACKAGES}
MAP = SinkFormat("grid-map", _map, MAP_OPTIONS, names_columns=True, key_option="keys")
JOURNAL = SinkFormat("grid-journal", _journal, JOURNAL_OPTIONS, names_columns=True)
MAP_SOURCE = SourceFormat(GRID_MAP, _map_source, MAP_SOURCE_OPTIONS, _PACKAGES, None)
JOURNAL_SOURCE = SourceFormat(
    GRID_JOURNAL,
    _journal_source,
    JOURNAL_SOURCE_OPTIONS,
    _PACKAGES,
    KnownSource(None, ("_partition",), GRID_PACKAGES),
)
