"""The rounds of T6 are parts of one run."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.latency import Epochs, Slide, ninety_ninth, rounds

SLIDE = Slide(length=2.0, step=1.0, warm_up=5.0, round=10.0)


def test_each_round_has_what_came_in_its_time() -> None:
    found = {float(second): float(second // 10) for second in range(-20, 200)}
    assert rounds(found, 0.0, SLIDE, statistics.median) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_round_without_windows_is_an_error_rather_than_a_fast_one() -> None:
    with pytest.raises(statistics.StatisticsError):
        rounds({}, 0.0, SLIDE, ninety_ninth)


def test_the_99th_percentile_of_few_is_nearly_the_greatest() -> None:
    assert ninety_ninth([0.1] * 44 + [0.5]) > 0.2


def report(number: int, second: int, rows: int, **own: int) -> dict[str, object]:
    epoch = {"number": number, "durationMs": {"save": 10 * number}}
    return {"epoch": epoch, "timestamp": f"2026-01-01T00:00:{second:02}.200Z", "numInputRows": rows, "durationMs": own}


def test_reports_that_are_seen_twice_count_once_and_epochs_of_the_clock_have_no_start() -> None:
    epochs = Epochs()
    epochs.look([report(1, 0, 5, triggerExecution=100)])
    epochs.look([report(1, 0, 5, triggerExecution=100), report(2, 1, 5, triggerExecution=300), report(3, 2, 0)])
    assert sorted(epochs.started) == [1, 2]
    assert epochs.started[2] - epochs.started[1] == pytest.approx(1.0)
    assert epochs.means == pytest.approx({"save": 0.02, "Spark's triggerExecution": 0.2})
