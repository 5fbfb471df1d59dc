"""Queries into Kafka and files at once through Spark: drivers and the broker killed at the steps of an epoch."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import Step
from sparkjet.sinks.kafka.access import Access
from sparkjet.sinks.kafka.cluster import Cluster
from tests.crash.drivers import Driver, Query, Victim
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check
from tests.crash.readers import listed, newest_record, result_rows
from tests.protocol.kafka.checks import committed, held_back

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

pytestmark = [pytest.mark.crash, pytest.mark.long, pytest.mark.timeout(3000)]

SEED = 2011
FILES = 4
KILLED_IN = 3
FAULTS = (*(victim.value for victim in Victim), "zombie", "broker")
NEAR = (Step.SAVED, Step.PREPARED, Step.DECIDED, Step.COMMITTING, Step.COMMITTED)


@dataclass(frozen=True)
class Crash:
    """What happens where."""

    step: Step
    fault: str

    @property
    def name(self) -> str:
        return f"{self.step.value}-{self.fault}"

    def query(self, root: Path) -> Query:
        return Query(self.name, "topic", str(root / self.name), str(root / "feed"), self.step.name, KILLED_IN)


FEW = [Crash(NEAR[(n + turn) % 5], fault) for turn in (0, 2) for n, fault in enumerate(FAULTS)]
"""Every fault twice, every step about the decision twice."""
ALL = [Crash(step, fault) for step, fault in product(Step, FAULTS)]


def run(server: KafkaServer, root: Path, crashes: list[Crash]) -> dict[str, str]:
    """Crash, recover, run to the end; by name what was wrong with the output."""
    for crash in crashes:
        (root / crash.name).mkdir()
        given = {f"kafka.{name}": value for name, value in server.client().items()}
        place = {**given, "topic": server.topic(partitions=2), "kafka.log_level": "0"}
        (root / crash.name / "kafka.json").write_text(json.dumps(place))
    write_skewed(root / "feed", SEED, 0, FILES)
    by_fault = {fault: [each.query(root) for each in crashes if each.fault == fault] for fault in FAULTS}
    with ExitStack() as stack:
        successor = stack.enter_context(Driver(root / "successor.log"))
        successor.start(by_fault["broker"])
        successor.wait("reached", [query.name for query in by_fault["broker"]])
        server.restart()
        successor.release()
        _succeed(successor, by_fault["broker"])
        for victim in Victim:
            _kill(stack.enter_context(Driver(root / f"{victim.value}.log")), victim, by_fault[victim.value], successor)
        with Driver(root / "zombie.log") as zombie:
            queries = by_fault["zombie"]
            zombie.start(queries)
            zombie.wait("reached", [query.name for query in queries])
            zombie.suspend()
            _again(successor, queries)
            zombie.resume()
            zombie.release()
            for name, error in zombie.results(queries).items():
                assert error is not None, name
                assert error.startswith("FencedError"), error
            zombie.end()
            successor.forget()
            _again(successor, queries)
        assert successor.end() == 0
    return {crash.name: judge(server, crash.query(root)) for crash in crashes}


def _kill(driver: Driver, victim: Victim, queries: list[Query], successor: Driver) -> None:
    driver.start(queries)
    driver.wait("reached", [query.name for query in queries])
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


def _again(successor: Driver, queries: list[Query]) -> None:
    successor.start([replace(query, block_at=None) for query in queries])
    _succeed(successor, queries)


def _succeed(successor: Driver, queries: list[Query]) -> None:
    assert set(successor.results(queries).values()) <= {None}


def judge(server: KafkaServer, query: Query) -> str:
    """What is wrong with the files, with the topic, or with what is left open; nothing if all is well."""
    topic = json.loads((Path(query.root) / "kafka.json").read_text())["topic"]
    try:
        check(query.place, query.rules, batches=FILES, closings=[FILES], swept=False)
        files = result_rows(listed(query.place.out), query.rules.rules)
        found = Counter(tuple(json.loads(message.value()).values()) for message in committed(server, topic))
        assert found == files
        with Cluster(Access.of(server.client())) as cluster:
            assert cluster.open_transactions(f"sparkjet/{newest_record(query.place).query}/") == []
        assert held_back(server, topic) == 0
    except AssertionError as error:
        return str(error) or repr(error)
    return ""


@pytest.fixture(scope="module")
def few(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run(kafka, tmp_path_factory.mktemp("few"), FEW)


@pytest.fixture(scope="module")
def every(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run(kafka, tmp_path_factory.mktemp("every"), ALL)


@pytest.mark.parametrize("crash", FEW, ids=lambda crash: crash.name)
def test_a_crash_loses_and_repeats_nothing(few: dict[str, str], crash: Crash) -> None:
    assert few[crash.name] == ""


@pytest.mark.parametrize("crash", ALL, ids=lambda crash: crash.name)
def test_every_crash_loses_and_repeats_nothing(every: dict[str, str], crash: Crash) -> None:
    assert every[crash.name] == ""
