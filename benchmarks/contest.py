"""A contest: engines take turns on works, round by round, which yields ratios."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from benchmarks.compare import difference, tolerance
from benchmarks.process import PeerError
from benchmarks.ratio import Ratio
from benchmarks.report import Results, Stretch
from benchmarks.work import Goal, Work, work_of


class Peer(Protocol):
    """An engine that runs a work."""

    def stretch(self) -> Stretch:
        """Run until it has measured a stretch; raises PeerError."""

    def results(self) -> Results:
        """Run to the end; raises PeerError."""

    def end(self) -> None:
        """Kill its remaining processes."""


Side = tuple[str, Work]
"""Name of an engine, and the work without the fields for the table: equal ones run once."""


class Contest:
    """Works of one family, and all their peers.

    Args:
        works: sparkjet's works.
        start: Starts an engine, by name, with a work.
        progress: Called with each stretch, for progress.
    """

    def __init__(
        self,
        works: Sequence[Work],
        start: Callable[[str, Work], Peer],
        progress: Callable[[str, Work, Stretch], None] = lambda *_: None,
    ) -> None:
        self._works = works
        self._start = start
        self._progress = progress
        self._peers: dict[Side, Peer] = {}
        self._stretches: dict[Side, list[Stretch]] = {}
        self._results: dict[Side, Results] = {}
        self._failures: dict[Side, str] = {}

    def run(self, rounds: int) -> list[Ratio]:
        """Let all take turns for so many rounds; one that fails is not retried. Returns one ratio per goal."""
        goals = [(work, name) for work in self._works for name in ("sparkjet", *(goal.other for goal in work.goals))]
        sides: dict[Side, Work] = {}
        for work, name in goals:
            sides.setdefault(side(work, name), work_behind(work, name))
        with ExitStack() as stack:
            for _ in range(rounds):
                for key, work in sides.items():
                    self._turn(key, work, stack)
            for key, peer in self._peers.items():
                if key not in self._failures:
                    self._end(key, peer)
        return [self._ratio(work, goal) for work in self._works for goal in work.goals]

    def _turn(self, key: Side, work: Work, stack: ExitStack) -> None:
        if key in self._failures:
            return
        try:
            if key not in self._peers:
                # Warmed up in its turn, not before the rounds.
                self._peers[key] = self._start(key[0], work)
                stack.callback(self._peers[key].end)
            measured = self._peers[key].stretch()
        except PeerError as error:
            self._failures[key] = str(error)
            return
        self._stretches.setdefault(key, []).append(measured)
        self._progress(key[0], work, measured)

    def _end(self, key: Side, peer: Peer) -> None:
        try:
            self._results[key] = peer.results()
        except PeerError as error:
            self._failures[key] = str(error)
        # Frees its memory for the works that follow.
        peer.end()

    def _ratio(self, work: Work, goal: Goal) -> Ratio:
        """Throughput of sparkjet by that of a peer; without a ratio if results differ."""
        ratio = Ratio(work.id, work.what, goal)
        ours, theirs = side(work, "sparkjet"), side(work, goal.other)
        failed = [self._failures[key] for key in (ours, theirs) if key in self._failures]
        if failed:
            return dataclasses.replace(ratio, wrong="\n".join(failed))
        if theirs[1].question == work.question:
            allowed = tolerance(work.aggregates)
            if (wrong := difference(self._results[ours], self._results[theirs], allowed)) is not None:
                return dataclasses.replace(ratio, wrong=wrong)
        pairs = list(zip(self._stretches[ours], self._stretches[theirs], strict=True))
        return dataclasses.replace(
            ratio,
            rounds=tuple(one.rate / other.rate for one, other in pairs),
            ours=statistics.median(one.rate for one, _ in pairs),
            theirs=statistics.median(other.rate for _, other in pairs),
        )


def work_behind(work: Work, name: str) -> Work:
    """The work of ``jet`` or ``jet@T1``."""
    _, _, other = name.partition("@")
    return work_of(other) if other else work


def side(work: Work, name: str) -> Side:
    """The engine and work of ``jet`` or ``jet@T1``."""
    return name.partition("@")[0], dataclasses.replace(work_behind(work, name), id="", what="", family="", goals=())
