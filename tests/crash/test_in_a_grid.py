"""The crash suite with all homes in a grid, of which members are killed too; no query has a directory for its home."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from tests.crash import test_artemis, test_fencing, test_kafka, test_postgres, test_queues, test_random_kills
from tests.crash.drivers import Victim
from tests.crash.homes import homes_in
from tests.crash.test_steps import Crash, Crashes, every_crash
from tests.grid.processes import GridProcesses

if TYPE_CHECKING:
    from tests.servers.artemis import ArtemisServer
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer
    from tests.servers.rabbitmq import RabbitServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

JOBS = "sums", "sums-ahead"
SOME = [Crash(step, Victim.BOTH, closing=False, job=JOBS[n % len(JOBS)]) for n, step in enumerate(EpochPhase)]
"""The machine of a driver and of a member goes, at every phase."""


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridProcesses]:
    folder = tmp_path_factory.mktemp("grid")
    with GridProcesses(folder) as grid, homes_in(grid, folder):
        yield grid


class Losses:
    """Members that are killed, one after the other in the order of the grid; each must be replaced before the next."""

    def __init__(self, grid: GridProcesses) -> None:
        self._grid = grid
        self._numbers = cycle(range(len(grid.members)))

    def __call__(self) -> None:
        """Kill a member; one that was killed before is replaced first, at the address that queries know."""
        grid = self._grid
        for member in [each for each in grid.members if each.process.poll() is not None]:
            grid.replace(member)
        grid.settle()
        grid.members[next(self._numbers)].kill()


def no_home(root: Path) -> None:
    """Assert that no query has made a directory for its home."""
    assert not list(root.rglob("snapshots"))


def test_a_machine_with_driver_and_member_that_goes_loses_and_repeats_nothing(
    grid: GridProcesses, tmp_path: Path
) -> None:
    crashes = Crashes(tmp_path, SOME, Losses(grid))
    crashes.run()
    assert crashes.verdicts == {}
    no_home(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("victim", Victim)
def test_every_crash_loses_and_repeats_nothing(grid: GridProcesses, tmp_path: Path, victim: Victim) -> None:
    crashes = Crashes(tmp_path, [crash for crash in every_crash() if crash.victim is victim], Losses(grid))
    crashes.run()
    assert crashes.verdicts == {}
    no_home(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("first", [100, 200])
def test_random_kills_lose_and_repeat_nothing(grid: GridProcesses, tmp_path: Path, first: int) -> None:
    verdicts = test_random_kills.run(tmp_path, ["flights", "visits"], range(first, first + 3), Losses(grid))
    assert verdicts == {each: [] for each in verdicts}
    no_home(tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("grid")
def test_drivers_that_were_paused_change_nothing(tmp_path: Path) -> None:
    for zombie in test_fencing.resumed(tmp_path).values():
        assert zombie.error is not None
        assert zombie.error.startswith("FencedError"), zombie.error
        assert zombie.after == zombie.before
        assert zombie.verdicts == []
    no_home(tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("grid")
def test_crashes_with_a_table_lose_and_repeat_nothing(postgres: PostgresServer, tmp_path: Path) -> None:
    verdicts = test_postgres.run(postgres, tmp_path, test_postgres.some_crashes())
    assert verdicts == dict.fromkeys(verdicts, "")
    no_home(tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("grid")
def test_crashes_with_topics_lose_and_repeat_nothing(kafka: KafkaServer, tmp_path: Path) -> None:
    verdicts = test_kafka.Crashes(kafka, tmp_path, list(dict.fromkeys([*test_kafka.SOME, *test_kafka.MORE]))).verdicts
    assert verdicts == dict.fromkeys(verdicts, "")
    no_home(tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("grid", "spark")
def test_crashes_with_queues_of_rabbitmq_lose_and_repeat_nothing(
    rabbitmq: RabbitServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    test_queues.run(rabbitmq, postgres, tmp_path, [*test_queues.SOME, *test_queues.INTO])
    no_home(tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("grid")
def test_crashes_with_queues_of_artemis_lose_and_repeat_nothing(artemis: ArtemisServer, tmp_path: Path) -> None:
    verdicts = test_artemis.Crashes(artemis, tmp_path, test_artemis.CRASHES).verdicts
    assert verdicts == dict.fromkeys(verdicts, "")
    no_home(tmp_path)
