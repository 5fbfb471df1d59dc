"""What a long start says."""

from __future__ import annotations

import io
import logging
import sys
from types import SimpleNamespace

import pytest

from sparkjet.engine.start_steps import StartSteps
from sparkjet.query_log import about
from tests.faults.waiting import until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_each_time_says_what_is_done_and_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sparkjet")
    steps = StartSteps(io.StringIO(), every=0.001)
    with about("bars"), steps.told():
        until(lambda: "query bars: starting (0 s)" in caplog.messages, "the first line", 60)
        steps.at("restoring the state", 4)
        steps.one()
        until(lambda: "query bars: restoring the state, 1 of 4 (0 s)" in caplog.messages, "a part", 60)
    told = len(caplog.messages)
    with about("bars"), steps.told():
        pass
    assert caplog.messages[told:] in ([], caplog.messages[-1:])


def test_on_a_terminal_one_line_is_written_over_and_removed_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sparkjet")
    terminal = Terminal()
    steps = StartSteps(stream=terminal, every=0.001)
    steps.at("restoring the state", 2)
    with steps.told():
        steps.one()
        until(
            lambda: "\r\x1b[K[##########----------] restoring the state, 1 of 2 (0 s)" in terminal.getvalue(), "it", 60
        )
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "\n" not in terminal.getvalue()
    assert caplog.messages == []


def test_what_is_done_at_once_says_nothing() -> None:
    terminal = Terminal()
    with StartSteps(stream=terminal, every=60).told():
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("stderr", [None, SimpleNamespace(write=len)])
def test_a_start_needs_no_standard_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stderr: SimpleNamespace | None
) -> None:
    caplog.set_level(logging.INFO, "sparkjet")
    monkeypatch.setattr(sys, "stderr", stderr)
    with StartSteps(every=0.001).told():
        until(lambda: "starting (0 s)" in caplog.messages, "the first line", 60)
