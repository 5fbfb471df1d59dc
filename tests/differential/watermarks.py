"""Which rows are late, by the rule alone: every row is looked at by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.differential.cases import Case, Input, Judge

Rows = list[list[tuple[Any, ...]]]


def judged(case: Case, judge: Judge | None) -> tuple[Rows, Rows]:
    """Rows of each input that a step takes, and those that it drops: late, or without an event time."""
    kept: Rows = [[] for _ in case.inputs]
    dropped: Rows = [[] for _ in case.inputs]
    tops: dict[tuple[int, str], int] = {}
    apart = case.meet is not None and case.meet.judge is not None
    marks: list[int | None] = [None] * len(case.inputs)
    for epoch in case.epochs:
        for number in range(len(case.inputs)):
            for event in epoch.rows[number]:
                late = judge is not None and (event.time is None or _is_late(event.time, marks[number], judge))
                (dropped if late else kept)[number].append(event.record())
        for number, each in enumerate(case.inputs):
            for event in epoch.rows[number]:
                if event.time is not None and each.lag is not None:
                    place = number, event.substream if each.by else ""
                    tops[place] = max(tops.get(place, event.time - each.lag), event.time - each.lag)
        marks = [_least(case, tops, (number,) if apart else range(len(marks))) for number in range(len(marks))]
    return kept, dropped


def _is_late(time: int, mark: int | None, judge: Judge) -> bool:
    return mark is not None and judge.floor(time) < judge.floor(mark)


def _least(case: Case, tops: dict[tuple[int, str], int], inputs: Sequence[int]) -> int | None:
    wanted = [(i, name) for i in inputs for name in _names(case, i, case.inputs[i])]
    return None if any(place not in tops for place in wanted) else min((tops[place] for place in wanted), default=None)


def _names(case: Case, number: int, each: Input) -> list[str]:
    return case.substreams(number) if each.by else [""]
