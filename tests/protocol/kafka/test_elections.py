"""Three brokers: one that dies in the middle of publishing, and too few replicas in sync, with both ways into Kafka."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from sparkjet.sinks.protocol import TransactionId
from tests.protocol.driver import GIVES_UP, PATIENT, Orders
from tests.protocol.kafka.checks import Driver, check, finish, seen, topic_of
from tests.protocol.kafka.driver import STAGED, PlainStagedSink, place
from tests.servers.fixtures import available
from tests.servers.kafka import KafkaServer, jars
from tests.servers.programs import NoProgramError

pytestmark = [pytest.mark.crash, pytest.mark.long]

REPLICATED = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    # A broker that is gone is noticed after this, and then its replicas.
    "replica.lag.time.max.ms": "3000",
}


@dataclass(frozen=True)
class Brokers:
    """A cluster; ``first`` controls it and stays, the others may die."""

    first: KafkaServer
    others: tuple[KafkaServer, ...]

    def all_in_sync(self, topic: str) -> bool:
        """Whether every replica of a topic has what its leader has."""
        parts = self.first.admin().list_topics(topic, timeout=30).topics[topic].partitions.values()
        return all(len(each.isrs) == len(each.replicas) for each in parts)

    def leader_of(self, topic: str) -> KafkaServer:
        """A broker that may die and leads a partition of a topic."""
        parts = self.first.admin().list_topics(topic, timeout=30).topics[topic].partitions.values()
        return next(each for each in self.others if each.port in {part.leader for part in parts})


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    available(jars, NoProgramError)
    with contextlib.ExitStack() as running:
        first = running.enter_context(KafkaServer(settings=REPLICATED))
        others = [running.enter_context(KafkaServer(settings=REPLICATED, joins=first)) for _ in range(2)]
        yield Brokers(first, tuple(others))


@pytest.fixture(autouse=True)
def all_run(brokers: Brokers) -> None:
    """Also after a test that has failed."""
    for each in brokers.others:
        if not each.runs:
            each.start()


@pytest.fixture(params=[STAGED, "kafka"])
def orders(request: pytest.FixtureRequest, brokers: Brokers, tmp_path: Path) -> Orders:
    topic = brokers.first.topic(partitions=3, replicas=3)
    brokers.first.wait(lambda: brokers.all_in_sync(topic), "the replicas")
    client = {**brokers.first.client(), "bootstrap.servers": ",".join(each.bootstrap for each in all_of(brokers))}
    return Orders(tmp_path, place(client, topic), way=request.param)


def all_of(brokers: Brokers) -> tuple[KafkaServer, ...]:
    return brokers.first, *brokers.others


def test_an_election_in_the_middle_of_publishing_loses_and_repeats_nothing(brokers: Brokers, orders: Orders) -> None:
    """In CI, the only broker is killed there: `test_staged.py`, `test_matrix.py`."""
    with Driver(replace(orders, stop_at="first committed")) as driver:
        driver.reached()
        leader = brokers.leader_of(topic_of(orders))
        leader.kill()
        driver.go_on()
        assert driver.ended() is None
    leader.start()
    check(brokers.first, orders)


def test_a_topic_with_too_few_replicas_in_sync_is_named_and_goes_on_when_they_are_back(
    brokers: Brokers, orders: Orders
) -> None:
    topic = topic_of(orders)
    # As short as it may be: each attempt waits for so long and 15 seconds.
    orders = replace(orders, dsn=json.dumps({**json.loads(orders.dsn), "kafka.transaction.timeout.ms": "1000"}))
    brokers.first.configure(topic, min_insync_replicas="3")
    with Driver(replace(orders, stop_at="decided", patience=GIVES_UP)) as driver:
        driver.reached()
        gone = brokers.leader_of(topic)
        gone.kill()
        driver.go_on()
        report = driver.wait(400)
    assert report[0] == "ended"
    if orders.way == STAGED:
        assert report[1] == "UnsettledError"
        assert "min.insync.replicas" in report[2], report
    with Driver(replace(orders, patience=PATIENT)) as waiting:
        # It takes its time, and then goes on by itself.
        gone.start()
        assert waiting.ended() is None
    check(brokers.first, orders)


def test_too_few_replicas_in_sync_are_named_and_what_is_decided_waits(brokers: Brokers, orders: Orders) -> None:
    with Driver(replace(orders, stop_at="decided", patience=GIVES_UP)) as driver:
        driver.reached()
        for each in brokers.others:
            each.kill()
        driver.go_on()
        # It waits as long for brokers as for a transaction of someone else: a timeout and 15 seconds.
        report = driver.wait(400)
    assert report[:2] == ("ended", "UnsettledError")
    if orders.way == STAGED:
        assert "min.insync.replicas" in report[2], report
    for each in brokers.others:
        each.start()
    finish(orders)
    check(brokers.first, orders)
    assert len(seen(brokers.first, orders)) == 40


def test_a_topic_that_was_recreated_elsewhere_is_written_to_at_once(brokers: Brokers, tmp_path: Path) -> None:
    first, (leader, other) = brokers.first, brokers.others
    name = created(first, f"t{uuid4().hex}", leader)
    leader.kill()
    # Its epoch is later than those of a new topic.
    first.wait(lambda: leaders(first, name) == {1}, "an election")
    leader.start()
    orders = Orders(tmp_path, place(first.client(), name), way=STAGED)
    sink = PlainStagedSink(orders)
    sink.published_after(TransactionId(orders.query, "results", 0, 0, 0), None)
    sink.create()
    for epoch in (1, 2):
        handle = sink.prepare(range(10 * epoch, 10 * epoch + 10), TransactionId(orders.query, "results", 0, epoch, 0))
        assert handle is not None
        if epoch > 1:
            first.drop(name)
            created(first, name, other)
        # Without another attempt, which would have other producers.
        sink.commit(handle, lambda: None)
    assert seen(first, orders) == list(range(20, 30))


def created(server: KafkaServer, name: str, leader: KafkaServer) -> str:
    """Create a topic with a given leader."""
    admin = server.admin()
    admin.create_topics([NewTopic(name, 2, replica_assignment=[[leader.port, 1]] * 2)])[name].result(60)
    server.wait(lambda: leaders(server, name) == {leader.port}, "the topic")
    return name


def leaders(server: KafkaServer, name: str) -> set[int]:
    """The leaders of a topic's partitions."""
    found = server.admin().list_topics(timeout=30).topics.get(name)
    return set() if found is None else {each.leader for each in found.partitions.values()}
