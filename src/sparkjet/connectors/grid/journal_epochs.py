"""The epochs of a journal's writer: which watermark belongs to which offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Protocol

from sparkjet.time import MIN
from sparkjet_grid.journal_version import Position


class ProgressReader(Protocol):
    """The requests made to a journal."""

    def latest(self) -> Position:
        """The newest epoch."""
        ...

    def progress(self, after_epoch: int = 0) -> list[Position]:
        """The epochs after a given one, ascending, always including the newest."""
        ...


class JournalEpochs:
    """The writer's progress by epoch, as far as this reader may still need it.

    Args:
        journal: Queried for new epochs.

    >>> class Two:
    ...     def latest(self):
    ...         return Position(2, 60, {0: 5, 1: 0})
    ...     def progress(self, after_epoch=0):
    ...         return [Position(1, 30, {0: 3, 1: 0}), Position(2, 60, {0: 5, 1: 0})][after_epoch:]
    >>> epochs = JournalEpochs(Two())
    >>> epochs.newest().epoch, epochs.watermarks({0: 4, 1: 0})
    (2, {0: 30, 1: 60})
    """

    def __init__(self, journal: ProgressReader) -> None:
        self._journal = journal
        self._known: list[Position] = []

    def newest(self) -> Position:
        """The newest visible epoch."""
        last = self._known[-1].epoch if self._known else 0
        if self._journal.latest().epoch > last:
            self._known += self._journal.progress(last)
        return self._known[-1]

    def watermarks(self, offsets: Mapping[int, int], until: int | None = None) -> dict[int, int | None]:
        """The watermark of each partition read up to some offsets, which never go back between calls.

        It is that of the last epoch all of whose rows in the partition have been read: for a partition without rows,
        the newest. None if the writer has none; a partition is missing if none has begun yet.
        """
        known = [each for each in self._known if until is None or each.epoch <= until]
        places = {
            partition: bisect_right([each.ends[partition] for each in known], offset) - 1
            for partition, offset in offsets.items()
        }
        # Nobody asks for an older one again.
        self._known = self._known[max(0, min(places.values())) :]
        found = {partition: known[place].watermark for partition, place in places.items() if place >= 0}
        return {partition: watermark for partition, watermark in found.items() if watermark != MIN}
