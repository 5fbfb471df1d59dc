"""Markers of epochs whose rows are committed without them: what they tell readers is written after the commit."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka.admin import AdminClient

from sparkjet.connectors.kafka.producing import ProduceError, Queue
from sparkjet.connectors.kafka.progress_topic import COMPLETE, ProgressTopic, existing, key_of, reached, topics_in
from sparkjet.connectors.kafka.publishing import (
    COMMITTED,
    UNCOMMITTED,
    MarkerReader,
    ends_of,
    partitions_of,
    told_of,
    topics_of,
)
from sparkjet.errors import SinkError

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Handle, TransactionId

_WRITERS = 1
"""The number of parts, of which there are none here: the topic is like that of the staged sink."""


class EpochMarkers:
    """Tells the readers of a topic, in a progress topic, how far each epoch goes; on the driver.

    Where an epoch ends is asked for when all its rows are written, in transactions that are still open: no row of it is
    after that. It is written when they are committed, so a marker never comes before its rows; whoever commits an
    epoch again writes it again, which says the same.

    Args:
        name: The progress topic.
        producer: librdkafka's properties for producers; include the password and are never shown.
        client: The same for clients that only ask and read.
        patience: Seconds to wait for brokers.
    """

    def __init__(self, name: str, producer: Mapping[str, str], client: Mapping[str, str], patience: float) -> None:
        self._name, self._properties, self._client, self._patience = name, producer, client, patience
        self._producer: Any = None
        self._admin: Any = None
        self._named: set[str] | None = None
        """The topics that markers of this output have named; None before they were looked up."""

    def check(self, topic: str | None) -> None:
        """Refuse a progress topic that would lose markers, or that is missing and may not be created."""
        self._topic.check(_WRITERS, self._replicas(topic))

    def create(self, topic: str | None) -> None:
        """Create it if it is missing."""
        self._topic.create(_WRITERS, self._replicas(topic))

    def described(self, transaction: TransactionId, topics: Collection[str]) -> Handle:
        """The content of the marker of an epoch whose rows are all written, for its handle.

        It names the topics of earlier epochs too: without rows in one, the watermark there moves as well, and whoever
        reads a compacted progress topic finds nothing but the newest marker.
        """
        with reached(f"the ends of what goes with progressTopic {self._name!r}"):
            if self._named is None:
                self._named = self._earlier(key_of(transaction.query, transaction.sink))
            earlier, now = self._named - set(topics), set(topics)
            self._named |= now
            if earlier:
                # Nobody reads those that were deleted.
                now |= existing(self._asking(), earlier, self._patience)
            partitions = partitions_of(self._asking(), sorted(now), self._patience)
            ends = ends_of(self._asking(), partitions, UNCOMMITTED, self._patience)
        return {"progress": self._name, **told_of(ends, transaction.reached)}

    def _earlier(self, key: str) -> set[str]:
        """The topics that this output's newest marker names."""
        ends = ends_of(self._asking(), [(self._name, COMPLETE)], COMMITTED, self._patience)
        newest: bytes | None = None
        for found, value in MarkerReader(self._client, self._patience).read({}, ends):
            if found == key:
                newest = value
        return topics_in(newest)

    def write(self, handle: Handle) -> None:
        """Write the marker of an epoch whose rows are committed.

        Raises:
            SinkError: The brokers do not take it, or the topic is gone.
        """
        told: Mapping[str, Any] = handle["told"]
        marker = {"epoch": handle["epoch"], "run": handle.get("run", ""), "rows": handle["rows"]}
        value = json.dumps({**marker, "ends": told["ends"], "watermark": told["watermark"]}).encode()
        record = {"key": key_of(handle["query"], handle["sink"]).encode(), "value": value, "partition": COMPLETE}
        try:
            if self._producer is None:
                self._producer = confluent_kafka.Producer({**self._properties, "delivery.report.only.error": True})
            queue = Queue(self._producer)
            queue.put(told["progress"], [record])
            queue.drain()
        except (ProduceError, confluent_kafka.KafkaException, BufferError) as error:
            self._producer = None
            message = (
                f"Kafka: the rows of epoch {handle['epoch']} are committed, but its marker cannot be written to "
                f"progressTopic {told['progress']!r}, for which readers with carried() wait: {error}"
            )
            raise SinkError(message) from error

    @property
    def _topic(self) -> ProgressTopic:
        return ProgressTopic(self._client, self._name, "", "", self._patience)

    def _replicas(self, topic: str | None) -> int:
        """The number of replicas of the topic of the rows; -1 for the brokers' default."""
        if topic is None:
            return -1
        with reached(f"topic {topic!r}"):
            partitions = topics_of(self._asking(), [topic], self._patience)[topic].partitions
        return max(len(each.replicas) for each in partitions)

    def _asking(self) -> Any:
        if self._admin is None:
            self._admin = AdminClient(dict(self._client))
        return self._admin
