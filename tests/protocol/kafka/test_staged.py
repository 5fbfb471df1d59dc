"""Rows that wait in the home, with a real broker and without Spark: every point of an epoch with every fault."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sparkjet.connectors.kafka.cluster import Cluster
from tests.protocol.driver import GIVES_UP, POINTS, Orders
from tests.protocol.kafka.checks import Driver, check, finish, newest, open_transactions, seen, topic_of
from tests.protocol.kafka.driver import settings
from tests.protocol.kafka.test_matrix import (
    Fault,
    broker_killed,
    broker_refusing,
    commits_fail,
    driver_killed,
    zombie_resumed,
)

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.crash

OFTEN: dict[Fault, tuple[str, ...]] = {
    # Below it is killed in its commits, and `connectors/kafka/test_publishing.py` ends a publisher anywhere.
    driver_killed: ("decided",),
    zombie_resumed: ("first committed",),
    # `crash/farmed/test_kafka.py` kills it while a query commits, `connectors/kafka/test_publishing.py` after a commit.
    broker_killed: (),
    broker_refusing: (),
    commits_fail: (),
}
"""The points in `make test-crash`; all of them in `make test-long`."""
MIDDLE = ("before write", "manifest", "first committed")
CELLS = [
    pytest.param(fault, point, marks=() if point in OFTEN[fault] else pytest.mark.long)
    for fault in OFTEN
    for point in POINTS
]


@pytest.mark.parametrize(("fault", "point"), CELLS)
def test_each_input_is_published_once(kafka: KafkaServer, staged: Orders, fault: Fault, point: str) -> None:
    fault(kafka, staged, point)
    if fault is not commits_fail:
        check(kafka, staged)


def killed(orders: Orders, point: str, epoch: int = 2) -> None:
    with Driver(replace(orders, stop_at=point, stop_in=epoch)) as driver:
        driver.reached()
        driver.kill()


# In CI a farmed driver publishes what a killed one has decided, with as many tasks.
@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4)])
def test_parts_are_those_of_the_handle_whatever_the_parallelism_of_the_next_start(
    kafka: KafkaServer, staged: Orders, before: int, after: int
) -> None:
    killed(replace(staged, tasks=before), "first committed")
    assert 10 < len(seen(kafka, staged)) < 20
    finish(replace(staged, tasks=after))
    check(kafka, staged)


def test_no_clock_runs_for_what_is_decided(kafka: KafkaServer, staged: Orders) -> None:
    hasty = replace(staged, dsn=json.dumps({**json.loads(staged.dsn), "kafka.transaction.timeout.ms": "1000"}))
    killed(hasty, "decided")
    # Nothing waits in the brokers, so that there is nothing that they could drop.
    assert open_transactions(hasty) == []
    finish(hasty)
    check(kafka, staged)


def test_a_publisher_that_is_fenced_between_two_epochs_looks_and_goes_on(kafka: KafkaServer, staged: Orders) -> None:
    with Driver(replace(staged, stop_at="settled", stop_in=1)) as driver:
        driver.reached()
        with Cluster(settings(staged.dsn).access) as cluster:
            for name in cluster.open_transactions("sparkjet/", ("CompleteCommit",)):
                assert cluster.fence(name) == 0
        driver.go_on()
        assert driver.ended() is None
    check(kafka, staged)


def test_a_home_that_was_restored_from_a_backup_is_refused(kafka: KafkaServer, staged: Orders) -> None:
    finish(replace(staged, epochs=2))
    backup = staged.home.with_name("backup")
    shutil.copytree(staged.home, backup)
    finish(staged)
    shutil.rmtree(staged.home)
    backup.rename(staged.home)
    with Driver(staged) as driver:
        report = driver.wait()
    assert report[:2] == ("ended", "RecoveryError")
    assert f"the progress topic 'progress-{topic_of(staged)}' says that epoch 4 was published" in report[2]
    assert len(seen(kafka, staged)) == 40


@pytest.mark.parametrize("point", ["decided", *(pytest.param(p, marks=pytest.mark.long) for p in MIDDLE)])
def test_of_two_copies_of_a_home_the_second_publishes_nothing(kafka: KafkaServer, staged: Orders, point: str) -> None:
    copy = replace(staged, home=staged.home.with_name("copy"))
    with Driver(replace(staged, stop_at=point)) as driver:
        driver.reached()
        shutil.copytree(staged.home, copy.home)
        finish(copy)
        driver.go_on()
        assert driver.ended() == "CopiedHomeError"
    check(kafka, copy)


def test_a_topic_that_was_deleted_after_the_decision_gets_the_rows_once_it_is_there(
    kafka: KafkaServer, staged: Orders
) -> None:
    with Driver(replace(staged, stop_at="decided", patience=GIVES_UP)) as driver:
        driver.reached()
        kafka.drop(topic_of(staged))
        driver.go_on()
        report = driver.wait()
        assert report[:2] == ("ended", "UnsettledError")
        assert "Create the topic" in report[2]
    assert [each.handle["epoch"] for each in newest(staged).transactions] == [2]
    kafka.topic(topic_of(staged), partitions=2)
    finish(staged)
    # What was published before went with the topic.
    assert seen(kafka, staged) == list(range(20, 50))


def test_a_topic_that_was_recreated_beside_a_running_query_gets_what_comes_after(
    kafka: KafkaServer, staged: Orders
) -> None:
    # The producer has written to the old one.
    with Driver(replace(staged, stop_at="settled", stop_in=1)) as driver:
        driver.reached()
        recreate(kafka, staged)
        driver.go_on(("first committed", 3))
        driver.reached("first committed")
        recreate(kafka, staged)
        driver.go_on()
        assert driver.ended() is None
    assert seen(kafka, staged) == [n for n in range(30, 50) if n >= 40 or n % 2]


def recreate(server: KafkaServer, orders: Orders) -> None:
    server.drop(topic_of(orders))
    server.topic(topic_of(orders), partitions=2)


@pytest.mark.long
def test_a_topic_that_was_deleted_takes_prepared_rows_with_it(kafka: KafkaServer, orders: Orders) -> None:
    killed(orders, "decided")
    recreate(kafka, orders)
    finish(orders)
    assert seen(kafka, orders) == list(range(30, 50))


@pytest.mark.parametrize("point", ["first committed", pytest.param("decided", marks=pytest.mark.long)])
def test_a_topic_that_was_recreated_in_the_middle_of_an_epoch_gets_what_was_missing(
    kafka: KafkaServer, staged: Orders, point: str
) -> None:
    killed(staged, point)
    recreate(kafka, staged)
    finish(staged)
    assert seen(kafka, staged) == [n for n in range(20, 50) if n >= 30 or n % 2 or point == "decided"]
