"""How the driver's processor time for an epoch grows with partitions of the state, substreams and executors.

``python -m benchmarks.scale``, half an hour. One of the three differs from the smallest query at a time; the slopes are
of a least-squares line through each. What an epoch costs the executors follows its rows, which are the same throughout.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.partitions import measure

SMALLEST = {"partitions": 2, "substreams": 1, "executors": 2}
SIZES = {
    "partitions": (2, 128, 271, 1_000),
    "substreams": (1, 100, 1_000, 10_000),
    "executors": (1, 2, 4, 8),
}


WARM_UP, ROUNDS = 15, 3
"""Epochs, and rounds: the driver's JVM goes on from one query to the next."""


def cost(dimension: str, size: int) -> float:
    """The driver's processor seconds for an epoch, the median of all rounds."""
    given = {**SMALLEST, dimension: size}
    with tempfile.TemporaryDirectory(prefix="sparkjet-scale-") as home:
        partitions = given.pop("partitions")
        return statistics.median(measure(partitions, Path(home), **given, warm_up=WARM_UP, rounds=ROUNDS))


def main() -> None:
    """Print a table of what was measured, and the slope of each."""
    cases = [(dimension, size) for dimension, sizes in SIZES.items() for size in sizes]
    # Once more, and first: it is compiled by then.
    cost("partitions", SMALLEST["partitions"])
    found = {case: cost(*case) for case in track(cases, "scale")}
    table = Table("", "of them", "driver's ms an epoch", "ms for each further one")
    for dimension, sizes in SIZES.items():
        slope, _ = np.polyfit(sizes, [found[dimension, size] for size in sizes], 1)
        for size in sizes:
            shown = f"{slope * 1000:.3f}" if size == sizes[-1] else ""
            table.add_row(dimension, f"{size:,}", f"{found[dimension, size] * 1000:.0f}", shown)
    Console().print(table)


if __name__ == "__main__":
    main()
