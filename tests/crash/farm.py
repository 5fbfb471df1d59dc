"""The crash farm: queries of several suites that are crashed together, as starting a driver costs more than a query."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from sparkjet import EpochPhase
from tests.crash.drivers import Driver, Query, Victim

ZOMBIE, SERVER = "zombie", "server"
FAULTS = (*(victim.value for victim in Victim), ZOMBIE, SERVER)
"""The process to kill (Python, its JVM, both, a server), or a driver to pause while another goes on."""
NEAR = (EpochPhase.SAVE, EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.COMMITTING, EpochPhase.COMMIT)
"""The phases around the decision."""


@dataclass(frozen=True)
class Crash:
    """Where something dies: at the end of which phase of which epoch of which job.

    Attributes:
        step: The phase; None for after the epoch, when Spark waits for input.
        fault: One of `FAULTS`.
        job: Name of the job.
        epoch: Number of the epoch.
        feed: The feed, below the directory of the suite.
    """

    step: EpochPhase | None
    fault: str
    job: str
    epoch: int = 3
    feed: str = "feed"

    @property
    def name(self) -> str:
        """Unique in its suite; also the name of a directory and, where the job has one, of a table."""
        parts = ["idle" if self.step is None else self.step.value, self.fault, self.job]
        return "-".join(parts if self.epoch == Crash.epoch else [*parts, str(self.epoch)])

    def query(self, root: Path) -> Query:
        """Its query, in directories of its own."""
        place, step = str(root / self.name), "IDLE" if self.step is None else self.step.name
        return Query(place, self.job, place, str(root / self.feed), step, self.epoch, until_end=self.step is not None)


@dataclass
class Suite:
    """Queries that are crashed for one reason, and what must be true of each at its end.

    The farm calls the methods in their order here; what a suite does not need does nothing.

    Attributes:
        root: Its directory.
        crashes: Its crashes.
        jobs: Jobs of queries that nothing happens to, to compare with.
        verdicts: What was wrong, by name of a crash, or of a job that nothing happens to.
    """

    root: Path
    crashes: Sequence[Crash]
    jobs: Sequence[str] = ()
    verdicts: dict[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """Before anything starts: feeds, topics, tables."""

    def restart(self) -> None:
        """Kill and start the server, while the queries with that fault block."""

    def reached(self, crashes: Collection[Crash]) -> None:
        """Some queries are where they are going to be killed or paused."""

    def paused(self) -> None:
        """The old driver of some queries stands still, and no other one has taken over."""

    def succeeded(self) -> None:
        """The queries of a driver that stands still have been run to the end by another one."""

    def noticed(self, errors: dict[str, str | None]) -> None:
        """The driver that stood still goes on, and its queries have ended; with these errors, by name of the crash."""
        for name, error in errors.items():
            assert error is not None, name
            assert error.startswith("FencedError"), (name, error)

    def more(self) -> bool:
        """All queries have ended; returns whether they are run again, for example over more input."""
        return False

    def judge(self, name: str, query: Query) -> None:
        """Assert what must be true of a query that has ended: of a crash, or of a job that nothing happens to."""

    def queries(self, *faults: str) -> list[Query]:
        """The queries that some faults happen to; without any, all."""
        return [crash.query(self.root) for crash in self.crashes if not faults or crash.fault in faults]

    def whole(self, job: str) -> Query:
        """The query of a job that nothing happens to."""
        place = str(self.root / f"whole-{job}")
        return Query(place, job, place, str(self.root / "feed"))

    def undisturbed(self) -> list[Query]:
        """The queries that nothing happens to."""
        return [self.whole(job) for job in self.jobs]

    def conclude(self) -> None:
        """Judge every query; a second verdict is added to the first."""
        judged = [(crash.name, crash.query(self.root)) for crash in self.crashes]
        for name, query in [*judged, *((job, self.whole(job)) for job in self.jobs)]:
            self.verdicts.setdefault(name, "")
            try:
                self.judge(name, query)
            except AssertionError as error:
                self.verdicts[name] += str(error) or repr(error)


def calm(queries: Sequence[Query]) -> list[Query]:
    """The same queries without a phase to block at, to the end of their input."""
    return [replace(query, block_at=None, epoch=None, until_end=True) for query in queries]


class Farm:
    """A driver for each kind of victim, one of which is paused before it is killed, and one that finishes their work.

    Args:
        root: For the logs of the drivers.
        suites: The suites; each is prepared, and has its verdicts afterwards.
        beside: What else happens at each kill of a driver.
    """

    def __init__(self, root: Path, suites: Sequence[Suite], beside: Callable[[], None] = lambda: None) -> None:
        self._root, self._suites, self._beside = root, suites, beside

    def crash(self) -> None:
        """Crash the queries, let the successor finish them, and judge them."""
        began = time.monotonic()
        for suite in self._suites:
            suite.root.mkdir(parents=True, exist_ok=True)
            suite.prepare()
        with ExitStack() as stack:
            dying = [victim for victim in Victim if self._of(victim.value)]
            paused = self._of(ZOMBIE)
            names = [victim.value for victim in dying] or [ZOMBIE] * bool(paused)
            drivers = {name: stack.enter_context(Driver(self._root / f"{name}.log")) for name in ("successor", *names)}
            successor = drivers.pop("successor")
            fragile = [suite for suite in self._suites if suite.queries(SERVER)]
            # While servers are started again, only what needs none of them runs: they would meet all other queries.
            successor.start([q for suite in self._suites if not suite.queries(SERVER) for q in suite.undisturbed()])
            self._restart_servers(successor, fragile)
            successor.start([query for suite in fragile for query in suite.undisturbed()])
            # One driver after the other: with all of their queries at once, Spark would give up on Python's processes.
            if paused:
                # It goes on and is killed later: another JVM would cost as much as ten queries.
                self._pause(drivers[names[-1]], successor)
            for victim in dying:
                self._kill(drivers[victim.value], victim, successor)
            if ZOMBIE in drivers:
                drivers[ZOMBIE].end()
            self._conclude(successor, self._suites)
            successor.forget()
            for suite in self._suites:
                if suite.more():
                    successor.start(calm([*suite.queries(), *suite.undisturbed()]))
                    self._conclude(successor, [suite])
            assert successor.end() == 0
        print(f"\n{len(self._of())} crashes in {time.monotonic() - began:.0f} s")  # noqa: T201 - figures

    def _of(self, *faults: str) -> list[Query]:
        return [query for suite in self._suites for query in suite.queries(*faults)]

    def _restart_servers(self, successor: Driver, fragile: Sequence[Suite]) -> None:
        queries = self._of(SERVER)
        successor.bring(queries, "reached")
        for suite in fragile:
            suite.restart()
        successor.release()
        successor.see(queries)

    def _reached(self, driver: Driver, fault: str) -> list[Query]:
        """Start the queries of a driver, and wait until every one blocks at its phase."""
        queries = self._of(fault)
        driver.bring(queries, "reached")
        for suite in self._suites:
            suite.reached([each for each in suite.crashes if each.fault == fault])
        return queries

    def _kill(self, driver: Driver, victim: Victim, successor: Driver) -> None:
        queries = self._reached(driver, victim.value)
        self._beside()
        driver.kill(victim)
        if victim is Victim.BOTH:
            driver.gone()
        # Otherwise at once: the surviving part of the old driver runs beside the new one.
        successor.start(calm(queries))
        if victim is Victim.JVM:
            driver.release()
            driver.results(queries)
            driver.end()
        driver.gone()
        successor.see(calm(queries))

    def _pause(self, zombie: Driver, successor: Driver) -> None:
        queries = self._reached(zombie, ZOMBIE)
        zombie.suspend()
        suites = [suite for suite in self._suites if suite.queries(ZOMBIE)]
        for suite in suites:
            suite.paused()
        successor.bring(calm(queries))
        for suite in suites:
            suite.succeeded()
        zombie.resume()
        zombie.release()
        errors = zombie.results(queries)
        for suite in suites:
            suite.noticed({Path(query.name).name: errors[query.name] for query in suite.queries(ZOMBIE)})
        zombie.hold()
        # What it prepared before it noticed is rolled back by the next start.
        for query in queries:
            successor.forget(query.name)
        successor.start(calm(queries))

    def _conclude(self, successor: Driver, suites: Sequence[Suite]) -> None:
        successor.see(calm([query for suite in suites for query in (*suite.queries(), *suite.undisturbed())]))
        for suite in suites:
            suite.conclude()
