"""Streams into PostgreSQL beside files or Kafka, their driver killed again and again, the servers too."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.drivers import Driver, Victim
from tests.soak.parts import FromFiles, Part, Through, newest

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.crash, pytest.mark.long, pytest.mark.timeout(3600)]

SEED = 20261121
PATIENCE = 300.0
LONG = 20 * 60.0
KILL_AFTER = (20.0, 60.0)
"""Seconds between two kills of the driver, at least and at most."""
SERVER_KILLS = 3
"""Of each server."""


def epoch(part: Part) -> int:
    """The newest epoch that is decided."""
    record = newest(part.query)
    return 0 if record is None else record.epoch


@dataclass
class Soak:
    """Queries over feeds that grow, side by side in one driver after the other."""

    root: Path
    parts: Sequence[Part]
    drivers: int = 0
    restarts: int = 0
    pause: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def driver(self) -> Iterator[Driver]:
        """A driver that runs the queries."""
        self.drivers += 1
        with Driver(self.root / f"driver-{self.drivers}.log") as driver:
            for part in self.parts:
                self.start(part, driver)
            yield driver

    def start(self, part: Part, driver: Driver) -> None:
        """Start a query in a driver; again, where a server was away."""
        while True:
            driver.forget(part.query.name)
            driver.start([part.query])
            if driver.wait_any(("started", "ended"), part.query.name) == "started":
                return
            self.restarts += 1
            assert self.restarts < 100, driver.tail()

    def go_on(self, driver: Driver) -> None:
        """Feed until every query has decided another epoch."""
        began = time.monotonic()
        before = [epoch(part) for part in self.parts]
        while any(epoch(part) <= number for part, number in zip(self.parts, before, strict=True)):
            assert time.monotonic() - began < PATIENCE, driver.tail()
            self.step(driver)

    def step(self, driver: Driver) -> None:
        """Grow the feeds; start queries again that have ended."""
        ended = driver.ended()
        for part in self.parts:
            part.grow(newest(part.query))
            if part.query.name in ended:
                self.restarts += 1
                self.start(part, driver)
        self.pause.wait(0.2)

    def finish(self) -> dict[str, str]:
        """Run to the end of the feeds; by query what is wrong then."""
        for part in self.parts:
            part.fed()
        with Driver(self.root / "last.log") as driver:
            driver.bring([replace(part.query, until_end=True) for part in self.parts])
            assert driver.end() == 0
        wrong = {part.query.name: part.judge() for part in self.parts}
        print(f"\nsoak: {self.drivers} drivers, {self.restarts} restarts", end="")  # noqa: T201 - figures
        for part in self.parts:
            print(f"; {part.query.name}: {epoch(part)} epochs, {part}", end="")  # noqa: T201 - figures
        return {name: what for name, what in wrong.items() if what}


def test_a_kill_of_each(kafka: KafkaServer, postgres: PostgresServer, tmp_path: Path) -> None:
    parts = (FromFiles(tmp_path, postgres, SEED), Through(tmp_path, kafka, postgres, SEED))
    soak = Soak(tmp_path, parts)
    with soak.driver() as driver:
        soak.go_on(driver)
        for server in (kafka, postgres):
            server.kill()
            soak.step(driver)
            server.start()
            soak.go_on(driver)
        driver.kill(Victim.BOTH)
        driver.gone()
    assert soak.finish() == {}


@pytest.mark.parametrize("source", ["files", "kafka"])
def test_twenty_minutes_of_kills(kafka: KafkaServer, postgres: PostgresServer, tmp_path: Path, source: str) -> None:
    chance = random.Random(SEED)
    print(f"\nseed {SEED}")  # noqa: T201 - to run it again
    part: Part
    servers: list[KafkaServer | PostgresServer]
    if source == "kafka":
        part, servers = Through(tmp_path, kafka, postgres, SEED), [kafka, postgres]
    else:
        part, servers = FromFiles(tmp_path, postgres, SEED), [postgres]
    soak = Soak(tmp_path, [part])
    began = time.monotonic()
    kills = servers * SERVER_KILLS
    due = [LONG * (n + 1) / (len(kills) + 1) for n in range(len(kills))]
    while time.monotonic() - began < LONG:
        with soak.driver() as driver:
            ends = time.monotonic() + chance.uniform(*KILL_AFTER)
            while time.monotonic() < ends:
                soak.step(driver)
                if due and time.monotonic() - began > due[0]:
                    due.pop(0)
                    server = kills.pop(0)
                    server.kill()
                    soak.step(driver)
                    server.start()
            driver.kill(chance.choice(list(Victim)))
    assert not kills
    assert soak.finish() == {}
