"""A driver that is away for an hour, where brokers roll back after a minute: their clock is set, and nobody waits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.environment.test_machines import set_off, with_clocks
from tests.protocol.kafka.checks import Driver, check, finish, open_transactions, seen
from tests.protocol.kafka.conftest import orders_for
from tests.protocol.kafka.driver import STAGED
from tests.servers.kafka import KafkaServer

pytestmark = [
    pytest.mark.crash,
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the library that sets a process's clock is compiled"),
]

HOUR = 3600


@pytest.fixture
def later(tmp_path: Path) -> Iterator[tuple[KafkaServer, Callable[[int], None]]]:
    """A broker, and what sets its clock."""
    clock = tmp_path / "clock"
    set_off(clock, 0)
    seen_by_broker = {"LD_PRELOAD": with_clocks(tmp_path)["LD_PRELOAD"], "MACHINE_CLOCK": str(clock)}
    with KafkaServer(environment=seen_by_broker) as server:
        yield server, partial(set_off, clock)


@pytest.mark.parametrize("way", [STAGED, "kafka"])
def test_an_hour_away_loses_only_what_waits_in_transactions(
    later: tuple[KafkaServer, Callable[[int], None]], tmp_path: Path, way: str
) -> None:
    server, set_clock = later
    orders = replace(orders_for(server, tmp_path), way=way)
    orders = replace(orders, dsn=json.dumps({**json.loads(orders.dsn), "kafka.transaction.timeout.ms": "60000"}))
    # Between two parts of the epoch, or before all of it.
    with Driver(replace(orders, stop_at="first committed" if way == STAGED else "decided")) as driver:
        driver.reached()
        driver.kill()
    assert len(open_transactions(orders)) == (0 if way == STAGED else orders.tasks)
    set_clock(HOUR)
    server.wait(lambda: not open_transactions(orders), "the brokers to roll back")
    if way == STAGED:
        finish(orders)
        check(server, orders)
        return
    with Driver(orders) as driver:
        report = driver.wait()
    assert report[:2] == ("ended", "LostTransactionError")
    assert "10 of its 10 rows" in report[2]
    assert "after its timeout of 60000 ms" in report[2]
    assert seen(server, orders) == list(range(10, 20))
