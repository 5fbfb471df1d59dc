"""History: the records of all epochs of a query, kept beside a log that keeps only the newest ones."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from sparkjet.connectors.kafka.positions import positions_in
from sparkjet.snapshots.record import Record
from sparkjet.storage.posix_directory import PosixDirectory

if TYPE_CHECKING:
    from sparkjet.snapshots.record import SparkPosition
    from tests.crash.jobs import Place

Offsets = Mapping[tuple[str, int], int]
"""End of a batch in each partition of each topic."""
_SLOTS = "[0-9]*.json"


def keep(place: Place) -> None:
    """Copy the current records, if the query's directory has a place for them.

    Called at every phase of an epoch and by the test meanwhile: a log trims a record after seven others.
    """
    if not place.history.is_dir():
        return
    log, kept = place.snapshots.below("log"), PosixDirectory(place.history)
    for name in fnmatch.filter(log.names(), _SLOTS):
        if not kept.exists(name):
            # The driver may have just trimmed it.
            with suppress(FileNotFoundError):
                kept.put(name, log.read(name))


def end_of(position: SparkPosition) -> Offsets:
    """The end of a record's batch, in a query whose only source is Kafka."""
    # After a line for the version and one for the batch, there is one for each source.
    return positions_in(json.loads(position.files[f"offsets/{position.batch}"].splitlines()[2]))


def offsets(place: Place) -> list[Offsets]:
    """The end of each batch, in order; none may be missing."""
    keep(place)
    found: dict[int, Offsets] = {}
    for slot in sorted(place.history.glob(_SLOTS)):
        position = Record.decode(slot.read_bytes(), slot.name).spark
        if position is not None:
            end = end_of(position)
            assert found.setdefault(position.batch, end) == end, f"batch {position.batch} was decided twice"
    assert sorted(found) == list(range(len(found))), f"records are missing: {sorted(found)}"
    return [found[batch] for batch in range(len(found))]
