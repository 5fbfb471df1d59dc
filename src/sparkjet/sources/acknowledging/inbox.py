"""The inbox: the received but unacknowledged messages, by position: rows, queues and ids."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.contract import Message, unreadable
from sparkjet.sources.acknowledging.offset import Counts
from sparkjet.sources.acknowledging.spool import UnrepresentableError

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkjet.sources.acknowledging.ledger import Ledger
    from sparkjet.sources.acknowledging.spool import Spool


class Inbox:
    """Holds messages from the end of the newest record on: a position is in it once its row is in the spool.

    Not thread-safe, and unusable after an error in :meth:`receive`.

    Args:
        spool: Stores the rows.
        ledger: Knows which messages have come before, restored from the record.
        counts: The number of messages of each queue in that record.

    Raises:
        ValueError: The two belong to different records.
    """

    def __init__(self, spool: Spool, ledger: Ledger, counts: Counts) -> None:
        if sum(counts.values()) != ledger.position:
            raise ValueError(f"messages up to {counts} were decided, but the ids are of position {ledger.position}")
        self.ledger, self._spool = ledger, spool
        # Up to what is removed, and the queues of the messages from there on.
        self._counts = counts
        self._arrived: deque[str] = deque()

    @property
    def position(self) -> int:
        """The position of the next message."""
        return self.ledger.position

    @property
    def size(self) -> int:
        """Bytes of rows on disk."""
        return self._spool.size

    def receive(self, messages: Sequence[Message]) -> None:
        """Take the messages that the connection was given, in order; only new ones get positions.

        Raises:
            SourceError: A message has no id, or its row cannot be stored: a value does not fit its column, or the disk
            is full.
        """
        self.ledger.receive(messages, self._hold)

    def end(self, start: Counts, most: int | None) -> Counts:
        """The end of a batch that begins at ``start`` and has at most this many messages."""
        removed = sum(self._counts.values())
        wanted = len(self._arrived) if most is None else sum(start.values()) + most - removed
        counts = Counter(self._counts)
        counts.update(itertools.islice(self._arrived, wanted))
        return dict(counts)

    def reported(self, ready: Mapping[str, int]) -> Counts:
        """The messages of each queue: those received, and those that it still holds."""
        counts = Counter(self.end({}, None))
        counts.update(ready)
        return dict(counts)

    def rows(self, start: int, end: int) -> list[pa.RecordBatch]:
        """The rows of a range of positions; the same on every call until they are removed.

        Raises:
            SourceError: Some of them are missing.
        """
        found = list(self._spool.read(start, end))
        there = sum(map(len, found))
        if there != end - start:
            raise SourceError(f"of the messages from {start} to {end}, only {there} are in the spool")
        return found

    def remove(self, position: int) -> None:
        """Discard the rows before a position, which are decided; a second call does nothing."""
        self._spool.remove(position)
        for _ in range(position - sum(self._counts.values())):
            self._counts[self._arrived.popleft()] += 1

    def _hold(self, messages: Sequence[Message]) -> None:
        try:
            self._spool.append(self.ledger.position, [each.values for each in messages])
        except UnrepresentableError as error:
            poison = messages[error.row]
            raise SourceError(unreadable(poison.id, poison.queue, error)) from error
        except OSError as error:
            message = (
                f"messages cannot be stored on the driver's disk: {error}. They are not acknowledged. Make room in "
                f"{tempfile.gettempdir()!r}, have TMPDIR name another directory, or lower maxSpoolBytes, and start the "
                "query again."
            )
            raise SourceError(message) from error
        self._arrived.extend(each.queue for each in messages)
