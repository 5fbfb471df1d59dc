"""Runs that can be watched."""

from __future__ import annotations

from sparkjet.monitoring.runs import ENDED, Run, Runs


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
