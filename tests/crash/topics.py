"""Feeds in Kafka: a topic that a producer fills, and what a query has read from it."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from tests.crash.history import offsets
from tests.protocol.kafka.checks import committed

if TYPE_CHECKING:
    from tests.crash.feeds import Event
    from tests.crash.jobs import Place
    from tests.servers.kafka import KafkaServer

PARTITIONS = {"a": 0, "b": 1, "c": 2}
"""The partition of each substream: one is far ahead, one far behind."""
PATIENCE = 120.0


class Topic:
    """A topic and its producer, which continues by itself when the broker does."""

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self.name = server.topic(partitions=len(PARTITIONS))
        # Exactly once and in order; with endless retries, as the broker is killed meanwhile.
        once = {"enable.idempotence": True, "message.timeout.ms": 0}
        self._producer = Producer({**server.client(), **once, "log_level": 0})
        self._failed: list[str] = []
        self.sent: Counter[int] = Counter()

    def send(self, events: Iterable[Event]) -> None:
        """Produce events, each to its substream's partition, without waiting."""
        for event in events:
            partition = PARTITIONS[event["sub"]]
            self._producer.produce(self.name, json.dumps(event), partition=partition, on_delivery=self._delivered)
            self.sent[event["id"]] += 1
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all of it is there."""
        assert self._producer.flush(PATIENCE) == 0, "the producer cannot deliver"
        assert not self._failed, self._failed[0]

    def options(self, **more: str) -> dict[str, str]:
        """Options of a source that reads the whole topic."""
        client = {f"kafka.{name}": value for name, value in self._server.client().items()}
        return {**client, "subscribe": self.name, "startingOffsets": "earliest", "kafka.log_level": "0", **more}

    def batches(self, place: Place) -> list[list[Event]]:
        """Its content, read by another consumer, in the batches that a query has recorded."""
        ends = offsets(place)
        batches: list[list[Event]] = [[] for _ in ends]
        for message in committed(self._server, self.name):
            substream = f"{self.name}/{message.partition()}"
            batch = bisect_right(ends, message.offset(), key=itemgetter((self.name, message.partition())))
            assert batch < len(ends), f"{substream} was not read up to {message.offset()}"
            batches[batch].append({**json.loads(message.value()), "partition": substream})
        return batches

    @property
    def substreams(self) -> tuple[str, ...]:
        """Names of its partitions."""
        return tuple(f"{self.name}/{number}" for number in PARTITIONS.values())

    def _delivered(self, error: Any, _: object) -> None:
        if error is not None:
            self._failed.append(error.str())
