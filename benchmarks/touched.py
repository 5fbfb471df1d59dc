"""The cost of an epoch that touches some of few keys and of many, which take turns in one warm driver."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from benchmarks.ratio import Ratio
from benchmarks.work import Goal
from sparkjet.state import Segment

PARTITIONS = 2
SIZES = (10_000, 1_000_000)
TOUCHED = 1_000
WARM_UP = 8
ROUNDS = 11
GOAL = 1 / 1.5


class Keyed(Protocol):
    """An operator with state by key."""

    @property
    def segments(self) -> Sequence[Segment]:
        """What it holds."""


class Feed(Protocol):
    """An operator that holds many keys, and epochs for it."""

    @property
    def operator(self) -> Keyed:
        """The operator that is measured."""

    def touch(self) -> tuple[float, int]:
        """One epoch of so many keys: its seconds from partial rows to results, and the number of results."""


def touched(
    identifier: str,
    what: str,
    feed_of: Callable[[int], Feed],
    sizes: tuple[int, int] = SIZES,
    keys: int = TOUCHED,
) -> Ratio:
    """The median time of an epoch with few keys by that with many.

    Args:
        identifier: Of the ratio.
        what: What is touched, such as ``open sessions``.
        feed_of: Makes the operator, with this many keys.
        sizes: Few keys and many.
        keys: How many an epoch touches.
    """
    seconds = seconds_of_epochs(what, feed_of, sizes)
    # Of medians: which of two neighbouring epochs merges segments does not depend on the size.
    few, many = (statistics.median(seconds[size]) for size in sizes)
    told = f"an epoch that touches {keys:,} of {sizes[1]:,} {what}"
    return Ratio.of_seconds(identifier, told, Goal(f"{keys:,} of {sizes[0]:,}", GOAL), [many], [few])


def seconds_of_epochs(what: str, feed_of: Callable[[int], Feed], sizes: Sequence[int]) -> dict[int, list[float]]:
    """The seconds of epochs by the number of keys; the sizes take turns."""
    feeds = {size: feed_of(size) for size in sizes}
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    for round_ in range(WARM_UP + ROUNDS):
        for size, feed in feeds.items():
            taken, results = feed.touch()
            segments = [segment.statistics.rows for segment in feed.operator.segments]
            print(f"{round_:3} {size:9,} {what} {taken:7.3f} s, {results} results, rows {segments}", file=sys.stderr)
            if round_ >= WARM_UP:
                seconds[size].append(taken)
    return seconds
