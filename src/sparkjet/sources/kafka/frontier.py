"""How far the partitions of the cluster can be read, beside how far a query has read them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkjet.errors import SourceError
from sparkjet.sources.kafka.cluster import SECOND_LOOK

if TYPE_CHECKING:
    from sparkjet.sources.kafka.cluster import Cluster
    from sparkjet.sources.kafka.consumer_settings import KafkaSourceSettings
    from sparkjet.sources.kafka.positions import Positions, TopicPartition

logger = logging.getLogger("sparkjet")


class Frontier:
    """Compares a query's positions with the cluster, on the driver; what has gone ends the query, or is told once.

    Args:
        cluster: Who is asked.
        settings: What is read, and whether the query goes on without what has gone.
    """

    def __init__(self, cluster: Cluster, settings: KafkaSourceSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._target: dict[TopicPartition, int] | None = None
        self._missing: dict[TopicPartition, int] = {}

    def stop_here(self) -> None:
        """Read up to the ends of now, and no partition that comes later."""
        self._target = self._cluster.ends(self._listed(), committed=self._settings.committed)

    def reported(self) -> dict[TopicPartition, int]:
        """The end of every partition, behind open transactions too; of a missing one, the position of the query."""
        # Without them they would never be at their end, so never idle, and would hold the watermark.
        return {**self._missing, **self._cluster.ends(self._listed(), committed=False)}

    def ends(self, starts: Positions) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """How far each partition can be read, and where those are put that cannot be read on from a start.

        The latter are new partitions and those created anew, each with its oldest offset.

        Raises:
            SourceError: What was read has gone (see ``failOnDataLoss``).
        """
        found = self._found(starts)
        ends = self._cluster.ends(found, committed=self._settings.committed)
        target = self._target
        new = [each for each in found if each not in starts and (target is None or each in target)]
        # Not 0: what has expired before the query knew of it is no loss.
        placed = {**self._missing, **self._cluster.begins(new)}
        ends = {each: end for each, end in ends.items() if each in starts}
        if target is not None:
            # What came after the query's start is another run's.
            ends = {each: min(end, target.get(each, starts[each])) for each, end in ends.items()}
        anew = self._anew([each for each, end in ends.items() if end < starts[each]], starts)
        placed.update(self._cluster.begins(anew))
        return {each: max(end, starts[each]) for each, end in ends.items() if each not in placed}, placed

    def _listed(self) -> list[TopicPartition]:
        return self._settings.subscription.chosen(self._cluster.topics())

    def _found(self, starts: Positions) -> list[TopicPartition]:
        """The partitions that there are; those that should be and are not keep their positions."""
        found = self._listed()
        if starts.keys() - set(found) - self._missing.keys():
            # A cluster that has just started may not list all it has.
            threading.Event().wait(SECOND_LOOK)
            found = self._listed()
        gone = sorted(starts.keys() - set(found))
        names = ", ".join(f"{topic}-{partition}" for topic, partition in gone)
        if set(gone) - self._missing.keys():
            are = "is" if len(gone) == 1 else "are"
            self._lost(f"{names} {are} not in the cluster any more, or not subscribed to")
        # Dropped from the offset, they would count as new when they come back, and all their rows would come again.
        self._missing = {each: starts[each] for each in gone}
        return found

    def _anew(self, behind: list[TopicPartition], starts: Positions) -> list[TopicPartition]:
        """Those that really end before what was read.

        The others have a transaction that is open, before which a read_committed reader ends.
        """
        if not (short := self._short(behind, starts)):
            return []
        # A leader that has just been elected may not know its end yet.
        threading.Event().wait(SECOND_LOOK)
        short = self._short(short, starts)
        for (topic, partition), last in short.items():
            start = starts[topic, partition]
            self._lost(f"{topic}-{partition} ends at {last}, but was read up to {start} (was it created anew?)")
        return list(short)

    def _short(self, partitions: Iterable[TopicPartition], starts: Positions) -> dict[TopicPartition, int]:
        ends = self._cluster.ends(partitions, committed=False)
        return {each: last for each, last in ends.items() if last < starts[each]}

    def _lost(self, what: str) -> None:
        if self._settings.fail_on_data_loss:
            raise SourceError(
                f"sparkjet-kafka: {what}. Nothing was skipped. To go on with what there is: "
                'option("failOnDataLoss", "false").'
            )
        logger.warning("sparkjet-kafka: %s; going on without it", what)
