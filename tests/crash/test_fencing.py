"""Fencing: a driver that was paused at a phase and resumed after its successor has made progress."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from sparkjet.snapshots.record_log import RETAINED_SLOTS, TRIMMED
from tests.crash.drivers import Driver, Query
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check
from tests.crash.jobs import Place
from tests.crash.readers import fingerprints, half_published, newest_checkpoint, newest_record

if TYPE_CHECKING:
    pass

SEED = 2718
STOPPED_IN = 3
SEEN, THEN, LAST = 5, 12, 13
"""Number of files at the start of the old driver, after its successor, and after the third start."""
PAUSES = (*(step.name for step in EpochPhase), "IDLE")
"""Every phase, and after foreachBatch has returned."""


@dataclass
class Zombie:
    """A query of a paused driver, and what was observed of it."""

    query: Query
    error: str | None = None
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    verdicts: list[str] = field(default_factory=list)

    @property
    def place(self) -> Place:
        return self.query.place

    def look(self) -> dict[str, str]:
        """Everything that others rely on: published files, manifests, decisions, and the successor's checkpoint."""
        place = self.place
        seen = {f"out/{name}": mark for name, mark in fingerprints(place.out).items() if "/staging/" not in name}
        seen |= {f"late/{name}": mark for name, mark in fingerprints(place.late).items() if "/staging/" not in name}
        record = newest_record(place)
        seen |= {"record": repr(record), "checkpoint": newest_checkpoint(place).name}
        seen |= {f"spark/{name}": mark for name, mark in fingerprints(newest_checkpoint(place)).items()}
        stored = fingerprints(place.snapshots)
        return seen | {name: mark for name, mark in stored.items() if any(kept in name for kept in record.names())}

    def judge(self, batches: int, closings: list[int], *, swept: bool) -> None:
        try:
            check(self.place, self.query.rules, batches=batches, closings=closings, swept=swept)
        except AssertionError as error:
            self.verdicts.append(f"after {batches} files: {error}")


def _query(root: Path, pause: str, job: str) -> Query:
    feed = root / ("short" if pause == "IDLE" else "feed")
    return Query(pause, job, str(root / pause), str(feed), pause, STOPPED_IN, until_end=pause != "IDLE")


def _write(root: Path, first: dict[str, int], upto: int) -> None:
    for feed, number in first.items():
        write_skewed(root / feed, SEED, number, upto)


def resumed(root: Path) -> dict[str, Zombie]:
    """Pause a driver at each phase, let another one take over, and resume the first; what was seen, by phase."""
    queries = [_query(root, pause, ("sums", "stacks")[i % 2]) for i, pause in enumerate(PAUSES)]
    found = {query.name: Zombie(query) for query in queries}
    again = [replace(query, block_at=None, until_end=True) for query in queries]
    _write(root, {"feed": 0}, SEEN)
    _write(root, {"short": 0}, STOPPED_IN)
    began = time.monotonic()
    with ExitStack() as stack:
        old, successor = (stack.enter_context(Driver(root / f"{name}.log")) for name in ("old", "successor"))
        old.start(queries)
        old.see(queries, "reached")
        assert half_published(found["COMMITTING"].place, STOPPED_IN)
        old.suspend()
        print(f"\nfencing: paused after {time.monotonic() - began:.0f} s", end=", ")  # noqa: T201 - figures
        _write(root, {"feed": SEEN, "short": STOPPED_IN}, THEN)
        successor.start(again)
        assert set(successor.results(again).values()) == {None}
        print(f"succeeded after {time.monotonic() - began:.0f} s", end=", ")  # noqa: T201 - figures
        for zombie in found.values():
            zombie.judge(THEN, [THEN], swept=True)
            zombie.before = zombie.look()
        old.resume()
        old.release()
        for name, error in old.results(queries).items():
            found[name].error = error
        for zombie in found.values():
            zombie.after = zombie.look()
            zombie.judge(THEN, [THEN], swept=False)
        old.end()
        print(f"fenced after {time.monotonic() - began:.0f} s", end=", ")  # noqa: T201 - figures
        _write(root, {"feed": THEN, "short": THEN}, LAST)
        successor.forget()
        successor.start(again)
        assert set(successor.results(again).values()) == {None}
        for zombie in found.values():
            zombie.judge(LAST, [THEN, LAST], swept=True)
        assert successor.end() == 0
    print(f"third start done after {time.monotonic() - began:.0f} s")  # noqa: T201 - figures
    return found


@pytest.fixture(scope="module")
def zombies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Zombie]:
    return resumed(tmp_path_factory.mktemp("fencing"))


pauses = pytest.mark.parametrize("pause", PAUSES)
heavy = [pytest.mark.crash, pytest.mark.timeout(1800)]


@pytest.mark.crash
@pytest.mark.timeout(1800)
@pauses
def test_a_driver_that_was_paused_is_fenced_and_says_so(zombies: dict[str, Zombie], pause: str) -> None:
    error = zombies[pause].error
    assert error is not None
    assert error.startswith("FencedError"), error


@pytest.mark.crash
@pytest.mark.timeout(1800)
@pauses
def test_it_changes_nothing_that_its_successor_relies_on(zombies: dict[str, Zombie], pause: str) -> None:
    zombie = zombies[pause]
    assert zombie.after == zombie.before
    assert newest_record(zombie.place).takeover == 2
    # Where it stopped has been trimmed since.
    assert (THEN + 1) // TRIMMED * TRIMMED >= RETAINED_SLOTS + STOPPED_IN


@pytest.mark.crash
@pytest.mark.timeout(1800)
@pauses
def test_nothing_is_lost_or_doubled_and_a_third_start_goes_on(zombies: dict[str, Zombie], pause: str) -> None:
    assert zombies[pause].verdicts == []
