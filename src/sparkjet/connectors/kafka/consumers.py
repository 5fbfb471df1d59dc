"""The consumer of a worker process, cached between tasks."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sparkjet.connectors.kafka.admin import REFUSALS

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings

_Key = tuple[tuple[str, str], ...]


class CachedConsumer:
    """A consumer and the errors of its connections; in an executor, used by one task at a time.

    Attributes:
        client: The consumer.
        trouble: Its last error, None once records have arrived again.
        is_reused: Whether an earlier task has used its client.
    """

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.trouble: KafkaError | None = None
        self.is_reused = False
        self.client = self._connected()

    def renew(self) -> bool:
        """Replace the client of an earlier task with a new one; returns whether there was one to replace.

        librdkafka accepts no leader whose epoch is lower than that of the leader it knows. If a topic was recreated,
        its epochs start over, and a client that has read the old topic would wait forever.
        """
        if not self.is_reused:
            return False
        discard(self)
        self.client, self.is_reused = self._connected(), False
        return True

    def _connected(self) -> Consumer:
        # Without a callback, refused connections and wrong passwords would not be reported at all.
        return Consumer({**dict(self.key), "error_cb": self.hear}, logger=logging.getLogger("sparkjet.kafka"))

    def hear(self, error: KafkaError) -> None:
        """Keep an error: the first with a reason, or one that does not resolve by waiting."""
        # "1/1 brokers are down" may arrive before the reason.
        vague = self.trouble is None or self.trouble.code() == KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - its public name
        if vague or error.code() in REFUSALS:
            self.trouble = error

    def assign(self, topic: str, partition: int, position: int) -> None:
        """Assign one partition, from a position on."""
        self.client.assign([TopicPartition(topic, partition, position)])


_cached: list[CachedConsumer] = []
"""At most one: workers are reused, and connecting with TLS and SASL takes longer than a small batch."""


def borrow(settings: KafkaSourceSettings) -> CachedConsumer:
    """A consumer with these settings, exclusive to the caller until :func:`give_back` or :func:`discard`."""
    key = tuple(sorted(settings.client.items()))
    while _cached:
        # Removed from the cache: a task that ends late must not take the assignment from its successor.
        found = _cached.pop()
        if found.key == key:
            found.trouble, found.is_reused = None, True
            return found
        # Closed, as each consumer has its own threads and connections.
        discard(found)
    return CachedConsumer(key)


def give_back(consumer: CachedConsumer) -> None:
    """Cache a working consumer for the next task, without the records that it has fetched ahead."""
    try:
        consumer.client.unassign()
    except (KafkaException, RuntimeError):
        # Not an error of this task, whose range has been read; the next task creates its own consumer.
        discard(consumer)
        return
    while _cached:
        discard(_cached.pop())
    _cached.append(consumer)


def discard(consumer: CachedConsumer) -> None:
    """Close a consumer: after a fatal error every later attempt would get the same error."""
    # Closing can only repeat the error that it is discarded for.
    with suppress(KafkaException, RuntimeError):
        consumer.client.close()
