from __future__ import annotations

import logging

import pytest

import sparkjet as sj
from sparkjet.clock import SteadyClock

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines that were logged since the last call."""
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return messages


def test_a_small_step_back_is_standing_still_and_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    machine = sj.ManualClock(NOON)
    clock = SteadyClock(machine, NOON)
    machine.advance(-9 * SECOND)
    assert clock.now() == NOON
    machine.advance(10 * SECOND)
    assert clock.now() == NOON + SECOND
    assert warnings(caplog) == []


def test_a_jump_forward_and_back_is_followed_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    machine = sj.ManualClock(NOON)
    clock = SteadyClock(machine, NOON)
    machine.advance(3600 * SECOND)
    assert clock.now() == NOON + 3600 * SECOND
    machine.advance(-3599 * SECOND)
    assert [clock.now(), clock.now()] == [NOON + SECOND] * 2
    (warning,) = warnings(caplog)
    assert "from 2023-11-14 23:13:20+00:00 to 2023-11-14 22:13:21+00:00" in warning
    assert "late" in warning


def test_a_reading_of_another_machine_that_was_ahead(caplog: pytest.LogCaptureFixture) -> None:
    clock = SteadyClock(sj.ManualClock(NOON), NOON + 60 * SECOND)
    assert clock.now() == NOON
    assert len(warnings(caplog)) == 1


def test_readings_that_are_not_dates_are_followed_too(caplog: pytest.LogCaptureFixture) -> None:
    clock = SteadyClock(sj.ManualClock(0), 2**62)
    assert clock.now() == 0
    (warning,) = warnings(caplog)
    assert str(2**62) in warning
