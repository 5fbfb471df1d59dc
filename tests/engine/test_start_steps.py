"""Log lines of a long start."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import pty
import struct
import sys
import termios

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


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


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


def test_a_step_that_is_done_at_once_logs_nothing() -> None:
    terminal = Terminal()
    with StartSteps(stream=terminal, every=60).told():
        pass
    assert terminal.getvalue() == ""


class ToLog:
    """A replacement of standard error, with which programs log everything."""

    def write(self, text: str) -> None: ...


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("replaced", [None, ToLog(), closed()])
def test_a_standard_error_that_is_none_or_closed_or_write_only_is_not_a_terminal(
    replaced: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "sparkjet")
    monkeypatch.setattr(sys, "stderr", replaced)
    with StartSteps(every=0.001).told():
        until(lambda: "starting (0 s)" in caplog.messages, "a line of the log", 60)


class Gone(Terminal):
    asked = 0

    def write(self, text: str) -> int:
        self.asked += 1
        raise OSError(5, f"no terminal for {text}")


def test_a_terminal_that_is_closed_stops_nothing() -> None:
    gone = Gone()
    with StartSteps(gone, every=0.001).told():
        until(lambda: gone.asked > 1, "two lines", 60)


def test_a_narrow_terminal_has_one_row_that_is_written_over() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb", buffering=0) as screen, os.fdopen(follower, "w") as terminal:
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 20, 0, 0))
        steps = StartSteps(terminal, every=0.001)
        steps.at("restoring the state", 4)
        with steps.told():
            assert screen.read(23) == b"\r\x1b[K[------------------"
            assert screen.read(5) == b"\r\x1b[K["


def test_a_dumb_terminal_is_a_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, "sparkjet")
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with StartSteps(terminal, every=0.001).told():
        until(lambda: "starting (0 s)" in caplog.messages, "a line of the log", 60)
    assert terminal.getvalue() == ""
