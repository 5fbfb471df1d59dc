"""Background work hands on what happened to it; a loop that fails says so, once, and does not go on."""

from __future__ import annotations

import pytest

from sparkjet.grid.background import Loop, in_background
from tests.faults.waiting import until


def test_who_waits_gets_the_result_or_the_error() -> None:
    assert in_background(lambda: 3, "three").result(10) == 3

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_background(fail, "fails").result(10)


@pytest.mark.logs_errors
def test_a_loop_that_fails_says_so_and_stops() -> None:
    steps: list[int] = []
    reasons: list[str] = []

    def step() -> None:
        steps.append(1)
        if len(steps) == 3:
            raise RuntimeError("broken")

    loop = Loop("grid-loop", step, reasons.append)
    loop.start()
    until(lambda: bool(reasons), "the failure", 10)
    assert reasons == ["grid-loop has failed: broken"]
    assert len(steps) == 3


def test_a_loop_that_is_stopped_begins_no_step() -> None:
    steps: list[int] = []
    reasons: list[str] = []

    def step() -> None:
        steps.append(1)
        loop.stop()
        loop.pause(600)

    loop = Loop("grid-loop", step, reasons.append)
    loop.start()
    until(lambda: bool(steps) and loop.is_stopped, "the first step", 10)
    assert (steps, reasons) == ([1], [])


def test_a_loop_that_is_stopped_in_a_step_does_not_report_what_the_step_lacks() -> None:
    ended: list[str] = []
    reasons: list[str] = []

    def step() -> None:
        loop.stop()
        try:
            raise RuntimeError("cannot schedule new futures after shutdown")
        finally:
            ended.append("step")

    loop = Loop("grid-loop", step, reasons.append)
    loop.start()
    until(lambda: bool(ended) and not loop._thread.is_alive(), "the end of the thread", 10)
    assert reasons == []
