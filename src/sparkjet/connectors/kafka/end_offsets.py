"""End offsets: how far the partitions of the cluster can be read, compared with a query's positions."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkjet.connectors.kafka.admin import SECOND_LOOK
from sparkjet.errors import SourceError
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.admin import Cluster
    from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings
    from sparkjet.connectors.kafka.positions import Positions, TopicPartition


class EndOffsets:
    """Compares a query's positions with the cluster, on the driver; lost records fail the query, or are logged once.

    Args:
        cluster: The cluster.
        settings: What is read, and whether the query continues without lost records.
    """

    def __init__(self, cluster: Cluster, settings: KafkaSourceSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._target: dict[TopicPartition, int] | None = None
        self._missing: dict[TopicPartition, int] = {}

    def stop_here(self) -> None:
        """Read up to the current ends, and no partitions created later."""
        self._target = self._cluster.ends(self._listed(), committed=self._settings.committed)

    def reported(self) -> dict[TopicPartition, int]:
        """The end of every partition, beyond open transactions; for a missing partition, the query's position."""
        # Without the missing ones, they would never be at their end, so never idle, and would hold the watermark back.
        return {**self._missing, **self._cluster.ends(self._listed(), committed=False)}

    def ends(self, starts: Positions) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """How far each partition can be read from its start, and the positions of those without a valid start.

        The latter are new and recreated partitions, each at its first offset.
        """
        found = self._found(starts)
        ends = self._cluster.ends(found, committed=self._settings.committed)
        target = self._target
        new = [each for each in found if each not in starts and (target is None or each in target)]
        # Not 0: records that expired before the query discovered the partition are not lost.
        placed = {**self._missing, **self._cluster.begins(new)}
        ends = {each: end for each, end in ends.items() if each in starts}
        if target is not None:
            # Later records are for the next run.
            ends = {each: min(end, target.get(each, starts[each])) for each, end in ends.items()}
        recreated = self._recreated([each for each, end in ends.items() if end < starts[each]], starts)
        placed.update(self._cluster.begins(recreated))
        return {each: max(end, starts[each]) for each, end in ends.items() if each not in placed}, placed

    def _listed(self) -> list[TopicPartition]:
        return self._settings.subscription.chosen(self._cluster.topics())

    def _found(self, starts: Positions) -> list[TopicPartition]:
        """The existing partitions; missing ones keep their positions."""
        found = self._listed()
        if starts.keys() - set(found) - self._missing.keys():
            # A cluster that has just started may not list everything.
            threading.Event().wait(SECOND_LOOK)
            found = self._listed()
        gone = sorted(starts.keys() - set(found))
        names = ", ".join(f"{topic}-{partition}" for topic, partition in gone)
        if set(gone) - self._missing.keys():
            are = "is" if len(gone) == 1 else "are"
            self._lost(f"{names} {are} no longer in the cluster, or not subscribed to")
        # Removed from the offset, they would count as new when they return, and all their rows would be read again.
        self._missing = {each: starts[each] for each in gone}
        return found

    def _recreated(self, behind: list[TopicPartition], starts: Positions) -> list[TopicPartition]:
        """The partitions that really end before the query's position.

        The others have an open transaction, before which a read_committed consumer stops.
        """
        if not (short := self._short(behind, starts)):
            return []
        # A newly elected leader may not know its end yet.
        threading.Event().wait(SECOND_LOOK)
        short = self._short(short, starts)
        for (topic, partition), last in short.items():
            start = starts[topic, partition]
            self._lost(f"{topic}-{partition} ends at {last}, but was read up to {start} (was it recreated?)")
        return list(short)

    def _short(self, partitions: Iterable[TopicPartition], starts: Positions) -> dict[TopicPartition, int]:
        ends = self._cluster.ends(partitions, committed=False)
        return {each: last for each, last in ends.items() if last < starts[each]}

    def _lost(self, what: str) -> None:
        if self._settings.fail_on_data_loss:
            raise SourceError(
                f"sparkjet-kafka: {what}. Nothing was skipped. To continue without the lost records: "
                'option("failOnDataLoss", "false").'
            )
        logger.warning("sparkjet-kafka: %s; continuing without the lost records", what)
