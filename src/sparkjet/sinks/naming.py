"""Names of prepared transactions on servers: what a driver can tell of an id, and which ids are its own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from sparkjet.sinks.protocol import TransactionId

_BEGINNING = "sparkjet"
_PARTS = 5
POOLED = "p"
"""What the last part of a pooled id begins with."""
_UNKNOWN = datetime.fromtimestamp(0, timezone.utc)


def prefix_of(query: str, sink: str | None = None, transaction: TransactionId | None = None) -> str:
    """What the ids of a query's transactions begin with, of one sink, of one transaction; below 200 bytes in all.

    >>> prefix_of("q", "results", TransactionId("q", "results", 1, 7, 0))
    'sparkjet/q/results/000001-000000007-0/'
    """
    parts = [_BEGINNING, query, sink, None if transaction is None else str(transaction)]
    return "".join(f"{part}/" for part in parts if part is not None)


@dataclass(frozen=True)
class Found:
    """A prepared transaction of ours, as a server lists it.

    Attributes:
        gid: Its id: ``sparkjet/query/sink/takeover-epoch-attempt/partition-task``, or one of a pool that Kafka's sink
            uses again: ``sparkjet/query/sink/takeover-epoch-number/ppartition``.
        since: When it was prepared or began, if that was asked for.
    """

    gid: str
    since: datetime = _UNKNOWN

    @property
    def takeover(self) -> int:
        """Number of the driver's takeover."""
        return int(self.gid.split("/")[3].partition("-")[0])

    @property
    def epoch(self) -> int:
        """Number of the epoch; of a pooled id, that of the first epoch that had its pool."""
        return int(self.gid.split("/")[3].split("-")[1])

    @property
    def is_pooled(self) -> bool:
        """Whether it belongs to a pool, so that its name does not say which epoch has it now."""
        return self.gid.split("/")[4].startswith(POOLED)

    @property
    def prefix(self) -> str:
        """What the ids of the same transaction of all tasks begin with."""
        return self.gid[: self.gid.rindex("/") + 1]

    @property
    def pool(self) -> tuple[int, int, int]:
        """Takeover, epoch and number of its pool, which has an even and an odd number for its two halves."""
        return self.takeover, self.epoch, int(self.gid.split("/")[3].split("-")[2]) // 2

    @staticmethod
    def is_ours(name: str) -> bool:
        """Whether an id has the form that we give ours."""
        parts = name.split("/")
        numbers = parts[3].split("-") if len(parts) == _PARTS else []
        return len(numbers) == 3 and all(number.isdecimal() for number in numbers)  # noqa: PLR2004 - as above
