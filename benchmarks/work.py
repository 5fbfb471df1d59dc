"""Pieces of work that every engine can be given, and what is hoped of them."""

from __future__ import annotations

from dataclasses import dataclass

STEP_SECONDS = 1


@dataclass(frozen=True)
class Goal:
    """A ratio of throughputs that is hoped for.

    Args:
        other: What sparkjet is set against: a peer on the same work (``jet``), or a peer on another work (``jet@T1``).
        at_least: The least ratio.
    """

    other: str
    at_least: float


@dataclass(frozen=True)
class Work:
    """Sliding windows of ``steps`` seconds that move by one second, over the generated input of :mod:`feed`.

    Args:
        id: Short name; a goal of the issue.
        what: One line for the table.
        steps: Length of the window in steps of one second; 0 for sessions of a second's gap.
        keys: Number of keys.
        aggregates: Some of ``count``, ``sum``, ``avg``, ``max``, ``percentile``.
        density: Events per second of event time.
        guarantee: ``exactly-once`` or ``none``.
        batch: Rows of an epoch of sparkjet, such that one takes about a second.
        measured: Epochs of sparkjet that are measured.
        goals: What sparkjet's throughput is set against.
    """

    id: str
    what: str
    steps: int = 60
    keys: int = 1_000
    aggregates: tuple[str, ...] = ("count", "sum", "avg")
    density: int = 1_000_000
    guarantee: str = "exactly-once"
    batch: int = 4_000_000
    measured: int = 10
    goals: tuple[Goal, ...] = ()

    @property
    def question(self) -> tuple[object, ...]:
        """Two works with the same question have the same results, however they are computed."""
        return self.steps, self.keys, self.aggregates, self.density


WORKS = (
    Work(
        "T1",
        "60 steps, 1,000 keys, count + sum + avg",
        goals=(Goal("jet", 1.0), Goal("spark", 50.0)),
    ),
    Work(
        "T2",
        "60 steps, 100,000 keys, count + sum + avg",
        keys=100_000,
        batch=1_000_000,
        measured=15,
        goals=(Goal("jet", 1.0), Goal("spark", 15.0)),
    ),
)
"""In the order in which they run."""


def work_of(identifier: str) -> Work:
    """The work with that id.

    Raises:
        KeyError: There is none; the message lists those there are.
    """
    for work in WORKS:
        if work.id == identifier:
            return work
    raise KeyError(f"no work {identifier!r}; there are {', '.join(work.id for work in WORKS)}")
