"""Tasks of small epochs: fewer than the state has partitions, as each costs the driver time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.executors import cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = 10_000
"""Number of rows that one task reads faster than another task starts."""


def tasks_of_few(session: SparkSession, partitions: int, rows: int | None) -> int | None:
    """The number of tasks that read the partitions of ``rows`` rows, if they are few; None for one task per partition.

    A task costs the driver a millisecond. In epochs of a few rows, a state of 128 partitions would take most of their
    time for that, even on 128 cores. Numbers are powers of two, so that few different plans are kept, and at least two:
    the output of two tasks in the smallest epoch is committed like that of two hundred.
    """
    if rows is None:
        return None
    most = cores(session)
    tasks = min(most, max(2, 1 << max(0, -(-rows // FEW) - 1).bit_length()))
    return tasks if rows <= FEW * most and tasks < partitions else None
