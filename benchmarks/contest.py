"""Rounds in which engines take turns on one work."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.compare import difference, tolerance
from benchmarks.ratio import Ratio
from benchmarks.report import Report
from benchmarks.run import PeerError
from benchmarks.work import Goal, Work, work_of

Runner = Callable[[str, Work], Report]


class Once:
    """A runner that runs what several works ask for once in a round.

    Args:
        runner: Runs a work on a peer; raises PeerError.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._done: dict[tuple[str, Work], Report | PeerError] = {}

    def __call__(self, peer: str, work: Work) -> Report:
        """The report of this round."""
        asked = peer, dataclasses.replace(work, id="", what="", goals=())
        if asked not in self._done:
            try:
                self._done[asked] = self._runner(peer, work)
            except PeerError as error:
                self._done[asked] = error
        done = self._done[asked]
        if isinstance(done, PeerError):
            raise done
        return done

    def next_round(self) -> None:
        """Forget what was run."""
        self._done.clear()


@dataclass
class Contest:
    """One work of ours and everything that it is set against.

    Args:
        work: Ours.
        runner: Runs a work on a peer; raises PeerError.
        rounds: Rounds that were run.
        longest: Seconds of the longest of them.
    """

    work: Work
    runner: Runner
    reports: dict[str, list[Report]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    longest: float = 0.0

    def round(self) -> None:
        """Run ours, then each of the others once; one that failed is not tried again."""
        started = time.monotonic()
        self.rounds += 1
        for name in ["sparkjet", *[goal.other for goal in self.work.goals]]:
            if name in self.failures:
                continue
            try:
                self.reports.setdefault(name, []).append(self.runner(*self.side(name)))
            except PeerError as error:
                self.failures[name] = str(error)
        self.longest = max(self.longest, time.monotonic() - started)

    def side(self, name: str) -> tuple[str, Work]:
        """The peer and the work behind ``jet`` or ``jet@T1``."""
        peer, _, other = name.partition("@")
        return peer, work_of(other) if other else self.work

    def ratios(self) -> list[Ratio]:
        """What came of it, one ratio for each goal."""
        return [self.ratio(goal) for goal in self.work.goals]

    def ratio(self, goal: Goal) -> Ratio:
        """Ours by one other; without a ratio where the results of any round differ."""
        ratio = Ratio(self.work.id, self.work.what, goal)
        failed = [self.failures[name] for name in ("sparkjet", goal.other) if name in self.failures]
        if failed:
            return dataclasses.replace(ratio, wrong="\n".join(failed))
        ours, theirs = self.reports["sparkjet"], self.reports[goal.other]
        if self.side(goal.other)[1].question == self.work.question:
            allowed = tolerance(self.work.aggregates)
            for one, other in zip(ours, theirs, strict=True):
                if (wrong := difference(one, other, allowed)) is not None:
                    return dataclasses.replace(ratio, wrong=wrong)
        return dataclasses.replace(
            ratio,
            rounds=tuple(one.rate / other.rate for one, other in zip(ours, theirs, strict=True)),
            ours=statistics.median(report.rate for report in ours),
            theirs=statistics.median(report.rate for report in theirs),
        )
