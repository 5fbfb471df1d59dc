"""The two-phase protocol with a real server and without Spark: every point of an epoch with every fault."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest

from sparkjet.engine.committer import Retry
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog
from tests.parameters import mostly_crash
from tests.protocol.checks import check, finish
from tests.protocol.driver import GIVES_UP, POINTS, Orders
from tests.protocol.processes import Process

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.crash


Fault = Callable[["PostgresServer", Orders, str], None]


def driver_killed(postgres: PostgresServer, orders: Orders, point: str) -> None:
    with Process(replace(orders, stop_at=point)) as driver:
        driver.reached()
        driver.kill()
    finish(orders)


def zombie_resumed(postgres: PostgresServer, orders: Orders, point: str) -> None:
    with Process(replace(orders, stop_at=point)) as zombie:
        zombie.reached()
        zombie.pause()
        finish(orders)
        zombie.go_on()
        zombie.resume()
        assert zombie.ended() == "FencedError"
    finish(orders)


def task_repeated(postgres: PostgresServer, orders: Orders, point: str) -> None:
    with Process(replace(orders, stop_at=point, repeats_tasks=True)) as driver:
        driver.reached()
        driver.go_on()
        assert driver.ended() is None
    check(postgres, orders)
    with Process(replace(orders, stop_at=point, stop_in=5, epochs=5, repeats_tasks=True)) as driver:
        driver.reached()
        driver.kill()
    finish(replace(orders, epochs=5))
    check(postgres, replace(orders, epochs=5))
    finish(orders)


def speculative_loser(postgres: PostgresServer, orders: Orders, point: str) -> None:
    with Process(replace(orders, stop_at=point, late_task=True)) as driver:
        driver.reached()
        driver.go_on()
        assert driver.ended() is None
    check(postgres, orders)
    with Process(replace(orders, stop_at=point, stop_in=5, epochs=5, late_task=True)) as driver:
        driver.reached()
        driver.kill()
    finish(replace(orders, epochs=5))
    check(postgres, replace(orders, epochs=5))


def server_killed(postgres: PostgresServer, orders: Orders, point: str) -> None:
    with Process(replace(orders, stop_at=point)) as driver:
        driver.reached()
        postgres.kill()
        postgres.start()
        driver.go_on()
        # Before the decision the epoch fails, as its connection is gone; after it the commit is retried.
        assert driver.ended() in ({None} if point in POINTS[3:] else {"CopyError", None})
    finish(orders)


def server_refusing(postgres: PostgresServer, orders: Orders, point: str, seconds: float = 0) -> None:
    """The server is down for some time, or as long as its start takes; drivers are as patient as real ones."""
    real = replace(orders, patience=Retry())
    with Process(replace(real, stop_at=point)) as driver:
        driver.reached()
        postgres.stop()
        driver.go_on()
        if POINTS.index(point) < POINTS.index("manifest"):
            assert driver.ended() in {"CopyError", "SinkError"}
            # So does a driver that starts while it is down; nothing is decided meanwhile.
            with Process(replace(orders, patience=GIVES_UP)) as refused:
                assert refused.ended() in {"UnsettledError", "SinkError"}
        # The time is the fault, there is nothing to wait for. On this thread: the server dies with its parent thread.
        threading.Event().wait(seconds)
        postgres.start()
        if POINTS.index(point) >= POINTS.index("manifest"):
            # It has continued by itself. With everything settled, the next write may come before the server is up.
            late = POINTS.index(point) >= POINTS.index("committed")
            assert driver.ended() in ({None, "CopyError"} if late else {None})
    finish(orders)


def commits_fail(postgres: PostgresServer, orders: Orders, point: str) -> None:
    """Commits fail for three epochs without rows, which continue; SIGKILL while they fail, and once they do not."""
    quiet = replace(orders, epochs=6, empty=(3, 4, 5))
    stubborn = replace(quiet, patience=GIVES_UP)
    with Process(replace(stubborn, stop_at="decided", stop_in=2)) as driver:
        driver.reached()
        postgres.stop()
        # An epoch without rows passes only these points; they take turns.
        killed_at = ("decided", "committed", "settled")[POINTS.index(point) % 3]
        driver.go_on((killed_at, 5))
        driver.reached(killed_at)
        driver.kill()
    unsettled = RecordLog(DirectoryStore(orders.home / "snapshots")).newest()
    assert unsettled is not None
    assert (unsettled[1].epoch, len(unsettled[1].transactions)) == (5, 1)
    with Process(stubborn) as refused:
        assert refused.ended() == "UnsettledError"
    postgres.start()
    with Process(replace(quiet, stop_at=point, stop_in=6)) as driver:
        driver.reached()
        driver.kill()
    finish(quiet)
    check(postgres, quiet)
    finish(replace(quiet, epochs=7))
    check(postgres, replace(quiet, epochs=7))


def named(cell: tuple[Fault, str]) -> str:
    """Its name in pytest."""
    fault, point = cell
    return f"{fault.__name__}-{point}"


FAULTS: tuple[Fault, ...] = (
    driver_killed, zombie_resumed, task_repeated, speculative_loser, server_killed, server_refusing, commits_fail,
)  # fmt: skip


FEW = {"manifest", "first committed", "committed"}
"""Around the decision."""
OFTEN = {driver_killed, zombie_resumed, server_killed}
"""At every point in `make test-crash`; the other faults at few of them."""


@pytest.mark.parametrize(
    ("fault", "point"),
    mostly_crash(
        [*product(FAULTS, POINTS)],
        quick=(),
        name=named,
        crash={(fault, point) for fault in FAULTS for point in POINTS if fault in OFTEN or point in FEW},
    ),
)
def test_each_input_is_published_once(postgres: PostgresServer, orders: Orders, fault: Fault, point: str) -> None:
    fault(postgres, orders, point)
    if fault is not commits_fail and fault is not speculative_loser and fault is not task_repeated:
        check(postgres, orders)


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_each_input_is_published_once_though_the_server_refuses_for_20_s(
    postgres: PostgresServer, orders: Orders, point: str
) -> None:
    server_refusing(postgres, orders, point, seconds=20)
    check(postgres, orders)


@pytest.mark.parametrize(
    ("fault", "point"),
    mostly_crash(
        [*product((driver_killed, zombie_resumed, server_killed), POINTS)],
        quick=(),
        name=named,
        crash={(fault, point) for fault in OFTEN for point in POINTS if fault is driver_killed or point in FEW},
    ),
)
def test_each_input_is_published_once_without_preparing(
    postgres: PostgresServer, orders: Orders, fault: Fault, point: str
) -> None:
    outbox = replace(orders, way="outbox")
    fault(postgres, outbox, point)
    check(postgres, outbox)
