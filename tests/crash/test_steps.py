"""Drivers killed between the phases of an epoch: Python, its JVM or both, before and after the decision."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkjet import EpochPhase
from tests.crash.drivers import Driver, Query, Victim
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check, same_epochs
from tests.crash.jobs import AHEAD, Place
from tests.crash.readers import half_published

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

SEED = 20130101
FILES, MORE = 4, 1
KILLED_IN = 3
"""Epoch of the crash; the closing epoch follows the epochs of all files."""
WHOLE = ("sums", "stacks", "visits", "state", "joins", "rows")
JOBS = (
    *("sums", "joins", "visits-ahead", "state-ahead", "joins-ahead", "state"),
    *("stacks", "stacks-ahead", "visits", "sums-ahead", "joins", "state"),
)


@dataclass(frozen=True)
class Crash:
    """Where a driver dies."""

    step: EpochPhase
    victim: Victim
    closing: bool
    job: str

    @property
    def name(self) -> str:
        return f"{self.step.value}{'-closing' if self.closing else ''}-{self.victim.value}-{self.job}"

    @property
    def epoch(self) -> int:
        return FILES + 1 if self.closing else KILLED_IN


def rotation() -> list[Crash]:
    """Every phase once, and the closing epoch before, at and after its decision, each with a different victim."""
    victims, jobs = list(Victim) * 5, JOBS * 8
    steps = [(step, False) for step in EpochPhase] + [
        (EpochPhase.PREPARE, True),
        (EpochPhase.DECIDE, True),
        (EpochPhase.COMMITTING, True),
    ]
    windowless = zip((EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.COMMITTING), Victim, strict=True)
    return [
        *(Crash(step, victims[i], closing, jobs[i]) for i, (step, closing) in enumerate(steps)),
        *(Crash(step, victim, False, "rows") for step, victim in windowless),
    ]


def every_crash() -> list[Crash]:
    """Every phase of a batch's epoch and of the closing one with every victim; the jobs with windows take turns."""
    windowless = [Crash(step, victim, False, "rows") for step in EpochPhase for victim in Victim]
    return windowless + [
        Crash(step, victim, closing, JOBS[(i + j + closing) % len(JOBS)])
        for i, step in enumerate(EpochPhase)
        for j, victim in enumerate(Victim)
        for closing in (False, True)
    ]


class Crashes:
    """Runs crashes side by side: one driver for each kind of victim, one successor for all.

    Args:
        root: For the directories of all queries.
        crashes: Where their drivers die.
        beside: What else happens when one dies.
    """

    def __init__(self, root: Path, crashes: list[Crash], beside: Callable[[], None] = lambda: None) -> None:
        self.root = root
        self.crashes = crashes
        self.verdicts: dict[str, list[str]] = {}
        self.whole = {job: self._query(f"whole-{job}", job) for job in {_alone(crash.job) for crash in crashes}}
        self._beside = beside

    def query(self, crash: Crash) -> Query:
        return self._query(crash.name, crash.job, crash.step.name, crash.epoch)

    def run(self) -> None:
        """Crash, recover, run to the end; then more data and a second run."""
        self._write(0, FILES)
        began = time.monotonic()
        with ExitStack() as stack:
            successor = stack.enter_context(Driver(self.root / "successor.log"))
            dying = [victim for victim in Victim if self._group(victim)]
            victims = {v: stack.enter_context(Driver(self.root / f"{v.value}.log")) for v in dying}
            for victim, driver in victims.items():
                driver.start(self._group(victim))
            successor.start(list(self.whole.values()))
            for victim, driver in victims.items():
                self._crash(victim, driver, successor)
            self._end(successor, [FILES])
            print(f"\ncrashes: {len(self.crashes)} recovered after {time.monotonic() - began:.0f} s", end=" ")  # noqa: T201 - figures
            self._write(FILES, FILES + MORE)
            successor.start([*self.whole.values(), *map(self.query, self.crashes)])
            self._end(successor, [FILES, FILES + MORE])
            assert successor.end() == 0
        print(f"and run again after {time.monotonic() - began:.0f} s")  # noqa: T201 - figures

    def _crash(self, victim: Victim, driver: Driver, successor: Driver) -> None:
        group = self._group(victim)
        driver.see(group, "reached")
        for crash in self.crashes:
            if crash.victim is victim and crash.step is EpochPhase.COMMITTING:
                assert half_published(self.query(crash).place, crash.epoch)
        self._beside()
        driver.kill(victim)
        if victim is Victim.BOTH:
            driver.gone()
        # Otherwise at once: the surviving part of the old driver runs beside the new one.
        successor.start([Query(q.name, q.job, q.root, q.feed) for q in group])
        if victim is Victim.JVM:
            driver.release()
            driver.results(group)
            driver.end()
        driver.gone()

    def _end(self, successor: Driver, closings: list[int]) -> None:
        """Wait for all queries and check them."""
        queries = [*self.whole.values(), *map(self.query, self.crashes)]
        failed = {name: error for name, error in successor.results(queries).items() if error is not None}
        assert not failed
        successor.forget()
        for query in queries:
            try:
                check(query.place, query.rules, batches=closings[-1], closings=closings)
                same_epochs(query.place, self.whole[_alone(query.job)].place, query.rules)
            except AssertionError as error:
                self.verdicts.setdefault(query.name, []).append(f"run {len(closings)}: {error}")

    def _group(self, victim: Victim) -> list[Query]:
        return [self.query(crash) for crash in self.crashes if crash.victim is victim]

    def _query(self, name: str, job: str, block_at: str | None = None, epoch: int | None = None) -> Query:
        return Query(name, job, str(self.root / name), str(self.root / "feed"), block_at, epoch)

    def _write(self, first: int, upto: int) -> None:
        write_skewed(Place(self.root, self.root / "feed").feed, SEED, first, upto)


def _alone(job: str) -> str:
    """The same job without overlapping epochs."""
    return job.removesuffix(AHEAD)


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> Crashes:
    crashes = Crashes(tmp_path_factory.mktemp("rotated"), rotation())
    crashes.run()
    return crashes


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Crashes:
    crashes = Crashes(tmp_path_factory.mktemp("product"), every_crash())
    crashes.run()
    return crashes


@pytest.mark.parametrize("crash", rotation(), ids=lambda crash: crash.name)
def test_a_crash_loses_and_repeats_nothing(rotated: Crashes, crash: Crash) -> None:
    assert rotated.verdicts.get(crash.name, []) == []


@pytest.mark.parametrize("job", WHOLE)
def test_the_uninterrupted_run_is_right(rotated: Crashes, job: str) -> None:
    assert rotated.verdicts.get(f"whole-{job}", []) == []


@pytest.mark.long
@pytest.mark.parametrize("crash", every_crash(), ids=lambda crash: crash.name)
def test_every_crash_loses_and_repeats_nothing(product: Crashes, crash: Crash) -> None:
    assert product.verdicts.get(crash.name, []) == []
