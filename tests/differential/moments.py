"""When results come and when state goes: all rows are equal, too, of a query that keeps them until the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sparkjet.stateful.deduplication import Deduplication
from sparkjet.stateful.interval_join import IntervalJoin
from sparkjet.windows import SessionWindows, SlidingWindows
from tests.differential.cases import Case, Step, stateful
from tests.differential.marks import NEVER
from tests.differential.outlets import TextSink
from tests.differential.watermarks import Marks

if TYPE_CHECKING:
    from sparkjet.testing import StreamDriver

OUTER = ("left", "right", "full", "left_anti")
MILLISECOND = 1000


class Moments:
    """Looks at a driver after each of its epochs.

    Args:
        case: Its case.
        driver: The driver, which has had no rows yet.
        sinks: Where its results go.
    """

    def __init__(self, case: Case, driver: StreamDriver, sinks: Sequence[TextSink]) -> None:
        self._case, self._driver, self._sinks = case, driver, sinks
        self._rule = Marks(case)
        self._reached = NEVER
        self._seen = [0 for _ in sinks]
        self.lines: list[str] = []
        """What was wrong."""
        # To look at a query waits for the end of its epoch, beside which another one may run.
        self._looks = not dict(case.options).get("overlapEpochs")
        marks = [each.mark for each in case.inputs]
        # Rows that are dropped before it do not move a watermark.
        whole = not any(each.before for each in case.inputs)
        # And a query without state has none.
        holds = case.meet is not None and case.meet.judge is not None
        holds = holds or any(stateful(branch) < len(branch) for branch in case.branches)
        self._ruled = whole and holds and all(mark is not None and mark.throttle != "usual" for mark in marks)

    def begun(self, number: int) -> None:
        """The time before an epoch has passed."""
        self._rule.begin(self._case.epochs[number])
        if self._case.epochs[number].pause:
            self._look(f"before epoch {number}")

    def ended(self, number: int) -> None:
        """An epoch has ended, and the query may have started again."""
        self._rule.end(self._case.epochs[number])
        self._look(f"after epoch {number}")

    def ending(self) -> None:
        """The input is about to end, and no epoch runs."""
        self._new()

    def closed(self) -> None:
        """The input has ended."""
        for number, found in enumerate(self._new()):
            branch = self._branch(number)
            if found and branch is not None and not self._waits(branch):
                self.lines.append(f"result {number} has {len(found)} rows that come only at the end")
            passed = self._due(branch, self._reached) if branch and self._looks else None
            if passed is not None and any(end is not None and passed(end) for end in found):
                self.lines.append(f"result {number} has windows at the end that the watermark had passed before")
        for name, stage in self._driver.engine.state.stages.items():
            if self._is_over(stage.operator) and stage.entries:
                self.lines.append(f"{name} still has {stage.entries} rows of state")

    def _look(self, place: str) -> None:
        if not self._looks:
            return
        self._driver.engine.join()
        before, self._reached = self._reached, self._driver.engine.state.tracker.watermark
        wanted = min(self._rule.own, default=NEVER)
        if self._ruled and wanted != self._reached:
            self.lines.append(f"{place} the watermark is {self._reached}, not {wanted}")
        for number, found in enumerate(self._new()):
            branch = self._branch(number)
            ready, passed = (self._due(branch, mark) if branch else None for mark in (self._reached, before))
            if ready is None or passed is None:
                continue
            for end in found:
                if end is not None and (passed(end) or not ready(end)):
                    marks = f"the watermark was {before} before and is {self._reached}"
                    self.lines.append(f"{place} result {number} has a window that ends at {end}: {marks}")

    def _new(self) -> list[list[int | None]]:
        """For each result, when the windows of the rows end that have come since the last look."""
        found = [sink.ends() for sink in self._sinks]
        new = [ends[seen:] for ends, seen in zip(found, self._seen, strict=True)]
        self._seen = list(map(len, found))
        return new

    def _branch(self, number: int) -> tuple[Step, ...] | None:
        """The steps of a result of final rows, or of all rows that change."""
        is_one = number < len(self._case.branches) and not self._case.early and self._case.mode != "complete"
        return self._case.branches[number] if is_one else None

    def _waits(self, branch: tuple[Step, ...]) -> bool:
        """Whether some of its rows are final only at the end."""
        meet = self._case.meet.operator if self._case.meet else ""
        return meet.removeprefix("join ") in OUTER or (self._case.mode == "append" and _due(branch, 0) is not None)

    def _due(self, branch: tuple[Step, ...], watermark: int) -> Callable[[int], bool] | None:
        """As below; of a joined stream, not every row that is still to come is above the watermark."""
        return None if self._case.meet and self._case.meet.judge else _due(branch, watermark)

    def _is_over(self, operator: object) -> bool:
        if isinstance(operator, Deduplication):
            return operator.keep is not None
        return self._case.mode == "append" and isinstance(operator, SlidingWindows | SessionWindows | IntervalJoin)


def _due(branch: tuple[Step, ...], watermark: int) -> Callable[[int], bool] | None:
    """Tells of the ends of windows whether a watermark makes them final; None where there are no windows."""
    names = " ".join(step.operator for step in branch)
    if "rolling" in names:
        # Their rows come whenever they change.
        return None
    if "EventTimeTimeout" in names:
        return lambda end: max(1, end // MILLISECOND) <= watermark // MILLISECOND
    if "transformWithState" in names:
        return lambda end: end // MILLISECOND <= watermark // MILLISECOND
    if "session" in names:
        return lambda end: end < watermark
    return (lambda end: end <= watermark) if any(name in names for name in ("tumbling", "sliding", "window")) else None
