"""The faster of Spark's hash tables: room in it, and which aggregations use it; the general one takes twice as long."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPACITY = "spark.sql.codegen.aggregate.fastHashMap.capacityBit"
USUAL, LARGE = "18", "20"
"""Base-2 logarithms of a task's capacity in groups. Spark's default, 16, costs a quarter more at 100,000 keys."""
MANY = 1 << 17
"""Number of groups from which the usual table fills up: a group that finds no place in two steps is not in it."""
ONLY_PARTIAL = "spark.sql.codegen.aggregate.map.twolevel.partialOnly"
"""Whether final aggregations use the general table, as by default: Spark thinks of groups that find no place."""
SEVERAL = 1 << 15
"""Number of groups from which the general table costs more than to get memory for the faster one."""


def make_room(session: SparkSession, groups: int | None) -> None:
    """Use the faster table for what is aggregated of several groups, and a large one for many; on the driver.

    Before a plan is executed. Not always, as clearing it takes milliseconds of each task. A query that has once had as
    many groups keeps it.
    """
    if groups is not None and groups > SEVERAL:
        session.conf.set(ONLY_PARTIAL, "false")
    if groups is not None and groups > MANY:
        session.conf.set(CAPACITY, LARGE)
