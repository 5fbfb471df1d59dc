"""The crash suite with all homes in a grid, of which members are killed too; no query has a directory for its home."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from sparkjet_grid.access import Access
from sparkjet_grid.client import PATIENCE
from sparkjet_grid.embedded import client_of
from sparkjet_grid.map_reader import Map
from sparkjet_grid.map_store import MapStore
from sparkjet_grid.places import MapPlace
from tests.crash import test_random_kills
from tests.crash.drivers import Query, Victim
from tests.crash.farm import FAULTS, SERVER, Crash, Farm, Suite
from tests.crash.farmed import test_artemis, test_fencing, test_kafka, test_postgres, test_queues
from tests.crash.farmed.test_steps import SEED, Steps, every_crash
from tests.crash.feeds import write_skewed
from tests.crash.homes import homes_in, store
from tests.crash.invariants import check, difference
from tests.crash.outputs import map_of
from tests.crash.readers import arrow_rows, listed, result_rows
from tests.grid.processes import GridProcesses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.artemis import ArtemisServer
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer
    from tests.servers.rabbitmq import RabbitServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SOME = [
    Crash(EpochPhase.SAVE, "both", "sums"),
    Crash(EpochPhase.DECIDE, "both", "sums-ahead"),
]
"""The machine of a driver and of a member goes, at the phases in which a home is written."""

MAPS = [Crash(step, "both", "map") for step in (EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.COMMITTING)]
"""The same with a map as output: before, at and after the decision."""
FILES = 4


class Maps(Suite):
    """Each query has its own map, beside its files."""

    def prepare(self) -> None:
        write_skewed(self.root / "feed", SEED, 0, FILES)

    def judge(self, name: str, query: Query) -> None:
        place, rules = query.place, query.rules.rules
        check(place, query.rules, batches=FILES, closings=[FILES], swept=False)
        ends = 2 + len(rules.keys)
        rows = Counter({row: n for row, n in result_rows(listed(place.out), rules).items() if None not in row[:ends]})
        location = store()
        assert location is not None
        with client_of(location, Access(), PATIENCE) as client:
            found = arrow_rows(Map("", map_of(place), client=client).scan().read_all(), rules)
            assert found == rows, difference("the map", found, rows)
            kept = MapStore(client, MapPlace(map_of(place)))
            versions = [kept.at(number) for number in kept.numbers()]
            named = {held.name for version in versions if version is not None for held in version.held()}
            left = {held.name for held in client.entries(kept.place.layers())} - named
        assert left == set(), f"layers are left that no version names: {left}"


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


def crashed(root: Path, suites: Sequence[Suite], losses: Losses | None = None) -> None:
    """Crash suites, and assert that nothing was wrong and that no query has a home in a directory."""
    Farm(root, suites, losses or (lambda: None)).crash()
    for suite in suites:
        assert suite.verdicts == dict.fromkeys(suite.verdicts, "")
    no_home(root)


def test_a_machine_with_driver_and_member_that_goes_loses_and_repeats_nothing(
    grid: GridProcesses, tmp_path: Path
) -> None:
    crashed(tmp_path, [Steps(tmp_path / "steps", SOME, (), again=False)], Losses(grid))


@pytest.mark.long
@pytest.mark.parametrize("victim", Victim)
def test_every_crash_loses_and_repeats_nothing(grid: GridProcesses, tmp_path: Path, victim: Victim) -> None:
    crashes = [each for each in every_crash() if each.fault == victim.value]
    crashed(tmp_path, [Steps(tmp_path / "steps", crashes)], Losses(grid))


@pytest.mark.long
def test_a_machine_that_goes_leaves_maps_whole(grid: GridProcesses, tmp_path: Path) -> None:
    crashed(tmp_path, [Maps(tmp_path / "maps", MAPS)], Losses(grid))


@pytest.mark.long
def test_every_crash_leaves_maps_whole(grid: GridProcesses, tmp_path: Path) -> None:
    faults = [fault for fault in FAULTS if fault != SERVER]
    crashes = [Crash(step, fault, "map") for step in EpochPhase for fault in faults]
    crashed(tmp_path, [Maps(tmp_path / "every", crashes)], Losses(grid))


@pytest.mark.long
@pytest.mark.parametrize("first", [100, 200])
def test_random_kills_lose_and_repeat_nothing(grid: GridProcesses, tmp_path: Path, first: int) -> None:
    verdicts = test_random_kills.run(tmp_path, ["flights", "visits"], range(first, first + 3), Losses(grid))
    assert verdicts == {each: [] for each in verdicts}
    no_home(tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("grid")
def test_crashes_with_servers_lose_and_repeat_nothing(
    spark: SparkSession,
    postgres: PostgresServer,
    kafka: KafkaServer,
    rabbitmq: RabbitServer,
    artemis: ArtemisServer,
    tmp_path: Path,
) -> None:
    """Drivers that were paused change nothing either."""
    topics = list(dict.fromkeys([*test_kafka.SOME, *test_kafka.MORE]))
    queues = [*test_queues.EVERY_STEP, *test_queues.INTO]
    suites = [
        test_fencing.Fencing(tmp_path / "fencing", test_fencing.EVERY_PAUSE),
        test_postgres.suite(tmp_path / "postgres", postgres),
        test_kafka.Topics(tmp_path / "kafka", kafka, topics),
        test_queues.Queues(tmp_path / "queues", rabbitmq, postgres, spark, queues),
        test_artemis.ArtemisQueues(tmp_path / "artemis", artemis),
    ]
    crashed(tmp_path, suites)
