"""The rule by which the oracle calls rows late, against the tracker of a query, over thousands of cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sparkjet as sj
from sparkjet.time import MIN, SubstreamTracker
from tests.differential.cases import Case, Epoch
from tests.differential.marks import NEVER, POLICY_CALLS, THROTTLES, Mark
from tests.differential.queries import random_case
from tests.differential.watermarks import UNDECIDED, Marks

ENOUGH = 300


def tracker(mark: Mark) -> SubstreamTracker:
    """That of a query that is written so."""
    made: dict[str, Any] = {}
    text = mark.call("", ["x", "y"])
    exec(  # noqa: S102 - what a query says
        f"found = rows{text}", {"sj": sj, "rows": _Rows(made)}
    )
    policy, throttle = made["policy"], made["throttle"]
    policy = sj.limiting_lag(policy) if isinstance(policy, str) else policy
    timeouts = {"discover": made["discover"], "substream_timeout": made["substreamTimeout"]}
    return SubstreamTracker(policy, throttle, made["idleTimeout"], **timeouts)


class _Rows:
    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def withWatermark(self, time: str, policy: object, **options: object) -> None:
        """Remember what it is called with."""
        names = ("idleTimeout", "substreamTimeout", "discover", "throttle")
        self._found |= {"policy": policy, **{name: options.get(name) for name in names}}


class Replayed:
    """A query's tracker through the epochs of a case, with what restarts do."""

    def __init__(self, case: Case) -> None:
        (each,) = case.inputs
        assert each.mark is not None
        self.case, self.now, self.mark = case, case.start, each.mark
        self.names = (case.substreams(0) if each.mark.listed else []) if each.by else [""]
        self.make: Callable[[], SubstreamTracker] = lambda: tracker(self.mark)
        self.tracker = self.make()
        self.wait()
        # As at every start; substreams that are not listed have not read the clock.
        self.tracker.resume(self.now)
        self.recorded = self.tracker.snapshot()

    def wait(self) -> None:
        """As at every start."""
        for name in self.names:
            self.tracker.add(name, self.now)

    def restart(self) -> None:
        """Go on from the record."""
        self.tracker = self.make()
        self.tracker.restore(self.recorded)
        self.wait()
        self.tracker.resume(self.now)

    def advance(self, *, record: bool) -> None:
        """Poll; an epoch without rows is one only if the watermark moves."""
        moved = self.tracker.advance(self.now).watermark is not None
        if moved or record:
            self.recorded = self.tracker.snapshot()

    def begin(self, epoch: Epoch) -> None:
        """The time before it passes."""
        if epoch.pause:
            self.now += epoch.pause
            self.advance(record=False)

    def end(self, epoch: Epoch) -> None:
        """Its rows, and a restart."""
        if epoch.then in UNDECIDED:
            self.restart()
        tops: dict[str, int] = {}
        for event in epoch.rows[0]:
            if event.time is not None:
                name = event.substream if self.mark.by else ""
                tops[name] = max(tops.get(name, event.time), event.time)
        for name, top in tops.items():
            self.tracker.report(name, top, self.now)
        self.advance(record=True)
        if epoch.then and epoch.then not in UNDECIDED:
            self.restart()
        if epoch.then.isupper() and epoch.then not in UNDECIDED:
            self.advance(record=True)


def test_both_have_the_same_watermark() -> None:
    policies, throttles, seed, tried = set(), set(), -1, 0
    while tried < ENOUGH:
        seed += 1
        case = random_case(seed)
        if not case.late or len(case.inputs) > 1:
            continue
        tried += 1
        rule, real = Marks(case), Replayed(case)
        policies.add(real.mark.policy)
        throttles.add(real.mark.throttle)
        for number, epoch in enumerate(case.epochs):
            rule.begin(epoch)
            real.begin(epoch)
            assert _shown(rule.own[0]) == _shown(real.tracker.watermark), f"seed {seed}, before epoch {number}"
            rule.end(epoch)
            real.end(epoch)
            assert _shown(rule.own[0]) == _shown(real.tracker.watermark), f"seed {seed}, after epoch {number}"
    assert policies == set(POLICY_CALLS)
    assert throttles == set(THROTTLES) - {"usual"}


def _shown(watermark: int) -> int | None:
    return None if watermark in {MIN, NEVER} else watermark
