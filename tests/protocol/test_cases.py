"""Cases X01-X20 of two-phase commit, by their ids; X08, X14-X16 are in tests/sinks/test_files_cases.py."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from sparkjet.cli import main
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog
from tests.protocol.checks import check, finish
from tests.protocol.driver import POINTS, Orders
from tests.protocol.processes import Process

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.crash


def killed(orders: Orders, point: str, epoch: int) -> None:
    with Process(replace(orders, stop_at=point, stop_in=epoch)) as driver:
        driver.reached()
        driver.kill()


def prepared(server: PostgresServer, orders: Orders) -> int:
    query = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
    return int(server.psql(orders.dsn, query)[0][0])


def swept(server: PostgresServer, orders: Orders, epoch: int) -> None:
    """A successor has rolled back what was left before it writes anything of its own."""
    with Process(replace(orders, stop_at="before write", stop_in=epoch)) as successor:
        successor.reached()
        assert prepared(server, orders) == 0


def x01(server: PostgresServer, orders: Orders) -> None:
    """A b P crash: rolled back, replayed."""
    killed(orders, "manifest", 1)
    assert prepared(server, orders) == orders.tasks
    assert server.psql(orders.dsn, "SELECT n FROM out") == []
    swept(server, orders, 1)


def x02(server: PostgresServer, orders: Orders) -> None:
    """P D crash: committed by the next."""
    killed(orders, "decided", 1)
    with Process(replace(orders, stop_at="before write", stop_in=2)) as successor:
        successor.reached()
        assert len(server.psql(orders.dsn, "SELECT n FROM out")) == 10
        assert prepared(server, orders) == 0


def x03(server: PostgresServer, orders: Orders) -> None:
    """P D C crash: the repeated commit changes nothing."""
    killed(orders, "committed", 1)


def x04(server: PostgresServer, orders: Orders) -> None:
    """P D C, c written, crash: c rolled back and replayed."""
    killed(orders, "written", 2)


def x05(server: PostgresServer, orders: Orders) -> None:
    """P D C c P crash."""
    killed(orders, "manifest", 2)


def x06(server: PostgresServer, orders: Orders) -> None:
    """Committed at a restart, c written, crash before any new record: c must be in its own transaction."""
    killed(orders, "decided", 1)
    killed(orders, "written", 2)
    killed(orders, "prepared", 2)


def x07(server: PostgresServer, orders: Orders) -> None:
    """Another writer fails in phase 1: the error restarts the query, and what was prepared is rolled back."""
    with Process(replace(orders, broken_task=True)) as driver:
        assert driver.ended() == "CopyError"
    assert prepared(server, orders) == orders.tasks - 1


def x09(server: PostgresServer, orders: Orders) -> None:
    """Nothing since the last record: nothing prepared, no id recorded; epochs still advance."""
    killed(replace(orders, empty=(2,)), "decided", 2)
    assert prepared(server, orders) == 0
    newest = RecordLog(DirectoryStore(orders.home / "snapshots")).newest()
    assert newest is not None
    assert (newest[1].epoch, newest[1].transactions) == (2, [])


def x10(server: PostgresServer, orders: Orders) -> None:
    """Rows arrive between P and C: they are not written before C."""
    with Process(replace(orders, stop_at="first committed", stop_in=1)) as driver:
        driver.reached()
        assert prepared(server, orders) == orders.tasks - 1
        driver.go_on()
        assert driver.ended() is None


def x11(server: PostgresServer, orders: Orders) -> None:
    """Parallelism 4 before, 2 after: what is decided is committed, what is not is rolled back, of all four."""
    killed(replace(orders, tasks=4), "decided", 1)
    killed(replace(orders, tasks=4), "manifest", 2)
    assert prepared(server, orders) == 4
    swept(server, orders, 2)


def x12(server: PostgresServer, orders: Orders) -> None:
    """Parallelism 12 before, 2 after, one transaction open: the server rolls it back with its connection."""
    killed(replace(orders, tasks=10), "written", 1)
    killed(replace(orders, tasks=10), "prepared", 2)


def x13(server: PostgresServer, orders: Orders) -> None:
    """A snapshot that is only read or copied (Jet's export): nothing is prepared, committed or rolled back by that."""
    with Process(replace(orders, stop_at="prepared", stop_in=2)) as driver:
        driver.reached()
        before = prepared(server, orders)
        shutil.copytree(orders.home / "snapshots", orders.home / "export" / "snapshots")
        for home in (orders.home, orders.home / "export"):
            assert main(["txns", str(home), "--dsn", orders.dsn]) == 0
        assert prepared(server, orders) == before == 1
        assert len(server.psql(orders.dsn, "SELECT n FROM out")) == 10
        driver.go_on()
        assert driver.ended() is None


def x18(server: PostgresServer, orders: Orders) -> None:
    """Cancelled with an open transaction: that one is rolled back, prepared ones wait for the record."""
    killed(orders, "decided", 1)
    before = prepared(server, orders)
    killed(orders, "written", 2)
    assert (before, prepared(server, orders)) == (orders.tasks, 0)


CASES: dict[str, Callable[[PostgresServer, Orders], None]] = {
    each.__name__.upper(): each for each in (x01, x02, x03, x04, x05, x06, x07, x09, x10, x11, x12, x13, x18)
}


@pytest.mark.parametrize("case", CASES)
def test_case(postgres: PostgresServer, orders: Orders, case: str) -> None:
    run = replace(orders, empty=(2,)) if case == "X09" else orders
    CASES[case](postgres, orders)
    finish(run)
    check(postgres, run)


def test_once_the_manifest_is_fixed_only_its_attempts_are_prepared(postgres: PostgresServer, orders: Orders) -> None:
    with Process(replace(orders, stop_at="manifest", repeats_tasks=True)) as driver:
        driver.reached()
        assert prepared(postgres, orders) == orders.tasks
        driver.go_on()
        assert driver.ended() is None
    check(postgres, orders)


def test_a_driver_that_prepared_too_late_is_swept_by_its_running_successor(
    postgres: PostgresServer, orders: Orders
) -> None:
    with Process(replace(orders, stop_at="before write")) as zombie:
        zombie.reached()
        zombie.pause()
        with Process(replace(orders, stop_at="settled", stop_in=3)) as successor:
            successor.reached()
            zombie.go_on()
            zombie.resume()
            assert zombie.ended() == "FencedError"
            assert prepared(postgres, orders) == orders.tasks
            successor.go_on()
            assert successor.ended() is None
    check(postgres, orders)


@pytest.mark.parametrize("case", ["X17"])
def test_a_transaction_that_the_system_rolled_back_is_an_error_and_not_a_warning(
    postgres: PostgresServer,
    orders: Orders,
    case: str,
) -> None:
    killed(orders, "decided", 1)
    with psycopg.connect(orders.dsn, autocommit=True) as connection:
        listing = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY gid"
        gid = connection.execute(listing).fetchall()[-1][0]
        connection.execute(f"ROLLBACK PREPARED '{gid}'".encode())
    for _ in range(2):
        with Process(orders) as driver:
            report = driver.wait()
            assert report[:2] == ("ended", "LostTransactionError")
            assert gid in report[2]
    # The other half of the epoch was decided, and is there.
    assert len(postgres.psql(orders.dsn, "SELECT n FROM out")) == 5


@pytest.mark.parametrize("way", ["prepared", "outbox"])
@pytest.mark.parametrize("seed", ["X20-0", pytest.param("X20-1", marks=pytest.mark.long)])
def test_restarts_at_random_points_repeat_and_lose_nothing(
    postgres: PostgresServer,
    orders: Orders,
    seed: str,
    way: str,
) -> None:
    chance = random.Random(seed)
    long = replace(orders, epochs=40, way=way)
    epoch = 1
    while epoch < long.epochs:
        point = chance.choice(POINTS if way == "prepared" else [p for p in POINTS if p != "settled"])
        killed(replace(long, tasks=chance.randint(1, 4)), point, epoch)
        newest = RecordLog(DirectoryStore(orders.home / "snapshots")).newest()
        assert newest is not None
        epoch = newest[1].epoch + chance.randint(1, 4)
    finish(long)
    check(postgres, long)
