"""Cases X01-X20 of two-phase commit against a Kafka broker, by their ids, and cases specific to brokers.

X08, X14 and X15 are about files, in tests/sinks/test_files_cases.py; X13 is the same for all sinks, in
tests/protocol/test_cases.py.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.connectors.kafka.cluster import Cluster
from sparkjet.connectors.kafka.transactions import KafkaTransactions
from sparkjet.errors import LostTransactionError
from tests.parameters import mostly_crash
from tests.protocol.driver import POINTS, Orders
from tests.protocol.kafka.checks import Driver, check, finish, newest, open_transactions, seen
from tests.protocol.kafka.conftest import orders_for
from tests.protocol.kafka.driver import settings

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.crash


def killed(orders: Orders, point: str, epoch: int) -> None:
    with Driver(replace(orders, stop_at=point, stop_in=epoch)) as driver:
        driver.reached()
        driver.kill()


def swept(orders: Orders, epoch: int) -> None:
    """A successor has rolled back what was left before it writes anything of its own."""
    with Driver(replace(orders, stop_at="before write", stop_in=epoch)) as successor:
        successor.reached()
        assert open_transactions(orders) == []


def x01(server: KafkaServer, orders: Orders) -> None:
    """A b P crash: rolled back, replayed."""
    killed(orders, "manifest", 1)
    assert len(open_transactions(orders)) == orders.tasks
    assert seen(server, orders) == []
    swept(orders, 1)


def x02(server: KafkaServer, orders: Orders) -> None:
    """P D crash: committed by the next."""
    killed(orders, "decided", 1)
    with Driver(replace(orders, stop_at="before write", stop_in=2)) as successor:
        successor.reached()
        assert len(seen(server, orders)) == 10
        assert open_transactions(orders) == []


def x03(server: KafkaServer, orders: Orders) -> None:
    """P D C crash: the repeated commit changes nothing."""
    killed(orders, "committed", 1)


def x04(server: KafkaServer, orders: Orders) -> None:
    """P D C, c written, crash: c rolled back and replayed."""
    killed(orders, "written", 2)


def x05(server: KafkaServer, orders: Orders) -> None:
    """P D C c P crash."""
    killed(orders, "manifest", 2)


def x06(server: KafkaServer, orders: Orders) -> None:
    """Committed at a restart, c written, crash before any new record: c must be in its own transaction."""
    killed(orders, "decided", 1)
    killed(orders, "written", 2)
    killed(orders, "prepared", 2)


def x07(server: KafkaServer, orders: Orders) -> None:
    """Another writer fails in phase 1: the error restarts the query, what was prepared is rolled back."""
    with Driver(replace(orders, broken_task=True)) as driver:
        assert driver.ended() == "RefusedRowError"
    assert len(open_transactions(orders)) == orders.tasks - 1


def x09(server: KafkaServer, orders: Orders) -> None:
    """Nothing since the last record: nothing prepared, no id recorded; epochs still advance."""
    killed(replace(orders, empty=(2,)), "decided", 2)
    assert open_transactions(orders) == []
    assert (newest(orders).epoch, newest(orders).transactions) == (2, [])


def x10(server: KafkaServer, orders: Orders) -> None:
    """Rows arrive between P and C: they are not written before C."""
    with Driver(replace(orders, stop_at="first committed", stop_in=1)) as driver:
        driver.reached()
        assert len(open_transactions(orders)) == orders.tasks - 1
        driver.go_on()
        assert driver.ended() is None


def x11(server: KafkaServer, orders: Orders) -> None:
    """Parallelism 4 before, 2 after: what is decided is committed, what is not is rolled back, of all four."""
    killed(replace(orders, tasks=4), "decided", 1)
    killed(replace(orders, tasks=4), "manifest", 2)
    assert len(open_transactions(orders)) == 4
    swept(orders, 2)


def x12(server: KafkaServer, orders: Orders) -> None:
    """Parallelism 10 before, 2 after, one transaction open: the next start rolls it back."""
    killed(replace(orders, tasks=10), "written", 1)
    killed(replace(orders, tasks=10), "prepared", 2)
    swept(orders, 2)


def x18(server: KafkaServer, orders: Orders) -> None:
    """Cancelled with an open transaction: that one is rolled back, prepared ones wait for the record."""
    killed(orders, "decided", 1)
    assert len(open_transactions(orders)) == orders.tasks
    killed(orders, "written", 2)


CASES: dict[str, Callable[[KafkaServer, Orders], None]] = {
    each.__name__.upper(): each for each in (x01, x02, x03, x04, x05, x06, x07, x09, x10, x11, x12, x18)
}


LONG = {"X02", "X04", "X05"}
"""X06, X11, X12 and X18 kill a driver at these points too, and X02 and X05 are tried with the other brokers."""


@pytest.mark.parametrize("case", mostly_crash(CASES, quick=(), crash=CASES.keys() - LONG))
def test_case(kafka: KafkaServer, orders: Orders, case: str) -> None:
    run = replace(orders, empty=(2,)) if case == "X09" else orders
    CASES[case](kafka, orders)
    finish(run)
    check(kafka, run)


def test_once_the_manifest_is_fixed_only_its_attempts_are_open(kafka: KafkaServer, orders: Orders) -> None:
    with Driver(replace(orders, stop_at="manifest", repeats_tasks=True)) as driver:
        driver.reached()
        assert len(open_transactions(orders)) == orders.tasks
        driver.go_on()
        assert driver.ended() is None
    check(kafka, orders)


def test_a_driver_that_prepared_too_late_is_swept_by_its_running_successor(kafka: KafkaServer, orders: Orders) -> None:
    with Driver(replace(orders, stop_at="before write")) as zombie:
        zombie.reached()
        zombie.pause()
        with Driver(replace(orders, stop_at="settled", stop_in=3)) as successor:
            successor.reached()
            zombie.go_on()
            zombie.resume()
            assert zombie.ended() == "FencedError"
            assert len(open_transactions(orders)) == orders.tasks
            successor.go_on()
            assert successor.ended() is None
    check(kafka, orders)


@pytest.mark.parametrize("version", ["kafka_old", pytest.param("kafka_secure", marks=pytest.mark.long)])
def test_other_brokers(request: pytest.FixtureRequest, tmp_path: Path, version: str) -> None:
    server: KafkaServer = request.getfixturevalue(version)
    for case in (x02, x05):
        orders = orders_for(server, tmp_path / case.__name__)
        case(server, orders)
        finish(orders)
        check(server, orders)


@pytest.mark.parametrize("case", ["X16", "X17"])
def test_a_transaction_that_the_system_rolled_back_is_an_error_and_not_a_warning(
    kafka: KafkaServer, orders: Orders, case: str
) -> None:
    killed(orders, "decided", 1)
    gid = open_transactions(orders)[-1]
    with Cluster(settings(orders.dsn).access) as cluster:
        assert cluster.fence(gid) == 0
    for _ in range(2):
        with Driver(orders) as driver:
            report = driver.wait()
            assert report[:2] == ("ended", "LostTransactionError")
            assert gid in report[2]
            assert "5 of its 10 rows" in report[2]
            assert "onLostTransaction" in report[2]
    # The other half of the epoch was decided, and is there.
    assert len(seen(kafka, orders)) == 5


@pytest.mark.logs_errors
def test_a_transaction_that_was_open_too_long_is_lost_and_one_may_go_on_without_it(
    kafka: KafkaServer, orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    hasty = replace(orders, dsn=json.dumps({**json.loads(orders.dsn), "kafka.transaction.timeout.ms": "1000"}))
    killed(hasty, "decided", 1)
    (decided,) = newest(orders).transactions
    deadline, pause = time.monotonic() + 60, threading.Event()
    while open_transactions(orders):
        assert time.monotonic() < deadline
        pause.wait(0.1)
    access = settings(orders.dsn).access
    with pytest.raises(LostTransactionError, match=r"10 of its 10 rows.*after its timeout of 1000 ms"):
        KafkaTransactions(access).commit(decided.handle, lambda: None)
    KafkaTransactions(access, continues=True).commit(decided.handle, lambda: None)
    assert "Continuing, because onLostTransaction=continue" in caplog.text
    assert seen(kafka, orders) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", [f"X20-{n}" for n in range(2)])
def test_restarts_at_random_points_repeat_and_lose_nothing(kafka: KafkaServer, orders: Orders, seed: str) -> None:
    chance = random.Random(seed)
    long = replace(orders, epochs=40)
    epoch = 1
    while epoch < long.epochs:
        killed(replace(long, tasks=chance.randint(1, 4)), chance.choice(POINTS), epoch)
        epoch = newest(orders).epoch + chance.randint(1, 4)
    finish(long)
    check(kafka, long)
