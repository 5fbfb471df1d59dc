"""The offset of an acknowledging source: how far a batch reads, and where the engine reaches the receiver."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from sparkjet.known_types import known
from sparkjet.sources.alignment import KEY, is_of_queues

Counts = dict[str, int]
"""Messages received from each queue since the query's first start; their sum is a position."""


class QueueOffset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a batch.

    Attributes:
        queues: The number of messages of each queue up to there.
        receiver: Path of the socket of the receiver that has read them; empty before the first run.
        alignment: What ``maxWatermarkDrift`` has decided; None without it.
    """

    queues: Counts
    receiver: str
    alignment: dict[str, Any] | None = None

    @property
    def position(self) -> int:
        """The number of messages up to there, over all queues."""
        return sum(self.queues.values())

    def to_spark(self) -> dict[str, Any]:
        """The form in which Spark gets it."""
        found = msgspec.structs.asdict(self)
        return found if self.alignment is not None else {name: found[name] for name in found if name != KEY}

    @staticmethod
    def of(offset: dict[str, Any]) -> QueueOffset:
        """The offset that Spark gives back."""
        return msgspec.convert(offset, known(QueueOffset))

    @staticmethod
    def found_in(text: str) -> QueueOffset | None:
        """The offset that Spark has written for a source; None if that source is of another kind.

        >>> QueueOffset.found_in('{"queues": {"orders": 17}, "receiver": "/run/receiver"}').position
        17
        >>> QueueOffset.found_in('{"clicks": {"0": 17}}')
        >>> QueueOffset.found_in("-")
        """
        if text == "-":
            # A source that the batch does not read.
            return None
        found: Any = json.loads(text)
        if not isinstance(found, dict) or not is_of_queues(found):
            return None
        return msgspec.convert(found, known(QueueOffset))
