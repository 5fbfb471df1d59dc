"""Queries into PostgreSQL and files at once through Spark: drivers and the server killed at the phases of an epoch."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from tests.crash.delivered import check_tables
from tests.crash.drivers import Driver, Query, Victim
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3000)]

SEED = 1996
FILES = 4
KILLED_IN = 3
FAULTS = (*(victim.value for victim in Victim), "zombie", "server")
REFUSING = "refusing"
AWAY = 20.0
"""Seconds for which a server refuses connections."""
WAYS = ("prepared", "outbox", "rows-table", "state-tables", "joins-tables")
"""The jobs: windows in two ways, no windows, and all other operators."""


@dataclass(frozen=True)
class Crash:
    """A crash: its fault and its place."""

    step: EpochPhase
    fault: str
    way: str

    @property
    def name(self) -> str:
        return f"{self.step.value}-{self.fault}-{self.way}"

    def query(self, root: Path) -> Query:
        return Query(self.name, self.way, str(root / self.name), str(root / "feed"), self.step.name, KILLED_IN)


def some_crashes() -> list[Crash]:
    """Every phase with prepared transactions, every fault, the phases around the decision more often."""
    near = (EpochPhase.SAVE, EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.COMMITTING, EpochPhase.COMMIT)
    chosen = [Crash(step, fault, "prepared") for step, fault in zip(near, FAULTS, strict=True)]
    others = ("state-tables", "joins-tables", "prepared", "state-tables", "joins-tables")
    chosen += [Crash(near[(n + 2) % 5], fault, others[n]) for n, fault in enumerate(FAULTS)]
    chosen += [Crash(near[(n + 3) % 5], fault, "outbox") for n, fault in enumerate(FAULTS)]
    return chosen + [Crash(near[n + 1], fault, "rows-table") for n, fault in enumerate(("server", "jvm", "both"))]


def every_crash() -> list[Crash]:
    return [Crash(step, fault, way) for step, fault, way in product(EpochPhase, (*FAULTS, REFUSING), WAYS)]


def run(server: PostgresServer, root: Path, crashes: list[Crash]) -> dict[str, str]:
    """Crash, recover, run to the end; returns what was wrong with the output, by name."""
    for crash in crashes:
        (root / crash.name).mkdir()
        (root / crash.name / "dsn").write_text(server.database(f"t{uuid.uuid4().hex}"))
    write_skewed(root / "feed", SEED, 0, FILES)
    began = time.monotonic()
    by_fault = {fault: [each.query(root) for each in crashes if each.fault == fault] for fault in (*FAULTS, REFUSING)}
    with ExitStack() as stack:
        successor = stack.enter_context(Driver(root / "successor.log"))
        successor.start(by_fault["server"])
        successor.see(by_fault["server"], "reached")
        server.kill()
        server.start()
        successor.release()
        _succeed(successor, by_fault["server"])
        if by_fault[REFUSING]:
            _refuse(stack.enter_context(Driver(root / "refusing.log")), server, by_fault[REFUSING], successor)
        for victim in Victim:
            _kill(stack.enter_context(Driver(root / f"{victim.value}.log")), victim, by_fault[victim.value], successor)
        with Driver(root / "zombie.log") as zombie:
            queries = by_fault["zombie"]
            zombie.start(queries)
            zombie.see(queries, "reached")
            zombie.suspend()
            successor.start([replace(query, block_at=None) for query in queries])
            _succeed(successor, queries)
            zombie.resume()
            zombie.release()
            for name, error in zombie.results(queries).items():
                assert error is not None, name
                assert error.startswith("FencedError"), error
            zombie.end()
            # What it prepared before it noticed is rolled back by the next start, or the next commit of a running one.
            successor.forget()
            successor.start([replace(query, block_at=None) for query in queries])
            _succeed(successor, queries)
        assert successor.end() == 0
    print(f"\npostgres: {len(crashes)} crashes in {time.monotonic() - began:.0f} s")  # noqa: T201 - figures
    return {crash.name: judge(server, crash.query(root)) for crash in crashes}


def _refuse(driver: Driver, server: PostgresServer, queries: list[Query], successor: Driver) -> None:
    """The server is down for a while: a query continues by itself, or ends with an error that names the cause."""
    driver.start(queries)
    driver.see(queries, "reached")
    server.stop()
    driver.release()
    # The time is the fault, there is nothing to wait for. On this thread: the server dies with its parent thread.
    threading.Event().wait(AWAY)
    server.start()
    for name, error in driver.results(queries).items():
        assert error is None or error.startswith(("SinkError", "UnsettledError")), (name, error)
    driver.end()
    successor.start([replace(query, block_at=None) for query in queries])
    _succeed(successor, queries)


def _kill(driver: Driver, victim: Victim, queries: list[Query], successor: Driver) -> None:
    driver.start(queries)
    driver.see(queries, "reached")
    driver.kill(victim)
    if victim is Victim.BOTH:
        driver.gone()
    successor.start([replace(query, block_at=None) for query in queries])
    if victim is Victim.JVM:
        driver.release()
        driver.results(queries)
        driver.end()
    driver.gone()
    _succeed(successor, queries)


def _succeed(successor: Driver, queries: list[Query]) -> None:
    assert set(successor.results(queries).values()) <= {None}


def judge(server: PostgresServer, query: Query, files_given: int = FILES) -> str:
    """What is wrong with the files, with the table, or with what is left on the server; empty if nothing is."""
    try:
        check(query.place, query.rules, batches=files_given, closings=[files_given], swept=False)
        check_tables(server, query.place, query.rules.rules)
    except AssertionError as error:
        return str(error) or repr(error)
    return ""


@pytest.fixture(scope="module")
def chosen(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run(postgres, tmp_path_factory.mktemp("chosen"), some_crashes())


@pytest.fixture(scope="module")
def whole(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run(postgres, tmp_path_factory.mktemp("whole"), every_crash())


@pytest.mark.parametrize("crash", some_crashes(), ids=lambda crash: crash.name)
def test_a_crash_loses_and_repeats_nothing(chosen: dict[str, str], crash: Crash) -> None:
    assert chosen[crash.name] == ""


@pytest.mark.long
@pytest.mark.parametrize("crash", every_crash(), ids=lambda crash: crash.name)
def test_every_crash_loses_and_repeats_nothing(whole: dict[str, str], crash: Crash) -> None:
    assert whole[crash.name] == ""
