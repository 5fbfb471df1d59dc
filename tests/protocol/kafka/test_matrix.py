"""The two-phase protocol with a real broker and without Spark: every point of an epoch with every fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.protocol.driver import GIVES_UP, POINTS, Orders
from tests.protocol.kafka.checks import Driver, check, finish, newest
from tests.protocol.kafka.driver import STAGED

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.crash

Fault = Callable[["KafkaServer", Orders, str], None]
REFUSED = {"RefusedRowError", "ProduceError", "SinkError"}


def driver_killed(kafka: KafkaServer, orders: Orders, point: str) -> None:
    with Driver(replace(orders, stop_at=point)) as driver:
        driver.reached()
        driver.kill()
    finish(orders)


def zombie_resumed(kafka: KafkaServer, orders: Orders, point: str) -> None:
    with Driver(replace(orders, stop_at=point)) as zombie:
        zombie.reached()
        zombie.pause()
        finish(orders)
        zombie.go_on()
        zombie.resume()
        # Its producer was fenced by the successor, or its record was.
        assert zombie.ended() in {"FencedError", *(REFUSED if POINTS.index(point) < POINTS.index("manifest") else ())}
    finish(orders)


def task_repeated(kafka: KafkaServer, orders: Orders, point: str) -> None:
    _twice(kafka, orders, replace(orders, stop_at=point, repeats_tasks=True))


def speculative_loser(kafka: KafkaServer, orders: Orders, point: str) -> None:
    _twice(kafka, orders, replace(orders, stop_at=point, late_task=True))


def _twice(kafka: KafkaServer, orders: Orders, run: Orders) -> None:
    """Once without a further fault, once killed."""
    with Driver(run) as driver:
        driver.reached()
        driver.go_on()
        assert driver.ended() is None
    check(kafka, orders)
    with Driver(replace(run, stop_in=5, epochs=5)) as driver:
        driver.reached()
        driver.kill()
    finish(replace(orders, epochs=5))
    check(kafka, replace(orders, epochs=5))


def broker_killed(kafka: KafkaServer, orders: Orders, point: str) -> None:
    with Driver(replace(orders, stop_at=point)) as driver:
        driver.reached()
        kafka.restart()
        driver.go_on()
        # Before the decision the epoch may fail, as its connections are gone; after it the commit is retried.
        assert driver.ended() in {None, *REFUSED}
    finish(orders)


def broker_refusing(kafka: KafkaServer, orders: Orders, point: str) -> None:
    with Driver(replace(orders, stop_at=point)) as driver:
        driver.reached()
        kafka.stop()
        driver.go_on()
        if orders.way == STAGED or POINTS.index(point) >= POINTS.index("manifest"):
            # Connections are refused while the broker starts; the driver continues by itself. Rows that wait in the
            # home need no broker before the decision.
            kafka.start()
            assert driver.ended() in {None, *REFUSED}
        else:
            assert driver.ended() in REFUSED
            kafka.start()
    finish(orders)


def commits_fail(kafka: KafkaServer, orders: Orders, point: str) -> None:
    """Commits fail for three epochs without rows, which continue; then SIGKILL."""
    quiet = replace(orders, epochs=6, empty=(3, 4, 5))
    with Driver(replace(quiet, stop_at="decided", stop_in=2, patience=GIVES_UP)) as driver:
        driver.reached()
        kafka.stop()
        driver.go_on()
        assert driver.ended() == "UnsettledError"
    assert (newest(orders).epoch, len(newest(orders).transactions)) == (5, 1)
    kafka.start()
    with Driver(replace(quiet, stop_at=point, stop_in=6)) as driver:
        driver.reached()
        driver.kill()
    finish(quiet)
    check(kafka, quiet)


OF_DRIVERS: tuple[Fault, ...] = (driver_killed, zombie_resumed, task_repeated, speculative_loser)
OF_BROKERS: tuple[Fault, ...] = (broker_killed, broker_refusing, commits_fail)
OFTEN: dict[Fault, tuple[str, ...]] = {
    # `test_cases.py` kills them at the others.
    driver_killed: ("prepared", "first committed"),
    zombie_resumed: ("first committed",),
    # In CI in `protocol/test_matrix.py`, with PostgreSQL; `test_cases.py` has the first with a manifest.
    task_repeated: (),
    speculative_loser: (),
    # In CI `crash/farmed/test_kafka.py` kills one there.
    broker_killed: (),
    # In CI, brokers refuse commits in `crash/test_into_kafka.py`, and commits fail also in `engine/test_unsettled.py`
    # and `crash/test_two_servers.py`.
    broker_refusing: (),
    commits_fail: (),
}
"""The points in `make test-crash`: around the decision."""


def at_each_point(*faults: Fault) -> list[Any]:
    """Faults at each point, those that are not needed often in `make test-long`."""
    return [
        pytest.param(fault, point, marks=() if point in OFTEN[fault] else pytest.mark.long)
        for fault in faults
        for point in POINTS
    ]


@pytest.mark.parametrize(("fault", "point"), at_each_point(*OF_DRIVERS))
def test_each_input_is_published_once(kafka: KafkaServer, orders: Orders, fault: Fault, point: str) -> None:
    fault(kafka, orders, point)
    if fault in {driver_killed, zombie_resumed}:
        check(kafka, orders)


@pytest.mark.parametrize(("fault", "point"), at_each_point(*OF_BROKERS))
def test_each_input_is_published_once_whatever_the_broker_does(
    kafka: KafkaServer, orders: Orders, fault: Fault, point: str
) -> None:
    fault(kafka, orders, point)
    if fault is not commits_fail:
        check(kafka, orders)
