"""Settings of ``format("grid-map")``."""

from __future__ import annotations

from dataclasses import dataclass

from sparkjet.connectors.grid.journal_sink_settings import GridJournalSettings
from sparkjet.connectors.grid.options import (
    DELETED,
    EXPIRE_INTERVAL,
    JOURNAL,
    JOURNAL_PREFIX,
    MAP_KEYS,
    MAP_MAX_BYTES,
    MAP_PATH,
    TIME_TO_LIVE,
)
from sparkjet.errors import AnalysisError
from sparkjet.options import Options
from sparkjet_grid.places import JournalPlace


@dataclass(frozen=True)
class GridMapSettings:
    """The properties of a map's rows.

    Attributes:
        path: Location of the map, as given by the user.
        keys: The key columns.
        deleted: A boolean column: if it is true the row of its key is removed. It is not kept.
        time_to_live: Microseconds for which a row lasts.
        expire_interval: Microseconds for which an expired row may still be there if nothing arrives.
        max_bytes: Maximum size of the map, including versions held by readers.
        journal: The journal of its changes, if it has one.
    """

    path: str
    keys: tuple[str, ...]
    deleted: str | None = None
    time_to_live: int | None = None
    expire_interval: int = EXPIRE_INTERVAL.otherwise
    max_bytes: int | None = None
    journal: GridJournalSettings | None = None

    @classmethod
    def of(cls, options: Options) -> GridMapSettings:
        """The settings in some options."""
        path = options[MAP_PATH]
        if path is None:
            message = (
                'start: format("grid-map") needs a grid and a name of the map: start("grid://10.0.0.1:5710/orders"), '
                'or start("grid:///orders") for a grid on this machine.'
            )
            raise AnalysisError(message)
        keys = options[MAP_KEYS]
        if not keys:
            message = 'format("grid-map") needs option("keys", "a, b"): the columns that identify the row to replace.'
            raise AnalysisError(message)
        if EXPIRE_INTERVAL in options and TIME_TO_LIVE not in options:
            message = 'expireInterval: no row ever expires. Say with option("timeToLive", "12h") how long they last.'
            raise AnalysisError(message)
        return cls(
            path,
            keys,
            options[DELETED],
            options[TIME_TO_LIVE],
            options[EXPIRE_INTERVAL],
            options[MAP_MAX_BYTES],
            _journal(options, path, keys),
        )


def _journal(options: Options, path: str, keys: tuple[str, ...]) -> GridJournalSettings | None:
    name, own = options[JOURNAL], options.beginning_with(JOURNAL_PREFIX)
    if name is None:
        if own:
            option = next(iter(own))
            message = (
                f'journal.{option}: the map has no journal of its changes. Name one with option("journal", "changes").'
            )
            raise AnalysisError(message)
        return None
    place = JournalPlace.of(name, "journal")
    grid = path.rstrip("/").rpartition("/")[0]
    try:
        return GridJournalSettings.of(Options({**own, "path": f"{grid}/{place.name}", "keys": ",".join(keys)}))
    except AnalysisError as error:
        raise AnalysisError(f"journal: {error.args[0]}") from error
