"""The watermarks of a topic's writers, as told by the markers in their progress topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkjet.connectors.kafka.publishing import MarkerReader
from sparkjet.errors import SourceError
from sparkjet.time import MIN, least_carried

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.admin import Cluster
    from sparkjet.connectors.kafka.positions import Positions, TopicPartition

COMPLETE = 0
"""The partition of the markers of whole epochs."""


@dataclass(frozen=True)
class Told:
    """The content of an epoch's marker.

    Attributes:
        ends: By topic, the offset after the epoch's rows in each partition: no row of the epoch is at or after it.
        watermark: No row of a later epoch is older; MIN before the first watermark, None if rows have none.
        epoch: The epoch.
    """

    ends: Mapping[str, Sequence[int]]
    watermark: int | None
    epoch: int

    @staticmethod
    def of(value: bytes) -> Told:
        """The marker in a record's value."""
        found: dict[str, Any] = json.loads(value)
        return Told(found.get("ends", {}), found.get("watermark"), found["epoch"])

    def end(self, partition: TopicPartition) -> int | None:
        """Where the epoch ends in a partition; None if the marker does not say, as the partition was created later."""
        topic, number = partition
        ends = self.ends.get(topic, ())
        return ends[number] if number < len(ends) else None


@dataclass
class WriterMarkers:
    """The markers of a topic's writers, as far as a reader may still need them.

    A writer is an output of a query. Its watermark in a partition is that of the last epoch whose rows there have all
    been read; the watermark of several writers is the least of theirs.

    Args:
        told: The markers of each writer, oldest first.

    >>> markers = WriterMarkers({"a": [Told({"t": [3]}, 30, 1), Told({"t": [5]}, 60, 2)]})
    >>> markers.watermarks({("t", 0): 4}), markers.watermarks({("t", 0): 5})
    ({('t', 0): 30}, {('t', 0): 60})
    """

    told: dict[str, list[Told]] = field(default_factory=dict)

    def take(self, records: Iterable[tuple[str, bytes | None]]) -> None:
        """Take note of a progress topic's records, by their keys; None if a key was deleted."""
        for key, value in records:
            if not _is_of_epochs(key):
                continue
            if value is None:
                self.told.pop(key, None)
            else:
                self.told.setdefault(key, []).append(Told.of(value))

    def watermarks(self, positions: Positions) -> dict[TopicPartition, int | None]:
        """The watermark of each partition, read up to its position; it does not go back from call to call.

        None if a writer has none; a partition is missing if a writer has not begun there.
        """
        found: dict[TopicPartition, int | None] = {}
        for partition, position in positions.items():
            # A writer that has never named the topic writes to another one.
            writers = [told for told in self.told.values() if any(partition[0] in each.ends for each in told)]
            reached = [_reached(told, partition, position) for told in writers]
            if writers and all(each is not None and each.watermark != MIN for each in reached):
                found[partition] = least_carried(each.watermark for each in reached if each is not None)
        for told in self.told.values():
            # Nobody will ask for an older one again.
            named = [each for each in positions if any(one.end(each) is not None for one in told)]
            del told[: max(0, min((_place(told, each, positions[each]) for each in named), default=0))]
        return found


def _is_of_epochs(key: str) -> bool:
    """Whether it is the key of a writer's epochs, not of a part of one, nor of somebody else's record."""
    try:
        found = json.loads(key)
    except ValueError:
        return False
    return isinstance(found, dict) and found.keys() == {"query", "output"}


def _place(told: Sequence[Told], partition: TopicPartition, position: int) -> int:
    """The index of the last epoch that was read to its end in a partition, -1 if there is none."""
    for place in range(len(told) - 1, -1, -1):
        end = told[place].end(partition)
        if end is not None and end <= position:
            return place
    return -1


def _reached(told: Sequence[Told], partition: TopicPartition, position: int) -> Told | None:
    place = _place(told, partition, position)
    return None if place < 0 else told[place]


class ProgressTopics:
    """The progress topics that a source was given; for one reader, on the driver.

    Args:
        names: Their names.
        cluster: Tells where they end.
        client: librdkafka's properties.
        patience: Seconds to wait for brokers.
    """

    def __init__(self, names: Sequence[str], cluster: Cluster, client: Mapping[str, str], patience: float) -> None:
        self._names, self._cluster = tuple(names), cluster
        self._reader = MarkerReader(client, patience)
        self._read: dict[TopicPartition, int] = {}
        self._markers = WriterMarkers()
        self._stopped = False

    def stop_here(self) -> None:
        """Read what there is now, and nothing that is told later."""
        self._look()
        self._stopped = True

    def watermarks(self, positions: Positions) -> dict[TopicPartition, int | None]:
        """See :meth:`WriterMarkers.watermarks`; includes what has been told by now."""
        if not self._stopped:
            self._look()
        return self._markers.watermarks(positions)

    def _look(self) -> None:
        places = [(name, COMPLETE) for name in self._names]
        there = self._cluster.topics()
        for name in self._names:
            if name not in there:
                message = (
                    f'sparkjet-kafka: progressTopic: there is no topic "{name}", or this user may not see it. It is '
                    "made when the query starts that writes the rows; its name is in the writer's log, and in its "
                    "option progressTopic."
                )
                raise SourceError(message)
        ends = self._cluster.ends(places, committed=True)
        self._markers.take(self._records(ends))
        self._read = ends

    def _records(self, ends: Mapping[TopicPartition, int]) -> Iterator[tuple[str, bytes | None]]:
        # A topic that was recreated ends before the offset up to which it was read.
        since = {where: self._read.get(where, 0) for where in ends}
        return self._reader.read({where: at if at <= ends[where] else 0 for where, at in since.items()}, ends)
