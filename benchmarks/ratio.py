"""Ratios of throughputs, paired by round, and their files."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.work import Goal

RESULTS = Path(__file__).parent / "results"
"""Directory of figures and plots."""


@dataclass(frozen=True)
class Ratio:
    """sparkjet's throughput by a peer's in each round; empty if results differ, with the reason in ``wrong``.

    Args:
        id: Id of sparkjet's work.
        what: Description for the table, one line.
        goal: The goal, with the peer.
        rounds: One ratio per round.
        ours: sparkjet's median rate, in rows per second unless stated otherwise.
        theirs: The peer's median rate.
        wrong: Why there is no ratio: a difference in the results, or how a peer failed.
    """

    id: str
    what: str
    goal: Goal
    rounds: tuple[float, ...] = ()
    ours: float = 0.0
    theirs: float = 0.0
    wrong: str | None = None

    @classmethod
    def of_seconds(
        cls, id: str, what: str, goal: Goal, ours: Sequence[float], theirs: Sequence[float], amount: float = 1.0
    ) -> Ratio:
        """The ratio of two times of each round for the same amount of work."""
        rounds = tuple(other / one for one, other in zip(ours, theirs, strict=True))
        return cls(id, what, goal, rounds, amount / statistics.median(ours), amount / statistics.median(theirs))

    @property
    def median(self) -> float | None:
        """The ratio that is compared with the goal."""
        return statistics.median(self.rounds) if self.rounds and self.wrong is None else None

    @property
    def met(self) -> bool:
        """Whether the median reaches the goal; never without a ratio."""
        return self.median is not None and self.median >= self.goal.at_least


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A work in the file of figures: medians by peer, goals, and whether all are met; the rest is in ``ratios``."""

    id: str
    work: str
    ratio_to: dict[str, float | None]
    goal: dict[str, float]
    met: bool
    ratios: list[Ratio]

    @classmethod
    def of(cls, ratios: list[Ratio]) -> Entry:
        """The entry of a work's ratios."""
        return cls(
            id=ratios[0].id,
            work=ratios[0].what,
            ratio_to={ratio.goal.other: ratio.median for ratio in ratios},
            goal={ratio.goal.other: ratio.goal.at_least for ratio in ratios},
            met=all(ratio.met for ratio in ratios),
            ratios=ratios,
        )


def read(file: Path) -> list[Ratio]:
    """The ratios of a file that :func:`write` has written; none if there is no such file."""
    entries = msgspec.json.decode(file.read_bytes(), type=list[Entry]) if file.exists() else []
    return [ratio for entry in entries for ratio in entry.ratios]


def write(ratios: list[Ratio], file: Path) -> list[Ratio]:
    """Write ratios as JSON, one entry per work, and keep other works in the file; returns its whole content."""
    works: dict[str, list[Ratio]] = {}
    for ratio in read(file):
        works.setdefault(ratio.id, []).append(ratio)
    for name in dict.fromkeys(ratio.id for ratio in ratios):
        works[name] = [ratio for ratio in ratios if ratio.id == name]
    save([Entry.of(own) for own in works.values()], file)
    return [ratio for own in works.values() for ratio in own]


def save(found: object, file: Path) -> None:
    """Write figures as readable JSON."""
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
