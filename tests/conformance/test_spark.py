from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from sparkjet.time import WindowGrid
from tests.conformance import Case, Outcome, read_cases, run_case, run_cases
from tests.conformance.corruption import CASES, corruptions
from tests.conformance.spark import SparkWindowDrivers
from tests.conformance.window_rows import WindowRow
from tests.conformance.window_setups import Aggregate
from tests.conformance.windows import Event, WindowDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEAR = {
    "E01": "E05",
    "E04": "E05",
    "E07": "E03",
    "N01": "N04, and in other orders in windows/test_sessions.py",
    "N03": "N04, and other keys in windows/test_sessions.py",
    "N08": "N18",
    "N20": "N12, and restarted in windows/test_sessions.py",
    "R02": "R04, and longer windows in windows/test_sliding.py",
    "S01b": "S02a",
    "S03b": "S02a",
    "S07": "S19",
    "S15": "S06b",
    "T01": "T12",
    "T02": "S17",
    "T04": "S09",
    "W03": "T10",
    "W05": "S05a",
}
"""Cases that are only long, and what does the same with one thing more or less."""
DRIVEN = [
    pytest.param(case, id=case.id, marks=pytest.mark.long if case.id in NEAR else ())
    for case in CASES
    if case.group in {"SW", "SES", "E2E"}
]


class Recorded:
    """A driver that records its results, so that one run serves many verdicts."""

    def __init__(self, driver: WindowDriver) -> None:
        self.driver = driver
        self.answers: list[list[WindowRow]] = []
        self.empty = True

    @property
    def late(self) -> int:
        return self.driver.late

    def accept(self, events: Sequence[Event]) -> None:
        self.driver.accept(events)

    def close(self, watermark: int) -> list[WindowRow]:
        self.answers.append(self.driver.close(watermark))
        return self.answers[-1]

    def finish(self) -> list[WindowRow]:
        self.answers.append(self.driver.finish())
        return self.answers[-1]

    def early(self) -> list[WindowRow]:
        self.answers.append(self.driver.early())
        return self.answers[-1]

    def restore(self, window: WindowGrid | None) -> None:
        self.driver.restore(window)

    def is_empty(self) -> bool:
        self.empty = self.driver.is_empty()
        return self.empty

    def dispose(self) -> None:
        self.driver.dispose()


class Replayed:
    """A driver that replays recorded results."""

    def __init__(self, recorded: Recorded) -> None:
        self.late = recorded.late
        self.answers = iter(recorded.answers)
        self.empty = recorded.empty

    def accept(self, events: Sequence[Event]) -> None: ...

    def close(self, watermark: int) -> list[WindowRow]:
        return next(self.answers)

    def finish(self) -> list[WindowRow]:
        return next(self.answers)

    def early(self) -> list[WindowRow]:
        return next(self.answers)

    def restore(self, window: WindowGrid | None) -> None: ...

    def is_empty(self) -> bool:
        return self.empty

    def dispose(self) -> None: ...


class RecordingDrivers:
    def __init__(self, drivers: SparkWindowDrivers) -> None:
        self.drivers = drivers
        self.recorded: Recorded | None = None

    def open(self, window: WindowGrid, aggregate: Aggregate) -> Recorded:
        self.recorded = Recorded(self.drivers.open(window, aggregate))
        return self.recorded

    def open_sessions(self, gap: int, aggregate: Aggregate) -> Recorded:
        self.recorded = Recorded(self.drivers.open_sessions(gap, aggregate))
        return self.recorded


class ReplayingDrivers:
    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded

    def open(self, window: WindowGrid, aggregate: Aggregate) -> Replayed:
        return Replayed(self.recorded)

    def open_sessions(self, gap: int, aggregate: Aggregate) -> Replayed:
        return Replayed(self.recorded)


@pytest.fixture(scope="module")
def drivers(spark: SparkSession) -> SparkWindowDrivers:
    return SparkWindowDrivers(spark)


@pytest.mark.parametrize("case", DRIVEN)
def test_the_operator_passes_and_nothing_else_does(case: Case, drivers: SparkWindowDrivers) -> None:
    recording = RecordingDrivers(drivers)
    judged = run_case(case, recording)
    assert judged.outcome is Outcome.PASSED, judged.why
    assert recording.recorded is not None
    for falsified in corruptions(case):
        judged = run_case(falsified, ReplayingDrivers(recording.recorded))
        assert judged.outcome is Outcome.FAILED, falsified.cells


def test_early_rows_of_sessions_change_nothing_also_over_a_restore(drivers: SparkWindowDrivers) -> None:
    text = """
    ## SES. Early rows (3.0+)
    | X | session(10) CNT | e(k,0) restore early early e(k,5) w(9) restore early w(16) end | early(0,10,k,1) early(0,10,k,1) w(9) early(0,15,k,2) r(0,15,k,2) w(16) |
    """  # noqa: E501 - a row is a line
    assert [str(judged) for judged in run_cases(read_cases(text), drivers)] == ["X passed"]


def test_a_session_that_was_given_is_left_running(spark: SparkSession) -> None:
    with SparkWindowDrivers(spark) as given:
        given.open(WindowGrid(4, 4), Aggregate("CNT")).dispose()
    assert spark.range(3).count() == 3
