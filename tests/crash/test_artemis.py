"""Queries into Artemis through Spark: drivers and the broker killed at the phases of an epoch."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from tests.crash.drivers import Driver, Query, Victim
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check, difference
from tests.crash.readers import listed, result_rows
from tests.servers.artemis import PASSWORD, USER

if TYPE_CHECKING:
    from tests.servers.artemis import ArtemisServer

pytestmark = [pytest.mark.crash, pytest.mark.long, pytest.mark.timeout(3000)]

SEED = 2009
FILES = 4
KILLED_IN = 3


@dataclass(frozen=True)
class Crash:
    """A crash: of a part of the driver, of the broker, or a driver that stands still while another does its work."""

    step: EpochPhase
    fault: str

    @property
    def name(self) -> str:
        return f"{self.step.value}-{self.fault}"

    def query(self, root: Path) -> Query:
        return Query(self.name, "queue", str(root / self.name), str(root / "feed"), self.step.name, KILLED_IN)


NEAR = (EpochPhase.SAVE, EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.COMMITTING, EpochPhase.COMMIT)
FAULTS = ("both", "jvm", "zombie", "broker")
CRASHES = [Crash(step, fault) for step in NEAR for fault in FAULTS]


class Crashes:
    """Runs crashes: one driver for each fault, one successor for all; ``verdicts`` has what was wrong, by name."""

    def __init__(self, server: ArtemisServer, root: Path, crashes: list[Crash]) -> None:
        self._server, self._root = server, root
        for crash in crashes:
            place = crash.query(root).place
            place.root.mkdir()
            options = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD}
            chosen = {"queue": server.queue(), "maxMessagesPerTransaction": 5}
            (place.root / "artemis.json").write_text(json.dumps({**options, **chosen}))
        write_skewed(root / "feed", SEED, 0, FILES)
        self._run({fault: [each.query(root) for each in crashes if each.fault == fault] for fault in FAULTS})
        self.verdicts = {crash.name: self._judge(crash.query(root)) for crash in crashes}

    def _run(self, by_fault: dict[str, list[Query]]) -> None:
        with ExitStack() as stack:
            successor = stack.enter_context(Driver(self._root / "successor.log"))
            successor.bring(by_fault["broker"], "reached")
            self._server.restart()
            successor.release()
            successor.see(by_fault["broker"])
            for victim in (Victim.BOTH, Victim.JVM):
                driver = stack.enter_context(Driver(self._root / f"{victim.value}.log"))
                driver.bring(by_fault[victim.value], "reached")
                driver.kill(victim)
                if victim is Victim.BOTH:
                    driver.gone()
                successor.start(_calm(by_fault[victim.value]))
                if victim is Victim.JVM:
                    driver.release()
                    driver.results(by_fault[victim.value])
                    driver.end()
                driver.gone()
                successor.see(_calm(by_fault[victim.value]))
            zombie = stack.enter_context(Driver(self._root / "zombie.log"))
            zombie.bring(by_fault["zombie"], "reached")
            zombie.suspend()
            successor.bring(_calm(by_fault["zombie"]))
            zombie.resume()
            zombie.release()
            for name, error in zombie.results(by_fault["zombie"]).items():
                assert error is not None, name
                assert error.startswith("FencedError"), error
            zombie.end()
            assert successor.end() == 0

    def _judge(self, query: Query) -> str:
        """What is wrong with the files or with the queue; empty if nothing is."""
        place = query.place
        queue = json.loads((place.root / "artemis.json").read_text())["queue"]
        try:
            check(place, query.rules, batches=FILES, closings=[FILES], swept=False)
            with self._server.client() as client:
                messages = client.read(queue, self._server.count(queue))
            found = Counter(tuple(json.loads(message.body).values()) for message in messages)
            rows = result_rows(listed(place.out), query.rules.rules)
            assert found == rows, difference("the queue", found, rows)
        except AssertionError as error:
            return str(error) or repr(error)
        return ""


def _calm(queries: list[Query]) -> list[Query]:
    return [replace(query, block_at=None) for query in queries]


@pytest.fixture(scope="module")
def verdicts(artemis: ArtemisServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return Crashes(artemis, tmp_path_factory.mktemp("crashes"), CRASHES).verdicts


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.name)
def test_a_crash_loses_and_repeats_nothing(verdicts: dict[str, str], crash: Crash) -> None:
    assert verdicts[crash.name] == ""
