"""Drivers killed between the phases of an epoch with dead letters, and started again with and without the fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest

from sparkjet import EpochPhase
from tests.crash.drivers import Query, Victim
from tests.crash.farm import Crash, Farm, Suite
from tests.crash.feeds import read_events, skewed_batches, write_skewed
from tests.crash.invariants import check, same_epochs
from tests.crash.jobs import MENDED
from tests.crash.plain import DEAD, DivertedRules
from tests.crash.readers import newest_record, published, result_rows
from tests.crash.replay import RESULTS

pytestmark = [pytest.mark.long, pytest.mark.crash, pytest.mark.timeout(3600)]

SEED, FILES = 20130102, 4
PHASES = [*EpochPhase]
BEFORE = PHASES[: PHASES.index(EpochPhase.DECIDE)]
"""At the end of which the epoch is not decided."""


class DeadLetters(Suite):
    """Each phase twice: the fault stays, or it is mended while the driver is down."""

    def prepare(self) -> None:
        write_skewed(self.root / "feed", SEED, 0, FILES)

    def reached(self, crashes: Collection[Crash]) -> None:
        for crash in crashes:
            if crash.job.endswith(MENDED):
                (crash.query(self.root).place.root / MENDED).touch()

    def judge(self, name: str, query: Query) -> None:
        rules, place = query.rules.rules, query.place
        assert isinstance(rules, DivertedRules)
        crash = next((each for each in self.crashes if each.name == name), None)
        if crash is not None and crash.job.endswith(MENDED):
            # Epochs that were decided have their dead letters; no other one has any.
            faulty = crash.epoch - (crash.step in BEFORE)
            batches = skewed_batches(SEED, FILES)
            assert published(place.root / DEAD).keys() == {*range(1, faulty + 1)}
            found = {each: Counter(row[0] for row in _rows(query, each).elements()) for each in (RESULTS, DEAD)}
            assert found[DEAD] == Counter(e["id"] for batch in batches[:faulty] for e in batch if rules.error(e))
            files = sorted(place.feed.glob("[!.]*"))
            assert found[RESULTS] + found[DEAD] == Counter(e["id"] for file in files for e in read_events(file, "ts"))
            return
        check(place, query.rules, batches=FILES, closings=[FILES])
        same_epochs(place, self.whole(query.job).place, query.rules)
        violated = sum(row[2] == "EXPECTATION_VIOLATION" for row in _rows(query, DEAD).elements())
        assert newest_record(place).expectations == {"no fifth": violated}


def _rows(query: Query, output: str) -> Counter[tuple[object, ...]]:
    files = [file for each in published(query.place.root / output).values() for file in each]
    return result_rows(files, query.rules.rules, output)


def test_a_crash_loses_and_repeats_no_dead_letter(tmp_path: Path) -> None:
    jobs = "diverted", f"diverted-{MENDED}"
    crashes = [Crash(step, Victim.BOTH.value, job) for step in PHASES for job in jobs]
    suite = DeadLetters(tmp_path / "dead", crashes, ["diverted"])
    Farm(tmp_path, [suite]).crash()
    assert suite.verdicts == dict.fromkeys(suite.verdicts, "")
    assert len(suite.verdicts) == 2 * len(PHASES) + 1
