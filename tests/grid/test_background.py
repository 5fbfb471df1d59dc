"""Background work hands on what happened to it; a loop whose step fails says so, and goes on."""

from __future__ import annotations

import errno
import logging
import threading

import pytest

from sparkjet_grid.background import Loop, in_background
from sparkjet_grid.errors import AnalysisError
from tests.faults.waiting import until

CAUSES = [
    ValueError("unexpected"),
    OSError(errno.EMFILE, "Too many open files"),
    OSError(errno.ENOSPC, "No space left on device"),
    FileNotFoundError(errno.ENOENT, "No such file or directory", "token"),
    AnalysisError("there is no java on the PATH"),
    MemoryError("no memory"),
]


def test_a_waiting_caller_gets_the_result_or_the_error() -> None:
    assert in_background(lambda: 3, "three").result(10) == 3

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_background(fail, "fails").result(10)


@pytest.mark.logs_errors
@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: type(cause).__name__ + f" {getattr(cause, 'errno', '')}")
def test_a_loop_whose_step_fails_says_why_and_goes_on(cause: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the error is: only a member that is removed or cut off is to end."""
    steps: list[int] = []

    def step() -> None:
        steps.append(1)
        if len(steps) < 5:
            raise cause
        loop.pause(600)

    loop = Loop("grid-loop", step, again=0.001)
    loop.start()
    until(lambda: len(steps) == 5, "the step that does not fail", 10)
    loop.stop()
    # Once, with all that is known of it: a log that is full of it would tell nothing else.
    [record] = caplog.records
    assert record.getMessage() == f"grid-loop has failed, and goes on: {cause}"
    assert record.exc_info is not None
    assert record.exc_info[1] is cause


@pytest.mark.logs_errors
def test_each_cause_is_named(caplog: pytest.LogCaptureFixture) -> None:
    causes: list[Exception] = [ValueError("one"), ValueError("one"), ValueError("two"), KeyError("one")]

    def step() -> None:
        if not causes:
            return loop.pause(600)
        raise causes.pop()

    loop = Loop("grid-loop", step, again=0.001)
    loop.start()
    until(lambda: not causes, "all of them", 10)
    loop.stop()
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records[:3]] == ["'one'", "two", "one"]
    assert len(caplog.records) == 3


def test_a_loop_that_is_stopped_begins_no_step() -> None:
    steps: list[int] = []

    def step() -> None:
        steps.append(1)
        loop.stop()
        loop.pause(600)

    loop = Loop("grid-loop", step)
    loop.start()
    until(lambda: bool(steps) and loop.is_stopped, "the first step", 10)
    assert steps == [1]


def test_a_loop_that_is_stopped_in_a_step_does_not_tell_what_the_step_lacks(caplog: pytest.LogCaptureFixture) -> None:
    def step() -> None:
        loop.stop()
        raise RuntimeError("cannot schedule new futures after shutdown")

    loop = Loop("grid-stopped", step)
    with caplog.at_level(logging.INFO, "sparkjet"):
        loop.start()
        until(lambda: all(thread.name != "grid-stopped" for thread in threading.enumerate()), "its end", 10)
    assert caplog.records == []
