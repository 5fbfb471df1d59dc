"""A query's message to the readers of its output: how far it has come, and where its watermark is."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

VERSION = 1
"""Version of :class:`WriterProgress`. Readers ignore unknown fields; a change of meaning takes a new number."""


class WriterProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an output of a query has come after an epoch; sinks that carry watermarks write it along with the rows.

    Attributes:
        query: Id of the query.
        output: Name of the output.
        epoch: The epoch.
        watermark: No row of a later epoch is older, except late ones; microseconds. MIN before the first, None if the
            rows have none.
        rows: Number of rows that the epoch has written.
        offsets: Where the epoch's batch ends in each source of the writer, by its number or name, as Spark wrote it;
            empty for an epoch without a batch.
    """

    query: str
    output: str
    epoch: int
    watermark: int | None
    rows: int = 0
    offsets: dict[str, str] = {}
    version: int = VERSION


class Heard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress that a table's writers announced up to the end of a batch, if its stream's offsets cannot hold it.

    Attributes:
        table: Id of the table: a table that was recreated starts over.
        version: The last version of which all rows have been read.
        writers: The newest watermark of each writer (``QUERY/OUTPUT``) up to there, in microseconds: MIN as long as it
            has none, None if its rows have none.
        others: Who else has written rows that were read after the first batch, and tells nothing.
    """

    table: str
    version: int
    writers: dict[str, int | None]
    others: list[str] = []


def least_carried(newest: Iterable[int | None]) -> int | None:
    """The least watermark of several writers; None if one of them carries none, or there are no writers.

    >>> least_carried([7, 5]), least_carried([7, None]), least_carried([])
    (5, None, None)
    """
    found = list(newest)
    known = [each for each in found if each is not None]
    return min(known) if known and len(known) == len(found) else None
