"""Checks of a topic once drivers have ended, read by an independent consumer."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.cluster import Cluster
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog
from tests.protocol.driver import PATIENT, Orders
from tests.protocol.kafka.driver import main, settings
from tests.protocol.processes import Process

if TYPE_CHECKING:
    from sparkjet.snapshots.record import Record
    from tests.servers.kafka import KafkaServer

PATIENCE = 60.0

Driver = partial(Process, body=main)
"""A process of a driver that writes into Kafka."""


def committed(server: KafkaServer, topic: str) -> list[Any]:
    """Every record that a read_committed consumer gets, up to the first open transaction of each partition."""
    _completed(server)
    # At the end of a partition a broker would wait for more by default, for half a second.
    at_once = {"fetch.wait.max.ms": 10, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(
        {
            **server.client(),
            "group.id": "reader",
            **at_once,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found, ended = [], set()
    try:
        partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        deadline = time.monotonic() + PATIENCE
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"{topic} is not read to its end"
            # It waits as long for all that it is asked for.
            for message in consumer.consume(1000, 0.02):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return found


def _completed(server: KafkaServer) -> None:
    """Wait until consumers see how every transaction ended: a broker confirms the commit before that."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    with Cluster(Access.of(server.client())) as cluster:
        while ending := cluster.open_transactions("sparkjet/", ("PrepareCommit", "PrepareAbort")):
            assert time.monotonic() < deadline, f"the broker does not complete {ending}"
            pause.wait(0.02)


def held_back(server: KafkaServer, topic: str) -> int:
    """Number of offsets that an open transaction hides from consumers."""
    _completed(server)
    ends = []
    for level in ("read_uncommitted", "read_committed"):
        consumer = Consumer({**server.client(), "group.id": "ends", "isolation.level": level, "log_level": 0})
        try:
            partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
            marks = [consumer.get_watermark_offsets(TopicPartition(topic, n), PATIENCE) for n in partitions]
            ends.append(sum(high for _, high in marks))
        finally:
            consumer.close()
    return ends[0] - ends[1]


def topic_of(orders: Orders) -> str:
    """The destination of the rows."""
    return str(settings(orders.dsn).topic)


def seen(server: KafkaServer, orders: Orders) -> list[int]:
    """The numbers that consumers see."""
    return sorted(int(message.value()) for message in committed(server, topic_of(orders)))


def open_transactions(orders: Orders) -> list[str]:
    """Transactional ids with an open transaction, as the broker lists them."""
    with Cluster(settings(orders.dsn).access) as cluster:
        return cluster.open_transactions(f"sparkjet/{orders.query}/")


def newest(orders: Orders) -> Record:
    """The newest record."""
    found = RecordLog(DirectoryStore(orders.home / "snapshots")).newest()
    assert found is not None
    return found[1]


def finish(orders: Orders) -> None:
    """Restart and run to the end."""
    calm = replace(orders, stop_at=None, repeats_tasks=False, late_task=False, broken_task=False, patience=PATIENT)
    with Driver(calm) as successor:
        assert successor.ended() is None


def check(server: KafkaServer, orders: Orders) -> None:
    """Each input once, nothing open, nothing that consumers wait for, nothing unsettled."""
    epochs = [epoch for epoch in range(1, orders.epochs + 1) if epoch not in orders.empty]
    given = [n for epoch in epochs for n in range(10 * epoch, 10 * epoch + 10)]
    found = seen(server, orders)
    assert found == given
    assert open_transactions(orders) == []
    assert held_back(server, topic_of(orders)) == 0
    assert newest(orders).epoch == orders.epochs
