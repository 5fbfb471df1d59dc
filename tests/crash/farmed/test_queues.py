"""Queries from RabbitMQ and into it through Spark: drivers and the broker killed at the phases of an epoch."""

from __future__ import annotations

import json
import os
import signal
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import sparkjet as sj
from sparkjet import EpochPhase
from tests.connectors.rabbitmq.messages import held, ids, ready, send
from tests.crash.drivers import Driver, Query, Victim
from tests.crash.farm import SERVER, Crash, Farm, Suite
from tests.crash.outputs import table_of
from tests.crash.replay import RESULTS
from tests.faults.processes import executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.postgres import PostgresServer
    from tests.servers.rabbitmq import RabbitServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

MESSAGES, BATCH = 80, 25
INTO_QUEUE = "queues-queue"
JOBS = "queues", "queues-table"
"""From queues into files, and into files and a table."""
STEPS = [step for step in EpochPhase if step is not EpochPhase.COMMITTING]
PARTLY = EpochPhase.COMMITTING
"""Of a query into files and a queue: the files are published."""
VICTIMS = [victim.value for victim in Victim]
EVERY_BROKER = [Crash(step, SERVER, JOBS[number % len(JOBS)]) for number, step in enumerate(STEPS)]
EVERY_STEP = [Crash(step, VICTIMS[number % 3], JOBS[number % len(JOBS)]) for number, step in enumerate(STEPS)]
"""In the second epoch with rows, as always: that of a run's first batch has none."""
SOME = [each for each in EVERY_STEP if each.step in {EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.COMMIT}]
"""At the others a source and its broker know what they know at one of these: before the decision, before messages are
acknowledged, and after that."""
ALL = [Crash(step, victim, job) for step, victim, job in product(STEPS, VICTIMS, JOBS)]
INTO = [Crash(PARTLY, "both", INTO_QUEUE), Crash(EpochPhase.DECIDE, "both", INTO_QUEUE)]
ALL_INTO = [Crash(step, victim, INTO_QUEUE) for step, victim in product((*STEPS, PARTLY), VICTIMS)]
SERVERS = ("rabbitmq", "postgres", "spark")


class Queues(Suite):
    """A classic and a quorum queue for each query, half of the messages in each."""

    def __init__(
        self, root: Path, server: RabbitServer, postgres: PostgresServer, spark: SparkSession, crashes: list[Crash]
    ) -> None:
        super().__init__(root, crashes)
        # `read_files` needs the session, which is only the active one of its thread.
        self._server, self._postgres, self._spark = server, postgres, spark
        self._dsn = postgres.database(f"q{uuid4().hex}", "UTF8")
        self._names: dict[str, list[str]] = {}
        self._targets: dict[str, str] = {}
        self._sent = 0
        # A broker that was killed gives acknowledged messages again, which a run after a clean one takes for new.
        self._is_filled_again = not self.queries(SERVER)

    def prepare(self) -> None:
        (self.root / "feed").mkdir()
        for each in self.crashes:
            place = each.query(self.root).place
            place.root.mkdir()
            names = self._names[each.name] = [self._server.queue(), self._server.queue(quorum=True)]
            broker = {"host": "127.0.0.1", "port": str(self._server.port)}
            if each.job == INTO_QUEUE:
                target = self._targets[each.name] = self._server.queue(quorum=each.fault == SERVER)
                (place.root / "queue.json").write_text(json.dumps({**broker, "routingKey": target}))
            given = {**broker, "maxMessagesPerTrigger": str(BATCH), "queues": ",".join(names)}
            (place.root / "source.json").write_text(json.dumps(given))
            (place.root / "dsn").write_text(self._dsn)
        if self.queries(SERVER):
            # Killed, it may forget queues that are only seconds old.
            self._server.restart()
        self._fill(MESSAGES)

    def restart(self) -> None:
        self._server.kill()
        self._server.start()

    def more(self) -> bool:
        # What old connections held may have come after the successor had found its queues empty.
        self._fill(MESSAGES + BATCH)
        return True

    def judge(self, name: str, query: Query) -> None:
        """Every message is in every output once, and no longer in any queue."""
        if self._is_filled_again and self._sent == MESSAGES:
            return
        place = query.place
        rows = sj.read_files(str(place.root / RESULTS)).collect()
        assert sorted(row["message_id"] for row in rows) == sorted(ids(0, self._sent))
        assert all(row["body"] == f"body of {row['message_id']}" for row in rows)
        if query.job == "queues-table":
            found = self._postgres.psql(self._dsn, f'SELECT message_id, body FROM "{table_of(place)}"')
            assert sorted(found) == sorted([each, f"body of {each}"] for each in ids(0, self._sent))
        if query.job == INTO_QUEUE:
            self._check_target(name)
        assert ready(self._server, *self._names[name]) == [0, 0]

    def _fill(self, end: int) -> None:
        """Send messages to the queues of every query."""
        first, self._sent = self._sent, end
        middle = (first + end) // 2
        for classic, quorum in self._names.values():
            send(self._server, classic, *ids(first, middle))
            send(self._server, quorum, *ids(middle, end))

    def _check_target(self, name: str) -> None:
        """Check that every row is in the queue, and once more only with the id that it had."""
        by_id: dict[str, set[bytes]] = {}
        for properties, body in held(self._server, self._targets[name]):
            by_id.setdefault(properties.message_id, set()).add(body)
        assert all(len(bodies) == 1 for bodies in by_id.values())
        found = [json.loads(body)["message_id"] for bodies in by_id.values() for body in bodies]
        assert sorted(found) == sorted(ids(0, self._sent))


def suite(root: Path, server: RabbitServer, postgres: PostgresServer, spark: SparkSession) -> Queues:
    return Queues(root, server, postgres, spark, SOME)


@pytest.mark.parametrize("name", [each.name for each in SOME])
def test_a_driver_that_dies_loses_and_repeats_no_message(verdicts: dict[str, str], name: str) -> None:
    assert verdicts[name] == ""


@pytest.mark.long
def test_a_broker_that_dies_loses_and_repeats_no_message(
    spark: SparkSession, rabbitmq: RabbitServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    """In CI, `test_source.py` and `test_publisher.py` of `connectors/rabbitmq` kill it, without Spark."""
    queues = Queues(tmp_path, rabbitmq, postgres, spark, EVERY_BROKER)
    queues.prepare()
    with Driver(tmp_path / "driver.log") as driver:
        driver.bring(queues.queries(), "reached")
        queues.restart()
        driver.release()
        driver.see(queues.queries())
        assert driver.end() == 0
    queues.conclude()
    assert queues.verdicts == dict.fromkeys(queues.verdicts, "")


@pytest.mark.long
@pytest.mark.parametrize("crashes", [ALL, INTO, ALL_INTO], ids=["all", "into-queue", "all-into-queue"])
def test_every_driver_that_dies_loses_and_repeats_no_message(
    spark: SparkSession, rabbitmq: RabbitServer, postgres: PostgresServer, tmp_path: Path, crashes: list[Crash]
) -> None:
    queues = Queues(tmp_path / "queues", rabbitmq, postgres, spark, crashes)
    Farm(tmp_path, [queues]).crash()
    assert queues.verdicts == dict.fromkeys(queues.verdicts, "")


@pytest.mark.long
def test_an_executor_that_dies_loses_and_repeats_no_message(
    spark: SparkSession, rabbitmq: RabbitServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    queues = Queues(tmp_path, rabbitmq, postgres, spark, EVERY_BROKER)
    queues.prepare()
    every = queues.queries()
    with Driver(tmp_path / "driver.log", "local-cluster[2,1,1024]") as driver:
        driver.bring(every, "reached")
        os.kill(executors(driver.jvm)[0].pid, signal.SIGKILL)
        driver.release()
        driver.see(every)
        assert driver.end() == 0
    queues.conclude()
    assert queues.verdicts == dict.fromkeys(queues.verdicts, "")
