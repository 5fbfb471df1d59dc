"""The ends of partitions, and whether read_committed readers reach them; on the driver."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient

from sparkjet.connectors.kafka import publishing
from sparkjet.connectors.kafka.cluster import connected
from sparkjet.connectors.kafka.lost_ends import ANSWERS, write_lost_ends
from sparkjet.connectors.kafka.progress_topic import reached
from sparkjet.connectors.kafka.publishing import LOOK, UNCOMMITTED
from sparkjet.sinks.naming import prefix_of

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.parts import Ends
    from sparkjet.connectors.kafka.requests import TopicPartition
    from sparkjet.connectors.kafka.staged_settings import StagedSettings


class PartitionEnds:
    """Where partitions end now, open transactions included, and whether readers get there.

    Args:
        settings: The sink's.
    """

    def __init__(self, settings: StagedSettings) -> None:
        self._settings = settings
        self._admin: Any = None
        self._all_known = True
        self.made: dict[str, str] = {}
        """Ids of the topics that were asked for, by name."""

    @property
    def admin(self) -> Any:
        """A client that sends requests to brokers; created on first use."""
        if self._admin is None:
            self._admin = AdminClient(dict(self._settings.client))
        return self._admin

    def of(self, topics: Sequence[str]) -> list[TopicPartition]:
        """All partitions of some topics."""
        with reached("topics of the rows"):
            found = publishing.topics_of(self.admin, topics, self._settings.patience)
        self.made = {name: str(each.topic_id) for name, each in found.items()}
        return [(name, part.id) for name, each in found.items() for part in each.partitions]

    def are_read(self, where: Sequence[TopicPartition], within: float) -> bool:
        """Whether readers reach the current ends of partitions within some seconds."""
        until = time.monotonic() + within
        with reached("ends of the partitions"):
            ends: Ends = publishing.ends_of(self.admin, where, UNCOMMITTED, self._settings.patience)
            while publishing.unread(self.admin, ends, self._settings.patience) is not None:
                if time.monotonic() >= until:
                    return False
                time.sleep(LOOK)
        return True

    def write_lost(self, where: Sequence[TopicPartition], query: str, sink: str, *, is_routine: bool = False) -> None:
        """Write the end markers that a killed broker has not written, as far as this user may: librdkafka cannot.

        Call it before anything initializes an id of the query again.
        """
        access = self._settings.access
        if access is None or self.are_read(where, 0):
            return
        # A user who may not see the open transactions of others on the topic would wait in vain after each epoch.
        answers = 0.0 if is_routine and not self._all_known else ANSWERS
        with connected(access) as cluster:
            prefix, patience = prefix_of(query, sink), self._settings.patience
            self._all_known = write_lost_ends(cluster, where, prefix, patience, answers)
