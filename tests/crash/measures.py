"""Measures: the expected aggregates of a query, computed from a group's events."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tests.crash.feeds import Event
from tests.crash.replay import Compute


def mean(column: str) -> Compute:
    """Of a column."""
    return lambda events: sum(event[column] for event in events) / len(events)


def of(function: Callable[[list[float]], float], column: str) -> Compute:
    """A function of a column's values."""
    return lambda events: function([event[column] for event in events])


def rank(part: float, column: str) -> Compute:
    """The smallest value that at least ``part`` of all values do not exceed."""

    def compute(events: Sequence[Event]) -> float:
        ordered = sorted(event[column] for event in events)
        return float(ordered[math.ceil(part * len(ordered)) - 1])

    return compute
