"""How a batch of limited size is shared among the backlogs of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Partition = TypeVar("Partition")


def limited(starts: Mapping[Partition, int], ends: Mapping[Partition, int], rows: int) -> dict[Partition, int]:
    """The ends of a batch of about ``rows`` offsets, split in proportion to each partition's backlog.

    Shares are rounded up, so that a small partition next to a big one makes progress too, as in Spark's own source.

    >>> limited({("t", 0): 0, ("t", 1): 0}, {("t", 0): 30, ("t", 1): 10}, 20)
    {('t', 0): 15, ('t', 1): 5}
    """
    left = {each: end - starts[each] for each, end in ends.items()}
    total = sum(left.values())
    if total <= rows:
        return dict(ends)
    return {each: starts[each] + -(-more * rows // total) for each, more in left.items()}
