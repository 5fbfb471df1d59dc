"""Queries from and into Kafka through Spark: drivers and the broker killed at the phases of an epoch."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from tests.crash.delivered import check_topic
from tests.crash.drivers import Driver, Query, Victim
from tests.crash.feeds import skewed_batches, write_skewed
from tests.crash.invariants import check, check_files, same_epochs
from tests.crash.jobs import AHEAD
from tests.crash.readers import listed, result_rows
from tests.crash.topics import Topic

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3000)]

SEED = 2011
FILES = 4
KILLED_IN = 3
FAULTS = (*(victim.value for victim in Victim), "zombie", "broker")
NEAR = (EpochPhase.SAVE, EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.COMMITTING, EpochPhase.COMMIT)


INTO = ("topic", "rows-topic")


@dataclass(frozen=True)
class Crash:
    """A crash: the jobs in ``INTO`` are from files into files and Kafka, ``source`` is from Kafka into files."""

    step: EpochPhase
    fault: str
    job: str = "topic"

    @property
    def name(self) -> str:
        return f"{self.step.value}-{self.fault}-{self.job}"

    def query(self, root: Path) -> Query:
        return Query(self.name, self.job, str(root / self.name), str(root / "feed"), self.step.name, KILLED_IN)


SOME = [
    Crash(EpochPhase.PREPARE, "both"),
    Crash(EpochPhase.DECIDE, "both"),
    Crash(EpochPhase.COMMITTING, "jvm"),
    Crash(EpochPhase.ADVANCE, "both", "source"),
    Crash(EpochPhase.DECIDE, "jvm", "source"),
    Crash(EpochPhase.SAVE, "both", "source-ahead"),
    Crash(EpochPhase.DECIDE, "both", "rows-topic"),
    Crash(EpochPhase.COMMITTING, "jvm", "rows-topic"),
]
"""Faults of the driver only, of two kinds: each kind needs a separate driver."""
MORE = [Crash(NEAR[(n + turn) % 5], fault) for turn in (0, 2) for n, fault in enumerate(FAULTS)]
"""Every fault twice, every phase around the decision twice."""
ALL = [
    *(Crash(step, fault, job) for job, step, fault in product(INTO, EpochPhase, FAULTS)),
    *(Crash(step, fault, f"source{AHEAD * (n % 2)}") for n, (step, fault) in enumerate(product(EpochPhase, FAULTS))),
]


class Crashes:
    """Runs crashes: one driver for each fault, one successor for all; ``verdicts`` has what was wrong, by name."""

    def __init__(self, server: KafkaServer, root: Path, crashes: list[Crash]) -> None:
        self._server = server
        self._root = root
        self._topic = Topic(server)
        self._whole = Query("whole", "source", str(root / "whole"), str(root / "feed"))
        self._prepare(self._whole)
        for crash in crashes:
            self._prepare(crash.query(root))
        write_skewed(root / "feed", SEED, 0, FILES)
        for batch in skewed_batches(SEED, FILES):
            self._topic.send(batch)
        self._topic.flush()
        self._run({fault: [each.query(root) for each in crashes if each.fault == fault] for fault in FAULTS})
        self.verdicts = {crash.name: self._judge(crash.query(root)) for crash in crashes}
        self.verdicts["whole"] = self._judge(self._whole)

    def _prepare(self, query: Query) -> None:
        """What a query needs to know of the broker."""
        place = query.place
        place.history.mkdir(parents=True)
        if query.job in INTO:
            given = {f"kafka.{name}": value for name, value in self._server.client().items()}
            sink = {**given, "topic": self._server.topic(partitions=2), "kafka.log_level": "0"}
            (place.root / "kafka.json").write_text(json.dumps(sink))
        else:
            source = self._topic.options(maxOffsetsPerTrigger="40")
            (place.root / "source.json").write_text(json.dumps(source))

    def _run(self, by_fault: dict[str, list[Query]]) -> None:
        """Crash, recover, run to the end."""
        with ExitStack() as stack:
            successor = stack.enter_context(Driver(self._root / "successor.log"))
            if by_fault["broker"]:
                successor.bring(by_fault["broker"], "reached")
                self._server.restart()
                successor.release()
                successor.see(by_fault["broker"])
            successor.bring([self._whole])
            for victim in Victim:
                if queries := by_fault[victim.value]:
                    _kill(stack.enter_context(Driver(self._root / f"{victim.value}.log")), victim, queries, successor)
            if by_fault["zombie"]:
                _pause(stack.enter_context(Driver(self._root / "zombie.log")), by_fault["zombie"], successor)
            assert successor.end() == 0

    def _judge(self, query: Query) -> str:
        """What is wrong with the files, with the topic, or with what is left open; empty if nothing is."""
        place, rules = query.place, query.rules.rules
        try:
            if query.job in INTO:
                check(place, query.rules, batches=FILES, closings=[FILES], swept=False)
                check_topic(self._server, place, result_rows(listed(place.out), rules))
            else:
                batches = self._topic.batches(place)
                assert len(batches) >= KILLED_IN
                rules = replace(rules, listed=self._topic.substreams)
                check_files(place, rules, batches, self._topic.sent, [len(batches)])
                same_epochs(place, self._whole.place, query.rules)
        except AssertionError as error:
            return str(error) or repr(error)
        return ""


def _pause(zombie: Driver, queries: list[Query], successor: Driver) -> None:
    """A driver is paused while another one does its work, and notices it."""
    zombie.bring(queries, "reached")
    zombie.suspend()
    successor.bring(_calm(queries))
    zombie.resume()
    zombie.release()
    for name, error in zombie.results(queries).items():
        assert error is not None, name
        assert error.startswith("FencedError"), error
    zombie.end()
    successor.forget()
    successor.bring(_calm(queries))


def _kill(driver: Driver, victim: Victim, queries: list[Query], successor: Driver) -> None:
    driver.bring(queries, "reached")
    driver.kill(victim)
    if victim is Victim.BOTH:
        driver.gone()
    # Otherwise at once: the surviving part of the old driver runs beside the new one.
    calm = _calm(queries)
    successor.start(calm)
    if victim is Victim.JVM:
        driver.release()
        driver.results(queries)
        driver.end()
    driver.gone()
    successor.see(calm)


def _calm(queries: list[Query]) -> list[Query]:
    return [replace(query, block_at=None) for query in queries]


@pytest.fixture(scope="module")
def some(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return Crashes(kafka, tmp_path_factory.mktemp("some"), SOME).verdicts


@pytest.fixture(scope="module")
def more(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return Crashes(kafka, tmp_path_factory.mktemp("more"), MORE).verdicts


@pytest.fixture(scope="module")
def every(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return Crashes(kafka, tmp_path_factory.mktemp("every"), ALL).verdicts


@pytest.mark.parametrize("crash", SOME, ids=lambda crash: crash.name)
def test_a_crash_loses_and_repeats_nothing(some: dict[str, str], crash: Crash) -> None:
    assert some[crash.name] == ""


def test_the_uninterrupted_run_is_right(some: dict[str, str]) -> None:
    assert some["whole"] == ""


@pytest.mark.long
@pytest.mark.parametrize("crash", MORE, ids=lambda crash: crash.name)
def test_more_crashes_lose_and_repeat_nothing(more: dict[str, str], crash: Crash) -> None:
    assert more[crash.name] == ""


@pytest.mark.long
@pytest.mark.parametrize("crash", ALL, ids=lambda crash: crash.name)
def test_every_crash_loses_and_repeats_nothing(every: dict[str, str], crash: Crash) -> None:
    assert every[crash.name] == ""
