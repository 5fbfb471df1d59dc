"""Settings of ``format("grid-journal")``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkjet.connectors.grid.options import (
    FULL_TIMEOUT,
    JOURNAL_KEYS,
    JOURNAL_MAX_BYTES,
    JOURNAL_PATH,
    NUM_PARTITIONS,
    ON_FULL,
    PROGRESS_INTERVAL,
    RETENTION_AGE,
    RETENTION_BYTES,
    WAIT,
)
from sparkjet.errors import AnalysisError
from sparkjet_grid.journal_version import Retention

if TYPE_CHECKING:
    from sparkjet.options import Options

PARTITIONS = 16
"""Number of partitions of a new journal, unless specified."""
_SECOND = 1_000_000


@dataclass(frozen=True)
class GridJournalSettings:
    """The properties of a journal.

    Attributes:
        path: Its location, as given by the user.
        keys: Columns whose equal values put rows into one partition; without any, tasks take turns.
        partitions: Number of partitions; None keeps that of an existing journal.
        retention: What is retained.
        progress_interval: Microseconds between two epochs without rows that inform readers of the watermark.
        full_timeout: Microseconds for which an epoch waits for readers.
    """

    path: str
    keys: tuple[str, ...] = ()
    partitions: int | None = None
    retention: Retention = field(default_factory=Retention)
    progress_interval: int = _SECOND
    full_timeout: int = 600 * _SECOND

    @classmethod
    def of(cls, options: Options) -> GridJournalSettings:
        """The settings in some options."""
        path = options[JOURNAL_PATH]
        if path is None:
            message = (
                'start: format("grid-journal") needs a grid and a name of the journal: '
                'start("grid://10.0.0.1:5710/orders"), or start("grid:///orders") for a grid on this machine.'
            )
            raise AnalysisError(message)
        return cls(
            path,
            options[JOURNAL_KEYS],
            options[NUM_PARTITIONS],
            _retention(options),
            options[PROGRESS_INTERVAL],
            options[FULL_TIMEOUT],
        )


def _retention(options: Options) -> Retention:
    size = options[RETENTION_BYTES]
    limit = options[JOURNAL_MAX_BYTES] or 2 * size
    if limit < size:
        message = (
            f"maxBytes: {limit} bytes are fewer than the {size} of retentionBytes, which stay when no reader needs "
            "them. Give it more, or retentionBytes less."
        )
        raise AnalysisError(message)
    waits = options[ON_FULL] == WAIT
    return Retention(size, options[RETENTION_AGE], limit, waits)
