"""Runs that can be watched."""

from __future__ import annotations

import threading
from typing import Any

from sparkjet.errors import SinkError
from sparkjet.monitoring.runs import ENDED, Run, Runs
from sparkjet_grid.errors import UnreachableError
from tests.faults.waiting import until


def test_running_ones_come_first_and_of_those_that_ended_the_last_ones_stay() -> None:
    runs = Runs()
    for number in range(ENDED + 5):
        runs.add(Run("query", f"ended-{number}", None, number))
        runs.all()[0].end(number, None)
    runs.add(Run("query", "running", "flights", 1))
    assert runs.all()[0].run == "running"
    assert [run.run for run in runs.all()[1:3]] == [f"ended-{ENDED + 4}", f"ended-{ENDED + 3}"]
    assert len(runs.all()) == ENDED + 1
    assert runs.get("ended-0") is None
    found = runs.get("running")
    assert found is not None
    assert found.label == "flights"


def test_a_query_without_a_name_is_called_by_its_id() -> None:
    assert Run("0123456789", "run", None, 0).label == "01234567"
    assert Run("0123456789", "run", None, 0, recorded=True).state == "recorded"


def test_two_queries_of_one_name_are_distinguished_until_one_has_ended() -> None:
    runs, first, second = Runs(), Run("0123456789", "a", "bars", 0), Run("9876543210", "b", "bars", 1)
    for run in (first, second):
        runs.add(run)
    assert [first.label, second.label] == ["bars", "bars (98765432)"]
    first.end(2, None)
    # What it was called stays, also in the metrics.
    assert second.label == "bars (98765432)"
    third = Run("9876543210", "c", "bars", 3)
    second.end(3, None)
    runs.add(third)
    assert third.label == "bars"


def test_a_failure_has_a_condition() -> None:
    run = Run("query", "run", None, 0)
    for error, condition in (
        (SinkError("refused"), "SPARKJET_SINK"),
        (RuntimeError("[DIVIDE_BY_ZERO.SUB] Division by zero"), "DIVIDE_BY_ZERO.SUB"),
        (RuntimeError("list [1, 2]"), None),
    ):
        run.end(1, error)
        assert (run.condition, run.state) == (condition, "failed")


def test_members_of_the_grid_are_asked_in_the_background() -> None:
    run, asked = Run("query", "run", None, 0), threading.Event()
    assert run.members() is None

    def two_of_three() -> dict[str, Any]:
        asked.wait(60)
        return {"members": [{"frozen": False}, {"error": {}}, {"frozen": False}]}

    run.grid = two_of_three
    assert run.members() is None
    asked.set()
    until(lambda: run.members() == 2, "an answer")
    run.end(1, None)
    assert run.members() is None


def test_a_grid_that_does_not_answer_has_no_members() -> None:
    run = Run("query", "run", None, 0)

    def nobody() -> dict[str, Any]:
        raise UnreachableError("127.0.0.1:1", "nobody is there")

    run.grid = nobody
    until(lambda: run.members() == 0, "an answer")
