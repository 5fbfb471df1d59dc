"""Queries into PostgreSQL and files at once through Spark: drivers and the server killed at the phases of an epoch."""

from __future__ import annotations

import threading
import uuid
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from tests.crash.delivered import check_tables
from tests.crash.drivers import Driver, Query
from tests.crash.farm import FAULTS, SERVER, ZOMBIE, Crash, Farm, Suite, calm
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SEED = 1996
FILES = 4
AWAY = 20.0
"""Seconds for which a server refuses connections."""
WAYS = ("prepared", "outbox", "rows-table", "state-tables", "joins-tables")
"""The jobs: windows in two ways, no windows, and all other operators."""
SERVERS = ("postgres",)


def some_crashes() -> list[Crash]:
    """Before, at and after the decision, with prepared transactions and without; jobs with state in `test_steps.py`.

    Without Spark, each fault is tried around the decision in `protocol/test_matrix.py`, and drivers are killed at each
    point of both ways.
    """
    return [
        Crash(EpochPhase.DECIDE, "both", "prepared"),
        Crash(EpochPhase.SAVE, ZOMBIE, "prepared"),
        Crash(EpochPhase.COMMIT, SERVER, "prepared"),
        Crash(EpochPhase.COMMITTING, "python", "outbox"),
    ]


def every_crash() -> list[Crash]:
    return [Crash(step, fault, way) for step, fault, way in product(EpochPhase, FAULTS, WAYS)]


class Tables(Suite):
    """Each query has its own database."""

    def __init__(self, root: Path, server: PostgresServer, crashes: list[Crash]) -> None:
        super().__init__(root, crashes)
        self._server = server

    def prepare(self) -> None:
        for each in self.crashes:
            place = each.query(self.root).place
            place.root.mkdir()
            (place.root / "dsn").write_text(self._server.database(f"t{uuid.uuid4().hex}"))
        write_skewed(self.root / "feed", SEED, 0, FILES)

    def restart(self) -> None:
        self._server.kill()
        self._server.start()

    def judge(self, name: str, query: Query) -> None:
        delivered(self._server, query)


def delivered(server: PostgresServer, query: Query, files_given: int = FILES) -> None:
    """Assert that files and tables of a query have its rows, and that nothing is left on the server."""
    check(query.place, query.rules, batches=files_given, closings=[files_given], swept=False)
    check_tables(server, query.place, query.rules.rules)


def suite(root: Path, server: PostgresServer) -> Tables:
    return Tables(root, server, some_crashes())


@pytest.mark.parametrize("name", [each.name for each in some_crashes()])
def test_a_crash_loses_and_repeats_nothing(verdicts: dict[str, str], name: str) -> None:
    assert verdicts[name] == ""


@pytest.mark.long
def test_every_crash_loses_and_repeats_nothing(postgres: PostgresServer, tmp_path: Path) -> None:
    tables = Tables(tmp_path / "tables", postgres, every_crash())
    Farm(tmp_path, [tables]).crash()
    assert tables.verdicts == dict.fromkeys(tables.verdicts, "")


@pytest.mark.long
def test_a_server_that_is_down_for_a_while_loses_and_repeats_nothing(postgres: PostgresServer, tmp_path: Path) -> None:
    """A query continues by itself, or ends with an error that names the cause."""
    tables = Tables(tmp_path, postgres, [Crash(step, SERVER, way) for step, way in product(EpochPhase, WAYS)])
    tables.prepare()
    queries = tables.queries()
    with ExitStack() as stack:
        driver, successor = (stack.enter_context(Driver(tmp_path / f"{name}.log")) for name in ("driver", "successor"))
        driver.bring(queries, "reached")
        postgres.stop()
        driver.release()
        # The time is the fault, there is nothing to wait for. On this thread: the server dies with its parent thread.
        threading.Event().wait(AWAY)
        postgres.start()
        for name, error in driver.results(queries).items():
            assert error is None or error.startswith(("SinkError", "UnsettledError")), (name, error)
        driver.end()
        successor.bring(calm(queries))
        assert successor.end() == 0
    tables.conclude()
    assert tables.verdicts == dict.fromkeys(tables.verdicts, "")
