"""Drivers killed between the phases of an epoch: Python, its JVM or both, before and after the decision."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from sparkjet import EpochPhase
from tests.crash.drivers import Query, Victim
from tests.crash.farm import Crash, Farm, Suite
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check, same_epochs
from tests.crash.jobs import AHEAD
from tests.crash.readers import half_published

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SEED = 20130101
FILES, MORE = 3, 1
CLOSING = FILES + 1
"""The closing epoch follows the epochs of all files."""
JOBS = (
    *("sums", "stacks", "visits-ahead", "state-ahead", "joins-ahead", "state"),
    *("stacks", "stacks-ahead", "visits", "sums-ahead", "joins", "state"),
)
SOME_JOBS = {
    EpochPhase.ADVANCE: "visits-ahead",
    EpochPhase.SAVE: "state-ahead",
    EpochPhase.PREPARE: "sums-ahead",
    EpochPhase.DECIDE: "stacks",
    EpochPhase.COMMITTING: "joins-ahead",
    EpochPhase.COMMIT: "stacks-ahead",
    EpochPhase.CLEAN: "sums",
}
"""Those of CI; those that take long once each. Until the state is saved, every phase leaves the same files."""
COMPARED = {"sums", "stacks", "visits"}
"""Jobs that also run undisturbed in CI: of each their epochs are the same, of all the results are the naive ones."""
SERVERS: tuple[str, ...] = ()


def rotation() -> list[Crash]:
    """Every phase that leaves other files once, with victims in turns; the closing epoch prepares and publishes.

    In an earlier one, and without windows, they are where queries also have tables, topics or queues.
    """
    victims = [victim.value for victim in Victim]
    closing = {EpochPhase.PREPARE, EpochPhase.COMMITTING}
    return [
        Crash(step, victims[i % 3], job, CLOSING if step in closing else Crash.epoch)
        for i, (step, job) in enumerate(SOME_JOBS.items())
    ]


def every_crash() -> list[Crash]:
    """Every phase of a batch's epoch and of the closing one with every victim; the jobs with windows take turns."""
    windowless = [Crash(step, victim.value, "rows") for step in EpochPhase for victim in Victim]
    return windowless + [
        Crash(step, victim.value, JOBS[(i + j + (epoch == CLOSING)) % len(JOBS)], epoch)
        for i, step in enumerate(EpochPhase)
        for j, victim in enumerate(Victim)
        for epoch in (Crash.epoch, CLOSING)
    ]


class Steps(Suite):
    """Crash, recover, run to the end, perhaps again with more data.

    Args:
        root: See :class:`Suite`.
        crashes: See :class:`Suite`.
        compared: Jobs whose epochs are those of an uninterrupted run; None for all.
        again: Whether there is more data.
    """

    def __init__(
        self, root: Path, crashes: list[Crash], compared: Collection[str] | None = None, *, again: bool = True
    ) -> None:
        jobs = {_alone(crash.job) for crash in crashes}
        super().__init__(root, crashes, sorted(jobs if compared is None else jobs & {*compared}))
        self._again = again
        self._closings: list[int] = []

    def prepare(self) -> None:
        self._feed(FILES)

    def reached(self, crashes: Collection[Crash]) -> None:
        for each in crashes:
            if each.step is EpochPhase.COMMITTING:
                assert half_published(each.query(self.root).place, each.epoch)

    def more(self) -> bool:
        if self._again:
            self._feed(FILES + MORE)
        return self._again

    def judge(self, name: str, query: Query) -> None:
        check(query.place, query.rules, batches=self._closings[-1], closings=self._closings)
        if _alone(query.job) in self.jobs:
            same_epochs(query.place, self.whole(_alone(query.job)).place, query.rules)

    def _feed(self, files: int) -> None:
        write_skewed(self.root / "feed", SEED, self._closings[-1] if self._closings else 0, files)
        self._closings.append(files)


def _alone(job: str) -> str:
    """The same job without overlapping epochs."""
    return job.removesuffix(AHEAD)


def suite(root: Path) -> Steps:
    # A third start is in `test_fencing.py` and `test_queues.py`.
    return Steps(root, rotation(), COMPARED, again=False)


@pytest.mark.parametrize("name", [each.name for each in rotation()])
def test_a_crash_loses_and_repeats_nothing(verdicts: dict[str, str], name: str) -> None:
    assert verdicts[name] == ""


@pytest.mark.parametrize("job", sorted(COMPARED))
def test_the_uninterrupted_run_is_right(verdicts: dict[str, str], job: str) -> None:
    assert verdicts[job] == ""


@pytest.mark.long
def test_every_crash_loses_and_repeats_nothing(tmp_path: Path) -> None:
    every = Steps(tmp_path / "steps", every_crash())
    Farm(tmp_path, [every]).crash()
    assert every.verdicts == dict.fromkeys(every.verdicts, "")
