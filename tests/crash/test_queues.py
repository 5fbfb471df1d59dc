"""Queries from RabbitMQ and into it through Spark: drivers and the broker killed at the phases of an epoch."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import sparkjet as sj
from sparkjet import EpochPhase
from tests.crash.drivers import Driver, Query, Victim
from tests.crash.outputs import table_of
from tests.crash.replay import RESULTS
from tests.faults.processes import executors
from tests.sources.rabbitmq.messages import held, ids, ready, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.postgres import PostgresServer
    from tests.servers.rabbitmq import RabbitServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

MESSAGES, BATCH = 120, 25
KILLED_IN = 3
"""The second epoch with rows: that of a run's first batch has none."""
INTO_QUEUE = "queues-queue"
JOBS = "queues", "queues-table"


@dataclass(frozen=True)
class Crash:
    """Where a driver dies, or the broker."""

    step: EpochPhase
    victim: Victim | None
    job: str

    @property
    def name(self) -> str:
        return f"{self.step.value}-{'broker' if self.victim is None else self.victim.value}-{self.job}"

    def query(self, root: Path) -> Query:
        return Query(self.name, self.job, str(root / self.name), str(root / "feed"), self.step.name, KILLED_IN)


STEPS = [step for step in EpochPhase if step is not EpochPhase.COMMITTING]
PARTLY = EpochPhase.COMMITTING
"""Of a query into files and a queue: the files are published."""
SOME = [Crash(step, list(Victim)[number % len(Victim)], JOBS[number % len(JOBS)]) for number, step in enumerate(STEPS)]
ALL = [Crash(step, victim, job) for step, victim, job in product(STEPS, Victim, JOBS)]
INTO = [Crash(PARTLY, Victim.BOTH, INTO_QUEUE), Crash(EpochPhase.DECIDE, Victim.BOTH, INTO_QUEUE)]
ALL_INTO = [Crash(step, victim, INTO_QUEUE) for step, victim in product((*STEPS, PARTLY), Victim)]
BROKER = [Crash(step, None, JOBS[number % len(JOBS)]) for number, step in enumerate(STEPS)]


class Queues:
    """A classic and a quorum queue for each of some queries, half of the messages in each."""

    def __init__(self, server: RabbitServer, dsn: str, root: Path, crashes: list[Crash]) -> None:
        self._server, self._dsn, self._root, self._crashes = server, dsn, root, crashes
        self._names: dict[str, list[str]] = {}
        self._targets: dict[str, str] = {}
        (root / "feed").mkdir()
        for crash in crashes:
            place = crash.query(root).place
            place.root.mkdir()
            names = self._names[crash.name] = [server.queue(), server.queue(quorum=True)]
            given = {"host": "127.0.0.1", "port": str(server.port), "maxMessagesPerTrigger": str(BATCH)}
            if crash.job == INTO_QUEUE:
                target = self._targets[crash.name] = server.queue(quorum=crash.victim is None)
                connected = {"host": "127.0.0.1", "port": str(server.port), "routingKey": target}
                (place.root / "queue.json").write_text(json.dumps(connected))
            (place.root / "source.json").write_text(json.dumps({**given, "queues": ",".join(names)}))
            (place.root / "dsn").write_text(dsn)

    def fill(self, first: int, end: int) -> None:
        """Send messages to the queues of every query."""
        middle = (first + end) // 2
        for classic, quorum in self._names.values():
            send(self._server, classic, *ids(first, middle))
            send(self._server, quorum, *ids(middle, end))

    def check(self, postgres: PostgresServer, end: int) -> None:
        """Check that every message is in every output once, and in no queue any more."""
        for crash in self._crashes:
            place = crash.query(self._root).place
            rows = sj.read_files(str(place.root / RESULTS)).collect()
            assert sorted(row["message_id"] for row in rows) == sorted(ids(0, end)), crash.name
            assert all(row["body"] == f"body of {row['message_id']}" for row in rows)
            if crash.job == "queues-table":
                found = postgres.psql(self._dsn, f'SELECT message_id, body FROM "{table_of(place)}"')
                assert sorted(found) == sorted([each, f"body of {each}"] for each in ids(0, end)), crash.name
            if crash.job == INTO_QUEUE:
                self._check_target(crash, end)
            assert ready(self._server, *self._names[crash.name]) == [0, 0], crash.name

    def _check_target(self, crash: Crash, end: int) -> None:
        """Check that every row is in the queue, and once more only with the id that it had."""
        by_id: dict[str, set[bytes]] = {}
        for properties, body in held(self._server, self._targets[crash.name]):
            by_id.setdefault(properties.message_id, set()).add(body)
        assert all(len(bodies) == 1 for bodies in by_id.values()), crash.name
        found = [json.loads(body)["message_id"] for bodies in by_id.values() for body in bodies]
        assert sorted(found) == sorted(ids(0, end)), crash.name


@pytest.mark.parametrize(
    "crashes",
    [
        pytest.param(SOME, id="some"),
        pytest.param(ALL, id="all", marks=pytest.mark.long),
        pytest.param(INTO, id="into-queue", marks=pytest.mark.long),
        pytest.param(ALL_INTO, id="all-into-queue", marks=pytest.mark.long),
    ],
)
def test_a_driver_that_dies_loses_and_repeats_no_message(
    spark: SparkSession, rabbitmq: RabbitServer, postgres: PostgresServer, tmp_path: Path, crashes: list[Crash]
) -> None:
    run(rabbitmq, postgres, tmp_path, crashes)


def run(rabbitmq: RabbitServer, postgres: PostgresServer, root: Path, crashes: list[Crash]) -> None:
    """Kill drivers, let another one finish, and check the outputs and queues; needs a session."""
    queues = Queues(rabbitmq, postgres.database(f"q{uuid4().hex}", "UTF8"), root, crashes)
    queues.fill(0, MESSAGES)
    every = [crash.query(root) for crash in crashes]
    with ExitStack() as stack:
        successor = stack.enter_context(Driver(root / "successor.log"))
        victims = [victim for victim in Victim if any(crash.victim is victim for crash in crashes)]
        drivers = {victim: stack.enter_context(Driver(root / f"{victim.value}.log")) for victim in victims}
        groups = {victim: [crash.query(root) for crash in crashes if crash.victim is victim] for victim in victims}
        for victim, driver in drivers.items():
            driver.start(groups[victim])
        for victim, driver in drivers.items():
            driver.see(groups[victim], "reached")
            driver.kill(victim)
            # At once: what survives runs beside the successor.
            successor.start(unblocked(groups[victim]))
        successor.see(every)
        # What old connections held may have come after the successor had found its queues empty.
        queues.fill(MESSAGES, MESSAGES + BATCH)
        successor.forget()
        successor.bring(unblocked(every))
        assert successor.end() == 0
    queues.check(postgres, MESSAGES + BATCH)


def test_a_broker_that_dies_loses_and_repeats_no_message(
    spark: SparkSession, rabbitmq: RabbitServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    queues = Queues(rabbitmq, postgres.database(f"q{uuid4().hex}", "UTF8"), tmp_path, BROKER)
    # Killed, it may forget queues that are only seconds old.
    rabbitmq.restart()
    queues.fill(0, MESSAGES)
    every = [crash.query(tmp_path) for crash in BROKER]
    with Driver(tmp_path / "driver.log") as driver:
        driver.bring(every, "reached")
        rabbitmq.kill()
        rabbitmq.start()
        driver.release()
        driver.see(every)
        assert driver.end() == 0
    queues.check(postgres, MESSAGES)


@pytest.mark.long
def test_an_executor_that_dies_loses_and_repeats_no_message(
    spark: SparkSession, rabbitmq: RabbitServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    queues = Queues(rabbitmq, postgres.database(f"q{uuid4().hex}", "UTF8"), tmp_path, BROKER)
    queues.fill(0, MESSAGES)
    every = [crash.query(tmp_path) for crash in BROKER]
    with Driver(tmp_path / "driver.log", "local-cluster[2,1,1024]") as driver:
        driver.bring(every, "reached")
        os.kill(executors(driver.jvm)[0].pid, signal.SIGKILL)
        driver.release()
        driver.see(every)
        assert driver.end() == 0
    queues.check(postgres, MESSAGES)


def unblocked(queries: list[Query]) -> list[Query]:
    return [Query(each.name, each.job, each.root, each.feed) for each in queries]
