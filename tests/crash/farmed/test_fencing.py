"""Fencing: a driver that was paused at a phase and resumed after its successor has made progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from sparkjet.snapshots.record_log import RETAINED_SLOTS, TRIMMED
from tests.crash.drivers import Query
from tests.crash.farm import ZOMBIE, Crash, Farm, Suite
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check
from tests.crash.readers import fingerprints, half_published, newest_checkpoint, newest_record

if TYPE_CHECKING:
    from tests.crash.jobs import Place

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SEED = 2718
SEEN, THEN, LAST = 4, 11, 12
"""Number of files at the start of the old driver, after its successor, and after the third start."""
SHORT = "short"
"""The feed that ends where the old driver stopped: it has nothing to do after the epoch."""
JOBS = ("sums", "stacks")
EVERY_PAUSE = [
    *(Crash(step, ZOMBIE, JOBS[n % len(JOBS)]) for n, step in enumerate(EpochPhase)),
    Crash(None, ZOMBIE, JOBS[len(EpochPhase) % len(JOBS)], feed=SHORT),
]
"""Every phase, and after foreachBatch has returned."""
SOME = {EpochPhase.COMMITTING, None}
"""After the decision, and after everything; in `test_postgres.py` also when state is saved, in `test_kafka.py` at
the decision."""
PAUSES = [each for each in EVERY_PAUSE if each.step in SOME]
SERVERS: tuple[str, ...] = ()


class Fencing(Suite):
    """A query of a paused driver at each phase, and what was seen of it before and after that driver went on."""

    def __init__(self, root: Path, pauses: list[Crash]) -> None:
        super().__init__(root, pauses)
        self._seen: dict[str, dict[str, str]] = {}
        self._closings: list[int] = []

    def prepare(self) -> None:
        write_skewed(self.root / "feed", SEED, 0, SEEN)
        write_skewed(self.root / SHORT, SEED, 0, Crash.epoch)

    def paused(self) -> None:
        (committing,) = (each for each in self.crashes if each.step is EpochPhase.COMMITTING)
        assert half_published(committing.query(self.root).place, committing.epoch)
        write_skewed(self.root / "feed", SEED, SEEN, THEN)
        write_skewed(self.root / SHORT, SEED, Crash.epoch, THEN)

    def succeeded(self) -> None:
        self._closings.append(THEN)
        # Where it stopped has been trimmed since.
        assert RETAINED_SLOTS + Crash.epoch <= (THEN + 1) // TRIMMED * TRIMMED
        for query in self.queries():
            check(query.place, query.rules, batches=THEN, closings=[THEN])
            self._seen[query.name] = look(query.place)

    def noticed(self, errors: dict[str, str | None]) -> None:
        super().noticed(errors)
        for query in self.queries():
            assert look(query.place) == self._seen[query.name], query.name
            check(query.place, query.rules, batches=THEN, closings=[THEN], swept=False)
        for feed in ("feed", SHORT):
            write_skewed(self.root / feed, SEED, THEN, LAST)

    def judge(self, name: str, query: Query) -> None:
        # The successor's, and that of the third start.
        assert newest_record(query.place).takeover == 2
        check(query.place, query.rules, batches=LAST, closings=[THEN, LAST])


def look(place: Place) -> dict[str, str]:
    """Everything that others rely on: published files, manifests, decisions, and the successor's checkpoint."""
    seen = {f"out/{name}": mark for name, mark in fingerprints(place.out).items() if "/staging/" not in name}
    seen |= {f"late/{name}": mark for name, mark in fingerprints(place.late).items() if "/staging/" not in name}
    record = newest_record(place)
    seen |= {"record": repr(record), "checkpoint": newest_checkpoint(place).name}
    seen |= {f"spark/{name}": mark for name, mark in fingerprints(newest_checkpoint(place)).items()}
    stored = fingerprints(place.snapshots)
    return seen | {name: mark for name, mark in stored.items() if any(kept in name for kept in record.names())}


def suite(root: Path) -> Fencing:
    return Fencing(root, PAUSES)


@pytest.mark.parametrize("name", [each.name for each in PAUSES])
def test_a_driver_that_was_paused_is_fenced_and_changes_nothing(verdicts: dict[str, str], name: str) -> None:
    """It says so (`noticed`), and a third start goes on (`judge`)."""
    assert verdicts[name] == ""


@pytest.mark.long
def test_a_driver_that_was_paused_anywhere_is_fenced_and_changes_nothing(tmp_path: Path) -> None:
    fencing = Fencing(tmp_path / "fencing", EVERY_PAUSE)
    Farm(tmp_path, [fencing]).crash()
    assert fencing.verdicts == dict.fromkeys(fencing.verdicts, "")
