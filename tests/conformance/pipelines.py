"""Group E2E: policy, throttle and window together, one event per epoch."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from tests.conformance.notation import integer, tokens
from tests.conformance.trackers import tracker_setup
from tests.conformance.verdicts import NotationError
from tests.conformance.window_rows import Output, WindowRow, read_outputs, watermark
from tests.conformance.window_setups import window_setup
from tests.conformance.windows import Event, WindowDriver, WindowDrivers, finish, open_driver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkjet.time import SubstreamTracker
    from tests.conformance.cases import Case

_END = "end"
_STEP_TOKENS = 3


@dataclass(frozen=True)
class Step:
    """``@now substream event`` where the event is a time, ``idle`` or ``done``; ``end`` has no substream."""

    now: int
    substream: str
    event: str


def run_pipelines(case: Case, drivers: WindowDrivers) -> None:
    """Check a row on a :class:`sparkjet.time.SubstreamTracker` in front of the window operator.

    Raises:
        NotationError: The row cannot be read.
        MismatchError: The output is different.
    """
    setup = tracker_setup(case.setup)
    windows = window_setup(" ".join(setup.rest))
    steps = _read_steps(tokens(case.cell(2, "the input")))
    expected = read_outputs(case.cell(3, "the expected output"))
    tracker = setup.tracker()
    # Events of this group have no key; rows name it arbitrarily.
    key = next((row.key for row in expected.items if isinstance(row, WindowRow)), "k")
    driver = open_driver(windows, windows.aggregate, drivers)
    try:
        output = _Pipeline(tracker, driver, key).run(steps)
        expected.require(output, driver.late, any_order=windows.session is not None)
    finally:
        driver.dispose()


class _Pipeline:
    def __init__(self, tracker: SubstreamTracker, driver: WindowDriver, key: str) -> None:
        self.tracker = tracker
        self.driver = driver
        self.key = key

    def run(self, steps: Sequence[Step]) -> list[Output]:
        for step in steps:
            if step.event != _END and step.substream not in self._substreams():
                self.tracker.add(step.substream, now=0)
        output: list[Output] = []
        for step in steps:
            output += finish(self.driver) if step.event == _END else self.epoch(step)
        return output

    def epoch(self, step: Step) -> list[Output]:
        if step.substream not in self._substreams():
            raise NotationError(f"substream {step.substream} is done already")
        if step.event == "done":
            self.tracker.retire(step.substream, step.now)
        elif step.event != "idle":
            # Rows of an epoch are late by the watermark before it.
            self.driver.accept([Event(self.key, integer(step.event), Fraction(1))])
            self.tracker.report(step.substream, integer(step.event), step.now)
        # One substream per task: a task detects that its substream is idle only when it is polled itself.
        noticed = {each.id: each.idle or each.id == step.substream for each in self.tracker.progress()}
        advance = self.tracker.advance(step.now, caught_up=noticed)
        output: list[Output] = []
        if advance.watermark is not None:
            output += [*self.driver.close(advance.watermark), watermark(advance.watermark)]
        # When all tasks have ended, nothing more is output; they are not idle.
        return [*output, "IDLE"] if advance.went_idle and self._substreams() else output

    def _substreams(self) -> list[str]:
        return [progress.id for progress in self.tracker.progress()]


def _read_steps(parts: Sequence[str]) -> list[Step]:
    steps = []
    position = 0
    while position < len(parts):
        if parts[position] == _END:
            steps.append(Step(0, "", _END))
            position += 1
            continue
        step = parts[position : position + _STEP_TOKENS]
        if len(step) < _STEP_TOKENS or not step[0].startswith("@"):
            raise NotationError(f"not understood: {' '.join(step)}")
        if step[2] not in {"idle", "done"}:
            integer(step[2])
        steps.append(Step(integer(step[0][1:]), step[1], step[2]))
        position += _STEP_TOKENS
    if not steps:
        raise NotationError("the input is empty")
    return steps
