"""Names of prepared transactions on servers: what an id contains, and which ids are sparkjet's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

from sparkjet.sinks.protocol import TransactionId

BEGINNING = "sparkjet/"
"""The beginning of every name that an output has in a system outside."""
_PARTS = 5
_NAME = re.compile(r"(\d+)-(\d+)-(\d+)(?:-([0-9a-f]+))?")
"""A :class:`TransactionId` as text: takeover, epoch, attempt and, if it has one, run."""
POOLED = "p"
"""Prefix of the last part of a pooled id."""
_UNKNOWN = datetime.fromtimestamp(0, timezone.utc)


def prefix_of(query: str, sink: str | None = None, transaction: TransactionId | None = None) -> str:
    """The prefix of the ids of a query's transactions, of one sink, of one transaction; below 200 bytes in all.

    >>> prefix_of("q", "results", TransactionId("q", "results", 1, 7, 0))
    'sparkjet/q/results/000001-000000007-0/'
    """
    parts = [query, sink, None if transaction is None else str(transaction)]
    return BEGINNING + "".join(f"{part}/" for part in parts if part is not None)


@dataclass(frozen=True)
class ListedTransaction:
    """A prepared transaction of sparkjet, as listed by a server.

    Attributes:
        gid: Its id: ``sparkjet/query/sink/takeover-epoch-attempt-run/partition-task``, or one of the pool that the
            Kafka sink reuses: ``sparkjet/query/sink/takeover-epoch-number-run/ppartition``.
        since: When it was prepared or begun, if requested.
    """

    gid: str
    since: datetime = _UNKNOWN

    @property
    def takeover(self) -> int:
        """Number of the driver's takeover."""
        return int(self.gid.split("/")[3].partition("-")[0])

    @property
    def epoch(self) -> int:
        """Number of the epoch; for a pooled id, of the first epoch that used its pool."""
        return int(self.gid.split("/")[3].split("-")[1])

    @property
    def run(self) -> str:
        """The run that opened it; empty if its name has none."""
        found = _NAME.fullmatch(self.gid.split("/")[3])
        return (found and found[4]) or ""

    @property
    def is_pooled(self) -> bool:
        """Whether it belongs to a pool, so that its name does not tell which epoch uses it now."""
        return self.gid.split("/")[4].startswith(POOLED)

    @property
    def prefix(self) -> str:
        """The common prefix of the ids of all tasks of a transaction."""
        return self.gid[: self.gid.rindex("/") + 1]

    @property
    def pool(self) -> tuple[int, int, int]:
        """Takeover, epoch and number of its pool, whose two halves have an even and an odd number."""
        return self.takeover, self.epoch, int(self.gid.split("/")[3].split("-")[2]) // 2

    @staticmethod
    def is_ours(name: str) -> bool:
        """Whether an id has sparkjet's form."""
        parts = name.split("/")
        return len(parts) == _PARTS and _NAME.fullmatch(parts[3]) is not None
