"""Which rows are late, by the rule alone: every row is looked at by itself."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from tests.differential.cases import Case, Epoch, Judge
from tests.differential.marks import NEVER, Tracked

Rows = list[list[tuple[Any, ...]]]
UNDECIDED = frozenset({"BEGIN", "SAVE", "PREPARE"})
"""Where a crash comes before the decision, so that the epoch runs once more."""


def judged(case: Case, judge: Judge | None) -> tuple[list[Rows], Rows]:
    """Rows of each epoch and input that a step takes, and those that it drops: late, or without an event time."""
    kept: list[Rows] = []
    dropped: Rows = [[] for _ in case.inputs]
    apart = case.meet is not None and case.meet.judge is not None
    marks = Marks(case)
    for epoch in case.epochs:
        marks.begin(epoch)
        kept.append([[] for _ in case.inputs])
        for number in range(len(case.inputs)):
            mark = marks.own[number] if apart else min(marks.own)
            for event in epoch.rows[number]:
                late = judge is not None and (event.time is None or _is_late(event.time, mark, judge))
                (dropped if late else kept[-1])[number].append(event.record())
        marks.end(epoch)
    return kept, dropped


def _is_late(time: int, mark: int, judge: Judge) -> bool:
    return mark > NEVER and judge.is_late(time, mark)


class Marks:
    """The watermarks of the inputs, epoch by epoch, and what of them is recorded."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._now = case.start
        self._tracked = [Tracked(each.mark, case.start) for each in case.inputs if each.mark is not None]
        self._wait()
        self._recorded = deepcopy(self._tracked)

    @property
    def own(self) -> Sequence[int]:
        """That of each input."""
        return [each.emitted for each in self._tracked] or [NEVER] * len(self._case.inputs)

    def begin(self, epoch: Epoch) -> None:
        """The time before an epoch passes."""
        if not epoch.pause:
            return
        self._now += epoch.pause
        if any([each.advance(self._now) for each in self._tracked]):  # noqa: C419 - all of them
            self._recorded = deepcopy(self._tracked)

    def end(self, epoch: Epoch) -> None:
        """An epoch has its rows, and what happens then."""
        if epoch.then in UNDECIDED:
            self._tracked = deepcopy(self._recorded)
            self._restart()
        for number, tracked in enumerate(self._tracked):
            tops: dict[str, int] = {}
            for event in epoch.rows[number]:
                if event.time is not None:
                    name = event.substream if tracked.settings.by else ""
                    tops[name] = max(tops.get(name, event.time), event.time)
            for name, top in tops.items():
                tracked.report(name, top, self._now)
            tracked.advance(self._now)
        self._recorded = deepcopy(self._tracked)
        if epoch.then and epoch.then not in UNDECIDED:
            self._restart()
        if epoch.then.isupper() and epoch.then not in UNDECIDED:
            # It runs an epoch without rows, as its own has been decided.
            for tracked in self._tracked:
                tracked.advance(self._now)
            self._recorded = deepcopy(self._tracked)

    def _restart(self) -> None:
        self._wait()
        for tracked in self._tracked:
            tracked.resume(self._now)

    def _wait(self) -> None:
        for number, tracked in enumerate(self._tracked):
            names = self._case.substreams(number) if tracked.settings.listed else []
            tracked.wait_for(names if tracked.settings.by else [""], self._now)
