"""The flights job, and sessions with windows over them, killed at random moments from printed seeds."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.flights_feed import Slices, write_feed
from tests.crash.drivers import Driver, Query, Victim
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check, same_epochs
from tests.crash.jobs import AHEAD

pytestmark = [pytest.mark.crash, pytest.mark.long, pytest.mark.timeout(3600)]

FLIGHTS = Slices(days=2, backlog=0, live_days=2, live=6)
FILES = {"flights": FLIGHTS.files, "visits": 6}
"""Number of files in the feed of each job."""
MOST_KILLS = 3
LONGEST_DELAY = 12.0
"""Seconds from the start of a driver's queries to the kill; less than they need when they run concurrently."""


@dataclass(frozen=True)
class Plan:
    """A seed, which determines how often the driver of its query is killed."""

    job: str
    seed: int

    @property
    def kills(self) -> int:
        """One to three."""
        return random.Random(self.seed).randint(1, MOST_KILLS)

    def query(self, root: Path) -> Query:
        """Its query, in separate directories; every other seed has overlapping epochs."""
        name = f"{self.job}-{self.seed}"
        return Query(name, self.job + AHEAD * (self.seed % 2), str(root / name), str(root / f"{self.job}-feed"))


def run(
    root: Path, jobs: Sequence[str], seeds: Sequence[int], beside: Callable[[], None] = lambda: None
) -> dict[tuple[str, int], list[str]]:
    """Kill and restart until every seed has had its kills, run to the end, and check; verdicts by job and seed.

    The queries of the seeds share drivers, as starting a driver costs more than a query does: the first kill is the
    first of all seeds, the second that of those with two, and so on. Moment and victim come from the first seed. The
    next driver is ready when its predecessor is killed, and takes over while that is still dying. ``beside`` happens
    just before each kill.
    """
    write_feed(root / "flights-feed", FLIGHTS)
    write_skewed(root / "visits-feed", seeds[0], 0, FILES["visits"])
    chance = random.Random(seeds[0])
    plans = [Plan(job, seed) for job in jobs for seed in seeds]
    whole = {job: Query(f"whole-{job}", job, str(root / f"whole-{job}"), str(root / f"{job}-feed")) for job in jobs}
    rounds = [[plan.query(root) for plan in plans if plan.kills >= n] for n in range(1, MOST_KILLS + 1)]
    with ExitStack() as stack:
        dying: list[tuple[Driver, Sequence[Query]]] = []
        driver = stack.enter_context(Driver(root / "driver-1.log"))
        for number, queries in enumerate(filter(None, rounds), 1):
            following = stack.enter_context(Driver(root / f"driver-{number + 1}.log"))
            following.wait("ready")
            driver.start(queries)
            _kill(driver, chance, number, beside)
            dying.append((driver, queries))
            driver = following
        queries = [*whole.values(), *(plan.query(root) for plan in plans)]
        _to_the_end(driver, queries)
        for dead, its in dying:
            _is_gone(dead, its)
        # Once more, to remove the orphans of drivers that were dying beside their successors.
        driver.forget()
        _to_the_end(driver, queries)
        assert driver.end() == 0
    verdicts: dict[tuple[str, int], list[str]] = {(plan.job, plan.seed): [] for plan in plans}
    for plan in plans:
        query = plan.query(root)
        try:
            check(query.place, query.rules, batches=FILES[plan.job], closings=[FILES[plan.job]])
            same_epochs(query.place, whole[plan.job].place, query.rules)
        except AssertionError as error:
            verdicts[plan.job, plan.seed].append(str(error))
    print(f"{list(jobs)}, seeds {list(seeds)}: kills {[plan.kills for plan in plans[: len(seeds)]]}")  # noqa: T201
    return verdicts


def _kill(driver: Driver, chance: random.Random, number: int, beside: Callable[[], None]) -> None:
    """Kill a driver at a random moment, possibly while its queries recover."""
    victim, delay = chance.choice(list(Victim)), chance.uniform(0.0, LONGEST_DELAY)
    threading.Event().wait(delay)
    reached = driver.ended()
    beside()
    driver.kill(victim)
    print(f"\nkill {number}: {victim.value} after {delay:.1f} s, {len(reached)} queries had ended", end=" ")  # noqa: T201


def _is_gone(driver: Driver, queries: Sequence[Query]) -> None:
    """Python ends by itself when its JVM was killed, and vice versa."""
    if driver.python_lives():
        driver.results(queries)
        driver.end()
    driver.gone()


def _to_the_end(driver: Driver, queries: Sequence[Query]) -> None:
    driver.start(queries)
    failed = {name: error for name, error in driver.results(queries).items() if error is not None}
    assert not failed


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], list[str]]:
    return run(tmp_path_factory.mktemp("random"), list(FILES), SEEDS)


SEEDS = (7, 8, 10)
"""Seeds with two kills, with one and with three."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("job", FILES)
def test_random_kills_lose_and_repeat_nothing(some: dict[tuple[str, int], list[str]], job: str, seed: int) -> None:
    assert some[job, seed] == []


@pytest.mark.parametrize(
    ("job", "first"),
    [("flights", first) for first in range(100, 150, 5)] + [("visits", first) for first in range(200, 230, 5)],
)
def test_many_runs_lose_and_repeat_nothing(tmp_path: Path, job: str, first: int) -> None:
    verdicts = run(tmp_path, [job], range(first, first + 5))
    assert verdicts == {seed: [] for seed in verdicts}
