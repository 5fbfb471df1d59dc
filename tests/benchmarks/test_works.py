"""Which programs run, how long, and with how much memory."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import run, studies
from benchmarks.__main__ import GOALS, GOALS_OF_STUDIES, chosen
from benchmarks.contest import side
from benchmarks.work import WORKS, Work, work_of

MOST_KEYS = ["T2m", "T2m-flink"]
MACHINE = 20
"""Gigabytes that a contest's engines may take together."""


def names(more: bool) -> list[str]:
    works, alone = chosen(False, more, [])
    return [*(work.id for work in works), *alone]


def test_what_has_goals_runs_by_default_and_the_rest_with_more() -> None:
    assert sorted(names(more=False)) == sorted([*GOALS, *GOALS_OF_STUDIES])
    everything = [*(work.id for work in WORKS if work.goals), *studies.STUDIES]
    assert sorted([*names(more=False), *names(more=True)]) == sorted(everything)


def test_a_named_work_runs_whatever_the_default_is() -> None:
    works, alone = chosen(False, False, ["T3-6", "T12", "T8-none"])
    assert ([work.id for work in works], alone) == (["T3-6", "T8-none"], ["T12"])


@pytest.mark.parametrize("work", [work for work in WORKS if work.goals], ids=lambda work: work.id)
def test_every_goal_has_a_peer_that_can_run_it(work: Work) -> None:
    for goal in work.goals:
        peer, other = side(work, goal.other)
        assert run.command(peer, other)


def test_two_cores_are_those_of_the_first_work_and_one_is_only_fewer() -> None:
    assert side(work_of("T11c"), "sparkjet") == side(work_of("T1"), "sparkjet")
    one = side(work_of("T11c"), "sparkjet@T11c-one")[1]
    assert one.question == work_of("T11c").question
    assert one.cores == 1
    assert one.batch == work_of("T11c").batch


@pytest.mark.parametrize("name", MOST_KEYS)
def test_the_heaps_of_a_million_keys_fit_into_the_machine_together(name: str) -> None:
    work = work_of(name)
    peers = ["sparkjet", *(goal.other for goal in work.goals)]
    assert sum(int(run.heap(peer, work).removesuffix("g")) for peer in peers) <= MACHINE


@pytest.mark.parametrize("name", MOST_KEYS)
def test_a_million_keys_are_measured_from_the_same_row_on_and_over_as_many_rows(name: str) -> None:
    work = work_of(name)
    lengths = {run.length(goal.other, work) for goal in work.goals}
    assert {(each.warm_up, each.measured) for each in lengths} == {
        (work.warm_up * work.batch, work.measured * work.batch)
    }


def test_only_many_keys_take_more_memory() -> None:
    work = work_of("T2")
    assert [run.heap(peer, work) for peer in ("sparkjet", "jet", "flink", "spark")] == ["4g", "4g", "4g", "8g"]
    assert run.heap("jet", dataclasses.replace(work, keys=run.MOST_KEYS)) == "12g"
