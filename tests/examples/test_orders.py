"""The orders job on the servers of the tests, its check, and what it says where it cannot run."""

from __future__ import annotations

import functools
import io
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from examples import orders
from examples.orders_feed import GAP, MORNING, Basket, Order, expected
from tests.servers.postgres import NoServerError
from tests.servers.programs import NoProgramError

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer
    from tests.servers.rabbitmq import RabbitServer

ONE, TWO = Basket("ann", 0, 60, 2, 500), Basket("bob", 0, 0, 1, 99)


@pytest.mark.crash
@pytest.mark.long
def test_every_basket_is_in_the_table_once_though_its_driver_was_killed(
    rabbitmq: RabbitServer, postgres: PostgresServer, dsn: str, tmp_path: Path
) -> None:
    """In CI, drivers that read queues into a table are killed in `crash/farmed/test_queues.py`."""
    said = io.StringIO()
    running = orders.Servers(rabbitmq.port, dsn, lambda query: postgres.psql(dsn, query))
    assert orders.job(running, tmp_path, Console(file=said)), said.getvalue()
    # Rich wraps lines at the console's width.
    shown = " ".join(said.getvalue().split())
    assert f"A second driver has continued with epoch {orders.KILLED_AFTER + 1}" in shown
    assert "each once and equal to those computed from the orders; the queues are empty" in shown


def test_a_pause_of_the_gap_ends_a_basket_and_a_shorter_one_does_not() -> None:
    times = [MORNING, MORNING + GAP, MORNING + 2 * GAP - timedelta(seconds=1)]
    begin = int(MORNING.timestamp())
    assert expected([Order("web", time, "ann", cents) for time, cents in zip(times, (1, 2, 4), strict=True)]) == [
        Basket("ann", begin, begin, 1, 1),
        Basket("ann", begin + 1800, begin + 3599, 2, 6),
    ]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([ONE, TWO], []),
        ([ONE], ["1 baskets are missing, e.g. Basket(customer='bob'"]),
        ([ONE, TWO, ONE], ["1 baskets should not be there, or not so often, e.g. Basket(customer='ann'"]),
    ],
)
def test_wrong_rows_are_found(found: list[Basket], told: list[str]) -> None:
    problems = orders.differences(found, [ONE, TWO])
    assert len(problems) == len(told)
    assert all(problem.startswith(start) for problem, start in zip(problems, told, strict=True))


@pytest.mark.parametrize(
    ("which", "error"),
    [
        ("postgres", NoServerError("no PostgreSQL server found: apt-get install postgresql")),
        ("rabbitmq", NoProgramError("no RabbitMQ found: apt-get install rabbitmq-server (3.10 or newer)")),
    ],
)
def test_without_a_server_there_is_one_clear_message(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, which: str, error: Exception
) -> None:
    def missing() -> Path:
        raise error

    found = {"postgres": lambda: tmp_path, "rabbitmq": lambda: tmp_path, which: missing}
    assert orders.main(functools.partial(orders.servers, **found)) == 1
    assert capsys.readouterr().err == f"orders: {error}\n"
