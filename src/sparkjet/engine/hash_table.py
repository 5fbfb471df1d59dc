"""Room in the hash table by which Spark aggregates partially: its general one, for what finds no place, is slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPACITY = "spark.sql.codegen.aggregate.fastHashMap.capacityBit"
USUAL, LARGE = "18", "20"
"""Logarithms of the groups that a task has room for. Spark's default, 16, costs a quarter more at 100,000 keys."""
MANY = 1 << 17
"""Groups from which on the usual table fills up: what does not find its place in two steps is not in it."""


def make_room(session: SparkSession, groups: int | None) -> None:
    """Take the large table if there are many groups; on the driver, before a plan is executed.

    Not always, as it takes milliseconds of each task to clear it. A query that has had as many once keeps it.
    """
    if groups is not None and groups > MANY:
        session.conf.set(CAPACITY, LARGE)
