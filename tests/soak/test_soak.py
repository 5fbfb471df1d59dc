"""A stream into PostgreSQL and files at once, its driver killed again and again, the server too."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.drivers import Driver, Query, Victim
from tests.crash.feeds import write_skewed
from tests.crash.readers import newest_record
from tests.crash.test_postgres import judge

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SEED = 20261121
PATIENCE = 300.0
LONG = 20 * 60.0
KILL_AFTER = (20.0, 60.0)
"""Seconds between two kills of the driver, at least and at most."""
SERVER_KILLS = 3


@dataclass
class Soak:
    """One query over a feed that grows, in one driver after the other."""

    root: Path
    server: PostgresServer
    files: int = 0
    drivers: int = 0
    restarts: int = 0
    pause: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.query = Query("soak", "prepared", str(self.root / "soak"), str(self.root / "feed"), until_end=False)
        (self.root / "soak").mkdir()
        (self.root / "soak" / "dsn").write_text(self.server.database(f"t{uuid.uuid4().hex}"))

    @contextmanager
    def driver(self) -> Iterator[Driver]:
        """A driver that runs the query."""
        self.drivers += 1
        with Driver(self.root / f"driver-{self.drivers}.log") as driver:
            self.start(driver)
            yield driver

    def start(self, driver: Driver) -> None:
        """Start the query in a driver; again, where the server was away."""
        while True:
            driver.forget()
            driver.start([self.query])
            started = driver.wait_any(("started", "ended"))
            if started == "started":
                return
            self.restarts += 1
            assert self.restarts < 100, driver.tail()

    def grow(self) -> None:
        """Add a file."""
        write_skewed(self.root / "feed", SEED, self.files, self.files + 1)
        self.files += 1

    def until_epoch_after(self, epoch: int, driver: Driver) -> None:
        """Feed until a later epoch has been decided, starting the query again if it has ended."""
        began = time.monotonic()
        while self.epoch <= epoch:
            assert time.monotonic() - began < PATIENCE, driver.tail()
            self.step(driver)

    def step(self, driver: Driver) -> None:
        """Grow the feed when it has been read so far; look after the query."""
        if self.epoch >= self.files - 1:
            self.grow()
        if driver.ended():
            self.restarts += 1
            self.start(driver)
        self.pause.wait(0.2)

    @property
    def epoch(self) -> int:
        """The newest epoch that is decided."""
        try:
            return newest_record(self.query.place).epoch
        except (AssertionError, FileNotFoundError):
            return 0

    def finish(self) -> str:
        """Run to the end of the feed; what is wrong then."""
        with Driver(self.root / "last.log") as driver:
            last = [replace(self.query, until_end=True)]
            driver.start(last)
            assert set(driver.results(last).values()) == {None}
            assert driver.end() == 0
        print(  # noqa: T201 - figures
            f"\nsoak: {self.files} files, {self.epoch} epochs, {self.drivers} drivers, {self.restarts} restarts"
        )
        return judge(self.server, self.query, self.files)


def test_a_kill_of_each(postgres: PostgresServer, tmp_path: Path) -> None:
    soak = Soak(tmp_path, postgres)
    soak.grow()
    with soak.driver() as first:
        soak.until_epoch_after(1, first)
        first.kill(Victim.BOTH)
        first.gone()
    with soak.driver() as second:
        soak.until_epoch_after(soak.epoch, second)
        postgres.kill()
        soak.grow()
        postgres.start()
        soak.until_epoch_after(soak.epoch + 1, second)
        second.kill(Victim.JVM)
    assert soak.finish() == ""


@pytest.mark.long
def test_twenty_minutes_of_kills(postgres: PostgresServer, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"\nseed {SEED}")  # noqa: T201 - to run it again
    soak = Soak(tmp_path, postgres)
    soak.grow()
    began = time.monotonic()
    server_kills = [LONG * (n + 1) / (SERVER_KILLS + 1) for n in range(SERVER_KILLS)]
    while time.monotonic() - began < LONG:
        with soak.driver() as driver:
            ends = time.monotonic() + chance.uniform(*KILL_AFTER)
            while time.monotonic() < ends:
                soak.step(driver)
                if server_kills and time.monotonic() - began > server_kills[0]:
                    server_kills.pop(0)
                    postgres.kill()
                    postgres.start()
            driver.kill(chance.choice(list(Victim)))
    assert not server_kills
    assert soak.finish() == ""
