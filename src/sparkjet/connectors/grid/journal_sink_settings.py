"""Options of ``format("grid-journal")``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError
from sparkjet_grid.journal_version import Retention
from sparkjet_grid.sizes import size_of

if TYPE_CHECKING:
    from sparkjet.options import Options

PARTITIONS = 16
"""Of a new journal, if nobody says how many."""
_MOST_PARTITIONS = 1024
_SECOND = 1_000_000


@dataclass(frozen=True)
class GridJournalSettings:
    """What a journal is.

    Attributes:
        path: Where it is, as the user gives it.
        keys: Rows with the same values in these columns are in one partition; without any, tasks take turns.
        partitions: How many there are; of one that is there, None leaves it as it is.
        retention: What is retained.
        progress_interval: Microseconds between two epochs without rows that tell readers of the watermark.
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
        """The settings of some options."""
        path = options.get("path")
        if path is None:
            message = (
                'start: format("grid-journal") needs a grid and a name of the journal: '
                'start("grid://10.0.0.1:5710/orders"), or start("grid:///orders") for a grid on this machine.'
            )
            raise AnalysisError(message)
        partitions = None if options.get("numPartitions") is None else options.number("numPartitions", default=1)
        if partitions is not None and partitions > _MOST_PARTITIONS:
            message = f"option: numPartitions is {partitions}, and {_MOST_PARTITIONS} are the most for a journal."
            raise AnalysisError(message)
        return cls(
            path,
            tuple(name.strip() for name in (options.get("keys") or "").split(",") if name.strip()),
            partitions,
            _retention(options),
            options.age("progressInterval") or cls.progress_interval,
            options.age("fullTimeout") or cls.full_timeout,
        )


def _retention(options: Options) -> Retention:
    size = size_of(options.get("retentionBytes") or str(Retention.size), "retentionBytes")
    limit = size_of(options.get("maxBytes") or str(2 * size), "maxBytes")
    if limit < size:
        message = (
            f"maxBytes: {limit} bytes are fewer than the {size} of retentionBytes, which stay when no reader needs "
            "them. Give it more, or retentionBytes less."
        )
        raise AnalysisError(message)
    waits = options.choice("onFull", ("wait", "trim"), "wait") == "wait"
    return Retention(size, options.age("retentionAge"), limit, waits)
