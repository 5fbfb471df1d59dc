"""What a query tells the readers of its output: how far it is, and where its watermark is."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

VERSION = 1
"""Of :class:`WriterProgress`. Readers ignore fields that they do not know; a change of meaning takes a new number."""


class WriterProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one output of one query is after an epoch; sinks that carry watermarks write it beside the rows.

    Attributes:
        query: Id of the query.
        output: Name of the output.
        epoch: The epoch.
        watermark: No row of a later epoch is older, but for late ones; microseconds. MIN before the first, None where
            the rows have none.
        rows: How many the epoch has written.
        offsets: Where the epoch's batch ends in each source of the writer, by its number or name, as Spark wrote it;
            empty in an epoch without a batch.
    """

    query: str
    output: str
    epoch: int
    watermark: int | None
    rows: int = 0
    offsets: dict[str, str] = {}
    version: int = VERSION


def least_carried(newest: Iterable[int | None]) -> int | None:
    """The watermark of what several have written: the least; None where one of them carries none, or there is nobody.

    >>> least_carried([7, 5]), least_carried([7, None]), least_carried([])
    (5, None, None)
    """
    found = list(newest)
    known = [each for each in found if each is not None]
    return min(known) if known and len(known) == len(found) else None
