"""Room in the hash table of Spark's partial aggregation: the general one, for keys without a place, is slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPACITY = "spark.sql.codegen.aggregate.fastHashMap.capacityBit"
USUAL, LARGE = "18", "20"
"""Base-2 logarithms of a task's capacity in groups. Spark's default, 16, costs a quarter more at 100,000 keys."""
MANY = 1 << 17
"""Number of groups from which the usual table fills up: a group that finds no place in two steps is not in it."""


def make_room(session: SparkSession, groups: int | None) -> None:
    """Use the large table if there are many groups; on the driver, before a plan is executed.

    Not always, as clearing it takes milliseconds of each task. A query that has once had as many groups keeps it.
    """
    if groups is not None and groups > MANY:
        session.conf.set(CAPACITY, LARGE)
