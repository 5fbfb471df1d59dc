from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from sparkjet.testing.conformance import Case, Outcome, run_case
from sparkjet.testing.conformance.spark import SparkWindowDrivers
from sparkjet.testing.conformance.window_rows import WindowRow
from sparkjet.testing.conformance.window_setups import Aggregate
from sparkjet.testing.conformance.windows import Event, WindowDriver
from sparkjet.time import WindowGrid
from tests.conformance.corruption import CASES, corruptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVEN = [
    case
    for case in CASES
    if case.group in {"SW", "E2E"} and "early" not in case.cells[2] and "session" not in case.cells[1]
]


class Recorded:
    """A driver that writes down what it answers, so that one run serves many verdicts."""

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

    def restore(self, window: WindowGrid) -> None:
        self.driver.restore(window)

    def is_empty(self) -> bool:
        self.empty = self.driver.is_empty()
        return self.empty

    def dispose(self) -> None:
        self.driver.dispose()


class Replayed:
    """A driver that gives the answers of a recorded one again."""

    def __init__(self, recorded: Recorded) -> None:
        self.late = recorded.late
        self.answers = iter(recorded.answers)
        self.empty = recorded.empty

    def accept(self, events: Sequence[Event]) -> None: ...

    def close(self, watermark: int) -> list[WindowRow]:
        return next(self.answers)

    def finish(self) -> list[WindowRow]:
        return next(self.answers)

    def restore(self, window: WindowGrid) -> None: ...

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


class ReplayingDrivers:
    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded

    def open(self, window: WindowGrid, aggregate: Aggregate) -> Replayed:
        return Replayed(self.recorded)


@pytest.fixture(scope="module")
def drivers(spark: SparkSession) -> SparkWindowDrivers:
    return SparkWindowDrivers(spark)


@pytest.mark.parametrize("case", DRIVEN, ids=lambda case: case.id)
def test_the_operator_passes_and_nothing_else_does(case: Case, drivers: SparkWindowDrivers) -> None:
    recording = RecordingDrivers(drivers)
    judged = run_case(case, recording)
    assert judged.outcome is Outcome.PASSED, judged.why
    assert recording.recorded is not None
    for falsified in corruptions(case):
        judged = run_case(falsified, ReplayingDrivers(recording.recorded))
        assert judged.outcome is Outcome.FAILED, falsified.cells


def test_a_session_that_was_given_is_left_running(spark: SparkSession) -> None:
    with SparkWindowDrivers(spark) as given:
        given.open(WindowGrid(4, 4), Aggregate("CNT")).dispose()
    assert spark.range(3).count() == 3
