"""Options of the formats of the grid: ``grid-map`` and ``grid-journal``, and the sources of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkjet.options import Option, choice, flag, interval, names, number, size, text
from sparkjet.sources.alignment import MAX_DRIFT

GRID_MAP, GRID_JOURNAL = "sparkjet-grid-map", "sparkjet-grid-journal"
"""The names of the sources."""
_MEMBERS = "grid://host:port,…/name of some members; grid:///name for a grid on this machine."
JOURNAL_PATH = text("path", f"The journal: {_MEMBERS}")
JOURNAL_KEYS = names("keys", "Columns: rows with the same values are in one partition; without any, tasks take turns.")
NUM_PARTITIONS = number("numPartitions", "Partitions of a new journal; 16 by default.", most=1024)
RETENTION_BYTES = size("retentionBytes", "What rows may take that no reader needs; the oldest go first.", "256m")
RETENTION_AGE = interval("retentionAge", "How long they stay by the clock of their epoch; forever by default.")
JOURNAL_MAX_BYTES = size("maxBytes", "What rows may take that readers need; twice retentionBytes by default.")
WAIT = "wait"
ON_FULL = choice("onFull", "Whether an epoch then waits for readers, or trims what they need.", (WAIT, "trim"), WAIT)
FULL_TIMEOUT = interval("fullTimeout", "onFull=wait: how long an epoch waits before it is refused.", "10 minutes")
PROGRESS_INTERVAL = interval(
    "progressInterval", "Time between two epochs without rows that tell readers of the watermark.", "1 second"
)
_OF_JOURNAL: Sequence[Option[Any]] = (
    *(NUM_PARTITIONS, RETENTION_BYTES, RETENTION_AGE, JOURNAL_MAX_BYTES, ON_FULL, FULL_TIMEOUT, PROGRESS_INTERVAL),
)
JOURNAL_OPTIONS: Sequence[Option[Any]] = (JOURNAL_PATH, JOURNAL_KEYS, *_OF_JOURNAL)

MAP_PATH = text("path", f"The map: {_MEMBERS}")
MAP_KEYS = names("keys", "Columns that identify the row to replace.")
DELETED = text("deleted", "Boolean column: where it is true the row of the key is removed.")
TIME_TO_LIVE = interval("timeToLive", "How long a row lasts by the clock of its epoch; forever by default.")
EXPIRE_INTERVAL = interval(
    "expireInterval", "How long a row may be there after that while nothing arrives.", "10 seconds"
)
MAP_MAX_BYTES = size("maxBytes", "What the map may take with the epochs that readers hold; no limit by default.")
JOURNAL = text(
    "journal",
    "Name of a journal of the same grid, to which each change goes: the keys, old and new row.",
)
JOURNAL_PREFIX = "journal."
MAP_OPTIONS: Sequence[Option[Any]] = (
    *(MAP_PATH, MAP_KEYS, DELETED, TIME_TO_LIVE, EXPIRE_INTERVAL, MAP_MAX_BYTES, JOURNAL),
    *(option.below(JOURNAL_PREFIX, "journal") for option in _OF_JOURNAL),
)

_ACCESS = (
    text(
        "tokenFile", "File with the token, on driver and executors; else it is in the environment, SPARKJET_GRID_TOKEN."
    ),
    text("tlsCertificate", "PEM file of this side, where members use TLS."),
    text("tlsKey", "PEM file with its key."),
    text("tlsAuthorities", "PEM file of the authorities that sign the certificates of all."),
)
ACCESS: Sequence[Option[str | None]] = _ACCESS
"""Files that give a source access."""

STARTING_OFFSETS = text(
    "startingOffsets", 'Where a new query starts: earliest, latest or {"0": 23, "1": -2}.', "earliest"
)
MAX_OFFSETS = number(
    "maxOffsetsPerTrigger", "Approximate limit of rows per batch, split in proportion to each partition's backlog."
)
FAIL_ON_DATA_LOSS = flag(
    "failOnDataLoss", "Whether the query fails if rows to read are gone, or goes on and counts them.", default=True
)
READER = text("reader", "Name under which the journal keeps rows for this query; by default one that the query keeps.")
INCLUDE_METADATA = flag("includeMetadata", "Whether to add the columns _partition, _offset and _epoch.")
JOURNAL_SOURCE_OPTIONS: Sequence[Option[Any]] = (
    *(JOURNAL_PATH, *ACCESS),
    *(STARTING_OFFSETS, MAX_OFFSETS, MAX_DRIFT, FAIL_ON_DATA_LOSS, READER, INCLUDE_METADATA),
)

EPOCH = number("epoch", "The epoch to read, while it is visible; the newest by default.")
ONLY_KEYS = text("keys", "The only keys to read, as JSON: a list of values, or of lists of them; all by default.")
MAP_SOURCE_OPTIONS: Sequence[Option[Any]] = (MAP_PATH, *ACCESS, EPOCH, ONLY_KEYS)
