"""The consumer of a worker process, kept from one task to the next."""

from __future__ import annotations

import gc
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sparkjet.sources.kafka.cluster import REFUSALS

if TYPE_CHECKING:
    from sparkjet.sources.kafka.consumer_settings import KafkaSourceSettings

_Key = tuple[tuple[str, str], ...]


class KeptConsumer:
    """A consumer, and what it says of its connections; in an executor, for one task at a time.

    Attributes:
        client: The consumer.
        trouble: What went wrong with it, unless records have come since.
    """

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.trouble: KafkaError | None = None
        # Thousands of messages set the collector off again and again: without this it would walk through all modules
        # each time, which doubles the time of consume().
        gc.freeze()
        # Without a callback, refused connections and wrong passwords are told to nobody.
        self.client = Consumer({**dict(key), "error_cb": self.hear}, logger=logging.getLogger("sparkjet.kafka"))

    def hear(self, error: KafkaError) -> None:
        """Remember an error: the first that says why, or one that waiting does not mend."""
        # "1/1 brokers are down" may come before the reason.
        vague = self.trouble is None or self.trouble.code() == KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - its public name
        if vague or error.code() in REFUSALS:
            self.trouble = error

    def assign(self, topic: str, partition: int, position: int) -> None:
        """Read on from there, and nothing else."""
        self.client.assign([TopicPartition(topic, partition, position)])


_kept: list[KeptConsumer] = []
"""None or one: Spark's workers live on, and a connection with TLS and SASL takes longer than a small batch."""


def borrow(settings: KafkaSourceSettings) -> KeptConsumer:
    """A consumer with these settings, for the caller alone until :func:`give_back` or :func:`drop`."""
    key = tuple(sorted(settings.client.items()))
    while _kept:
        # Taken out: a task that ends late must not take its assignment from the one that has come after it.
        found = _kept.pop()
        if found.key == key:
            found.trouble = None
            return found
        # Each has threads and connections of its own.
        drop(found)
    return KeptConsumer(key)


def give_back(consumer: KeptConsumer) -> None:
    """Keep a consumer that works for the next task, without what it has fetched too much."""
    try:
        consumer.client.unassign()
    except (KafkaException, RuntimeError):
        # All that was asked for has been read; the next task makes its own.
        drop(consumer)
        return
    while _kept:
        drop(_kept.pop())
    _kept.append(consumer)


def drop(consumer: KeptConsumer) -> None:
    """End a consumer: after a fatal error every later attempt would get the same."""
    # Its end can only repeat the error that it is dropped for.
    with suppress(KafkaException, RuntimeError):
        consumer.client.close()
