"""Options that every acknowledging source has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkjet.errors import AnalysisError
from sparkjet.options import Option, Options, names, number, size

QUEUES = names("queues", "Queues; each is a substream.")
MAX_MESSAGES = number("maxMessagesPerTrigger", "Maximum number of messages in a batch; all that arrived by default.")
MAX_UNACKNOWLEDGED = number(
    "maxUnacknowledged", "Maximum number of messages that the broker delivers before they are decided.", 50_000
)
MAX_SPOOL_BYTES = size("maxSpoolBytes", "Size of their rows on the driver's disk at which reading waits.", "1g")
RECONNECT_TIMEOUT = number("reconnectTimeoutMs", "How long the broker may be away.", 60_000)
READER_OPTIONS: Sequence[Option[Any]] = (MAX_MESSAGES, MAX_UNACKNOWLEDGED, MAX_SPOOL_BYTES, RECONNECT_TIMEOUT)
"""The options that :class:`AcknowledgingDataSource` handles."""


def queue_names(options: Options, source: str) -> tuple[str, ...]:
    """The queues in the option of this name, without repetitions.

    Raises:
        AnalysisError: There is none; ``source`` is the name of the format.
    """
    given = options[QUEUES]
    found = tuple(dict.fromkeys(given))
    if not found:
        raise AnalysisError(f'option: format("{source}") needs option("queues", "name, …").')
    return found
