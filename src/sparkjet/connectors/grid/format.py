"""The formats ``grid-map`` and ``grid-journal``, ``sparkjet-grid-map`` and ``sparkjet-grid-journal``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkjet.connectors.format import KnownSource, SinkFormat, SourceFormat, Target, extra

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from sparkjet.sinks.protocol import Sink


GRID_JOURNAL_OPTIONS: Mapping[str, str] = {
    "path": "The journal: grid://host:port,…/name of some members; grid:///name for a grid on this machine.",
    "keys": "Columns, separated by commas: rows with the same values are in one partition (tasks take turns).",
    "numPartitions": "Partitions of a new journal (16).",
    "retentionBytes": "What rows may take that no reader needs, such as 2g (256m); the oldest go first.",
    "retentionAge": "How long they stay by the clock of their epoch: 12h, 7d, 30 days (for ever).",
    "maxBytes": "What rows may take that registered readers need (twice retentionBytes).",
    "onFull": "wait (default) for registered readers then, or trim what they need.",
    "fullTimeout": "onFull=wait: how long an epoch waits before it is refused (10 minutes).",
    "progressInterval": "Time between two epochs without rows that tell readers of the watermark (1 second).",
}
"""Options of ``format("grid-journal")``."""

GRID_MAP_OPTIONS: Mapping[str, str] = {
    "path": "The map: grid://host:port,…/name of some members; grid:///name for a grid on this machine.",
    "keys": "Columns, separated by commas, that identify the row to replace.",
    "deleted": "Boolean column: where it is true the row of the key is removed.",
    "timeToLive": "How long a row lasts by the clock of its epoch: 12h, 7d, 30 days (for ever).",
    "expireInterval": "How long a row may be there after that while nothing arrives (10s).",
    "maxBytes": "What the map may take in memory with the epochs that readers hold, such as 512m (no limit).",
    "journal": "Name of a journal of the same grid, to which each change goes: the keys, old and new row (none).",
    **{
        f"journal.{name}": f"journal: {text[0].lower()}{text[1:]}"
        for name, text in GRID_JOURNAL_OPTIONS.items()
        if name not in {"path", "keys"}
    },
}
"""Options of ``format("grid-map")``, with those of its journal."""


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


_READERS = {name: name for name in ("msgspec", "pyarrow", "tenacity", "xxhash")}
_PACKAGES = {"sparkjet_grid": '"sparkjet[grid]"', **_READERS}
MAP = SinkFormat("grid-map", _map, GRID_MAP_OPTIONS, key_option="keys")
JOURNAL = SinkFormat("grid-journal", _journal, GRID_JOURNAL_OPTIONS)
GRID_MAP = "sparkjet-grid-map"
MAP_SOURCE = SourceFormat(GRID_MAP, _map_source, _PACKAGES, None)
JOURNAL_SOURCE = SourceFormat(
    "sparkjet-grid-journal", _journal_source, _PACKAGES, KnownSource(None, ("_partition",), _READERS)
)
