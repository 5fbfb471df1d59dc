"""The data that executors hold: compared before and after, as other tests of the session leave some, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def persisted(session: SparkSession) -> set[int]:
    """The ids of the RDDs that are persisted."""
    return {int(rdd) for rdd in session.sparkContext._jsc.getPersistentRDDs()}


def lose_partitions(session: SparkSession, rdd: int | DataFrame, numbers: Iterable[int]) -> None:
    """Remove the blocks of some partitions of a checkpoint, which Spark is told."""
    context = session.sparkContext
    if not isinstance(rdd, int):
        rdd = int(rdd._jdf.queryExecution().logical().rdd().id())
    # Not env.blockManager(): py4j would look for classes that Spark does not bring along.
    read = context._jvm.org.apache.commons.lang3.reflect.FieldUtils.readField
    manager = read(context._jsc.sc().env(), "blockManager", True)
    for number in numbers:
        block = context._jvm.org.apache.spark.storage.RDDBlockId(rdd, number)
        manager.removeBlock(block, True)
