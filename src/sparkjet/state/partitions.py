"""Checkpointed rows: freed explicitly, and patched where partitions were lost with an executor."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from sparkjet.catalyst.tables import table_of
from sparkjet.java import scala_context, static_method

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
"""Spark's error condition for a task that fails because a partition is missing."""


def release(checkpointed: DataFrame) -> None:
    """Free the blocks of a DataFrame made by ``localCheckpoint``.

    ``DataFrame.unpersist`` only looks in the cache manager, which does not list local checkpoints, and waiting for
    garbage collection would let a long query fill its executors. So this unpersists the RDD in the logical plan.
    """
    table = table_of(checkpointed)
    if table is not None and table.plan is None:
        # Not RDD.unpersist: it warns each time that a truncated lineage cannot be recomputed, which fills the log.
        scala_context(checkpointed.sparkSession).unpersistRDD(table.rdd.id(), False)


def hold(checkpointed: DataFrame) -> None:
    """Materialize a lazy ``localCheckpoint`` that no job has read, before its inputs are freed."""
    table = table_of(checkpointed)
    if table is not None and not table.rdd.isCheckpointed():
        table.rdd.count()


def partition_count(checkpointed: DataFrame) -> int:
    """Number of partitions of a DataFrame made by ``localCheckpoint``."""
    return int(_checkpoint(checkpointed).getNumPartitions())


def lost_partitions(checkpointed: DataFrame) -> frozenset[int]:
    """The partitions of a DataFrame made by ``localCheckpoint`` that no executor holds, as far as Spark knows.

    Returns all of them if no job has read it yet. Spark believes that an executor holds its partitions until it notices
    that the executor is gone, so Spark may report none as lost although a task has already failed for lack of one.
    """
    rdd = _checkpoint(checkpointed)
    numbers = range(rdd.getNumPartitions())
    context = checkpointed.sparkSession.sparkContext
    gateway: Any = context._gateway
    storage = gateway.jvm.org.apache.spark.storage
    blocks = gateway.new_array(storage.BlockId, len(numbers))
    for number in numbers:
        blocks[number] = storage.RDDBlockId(rdd.id(), number)
    places = storage.BlockManager.blockIdsToLocations(blocks, context._jsc.sc().env(), None)
    return frozenset(number for number in numbers if places.apply(blocks[number]).isEmpty())


@dataclass(frozen=True)
class Held:
    """What executors have reported to hold of one DataFrame: bytes, and how many of its partitions."""

    memory: int = 0
    disk: int = 0
    told: int = 0
    partitions: int = 0


def held_by_executors(checkpointed: Iterable[DataFrame]) -> list[Held]:
    """What executors hold of DataFrames made by ``localCheckpoint``, in their order; the same one counts once.

    As Spark's status store has it from the executors: of what was stored last, it may know all only at the next
    heartbeat.
    """
    tables = [(each.sparkSession, table_of(each)) for each in checkpointed]
    if not tables:
        return []
    session = tables[0][0]
    # Not by SparkEnv's block manager: looking for its methods loads classes that Spark does not ship. And as one text:
    # to ask for each number of each table took a tenth of all calls of an epoch.
    shown = static_method(session, "scala.runtime.ScalaRunTime.stringOf")(scala_context(session).getRDDStorageInfo())
    found = told_in(str(shown))
    return [Held() if table is None else found.pop(table.identity, Held()) for _, table in tables]


def told_in(shown: str) -> dict[int, Held]:
    """What executors hold, by the number of the RDD, from Spark's text of it, in which sizes are rounded.

    >>> level = "StorageLevel(disk, memory, deserialized, 1 replicas)"
    >>> counts = "CachedPartitions: 1; TotalPartitions: 2; MemorySize: 2.5 KiB; DiskSize: 0.0 B"
    >>> told_in(f'Array(RDD "rows (of 7)" (42) StorageLevel: {level}; {counts})')
    {42: Held(memory=2560, disk=0, told=1, partitions=2)}
    """
    return {
        int(each["rdd"]): Held(_size(each["memory"]), _size(each["disk"]), int(each["told"]), int(each["partitions"]))
        for each in _TOLD.finditer(shown)
    }


def _size(shown: str) -> int:
    number, unit = shown.split()
    return round(float(number) * _UNITS[unit])


_TOLD = re.compile(
    r"\((?P<rdd>\d+)\) StorageLevel: [^;]*; CachedPartitions: (?P<told>\d+); TotalPartitions: (?P<partitions>\d+); "
    r"MemorySize: (?P<memory>[\d.]+ \w+); DiskSize: (?P<disk>[\d.]+ \w+)"
)
_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}


def entry_size(segments: Sequence[tuple[int, Held]]) -> float:
    """The bytes that executors hold for an entry, from the rows of segments and what has been told of them.

    Only segments of which all partitions have been told count, else executors that are late, or one that is gone, would
    make entries look small; where there is none, what is told of the others stands for the rest. 0 if nothing is.
    """
    told = [(rows, held) for rows, held in segments if rows and held.told]
    whole = [(rows, held) for rows, held in told if held.told >= held.partitions]
    chosen = whole or told
    size = sum((held.memory + held.disk) * max(1.0, held.partitions / held.told) for _, held in chosen)
    return size / max(1, sum(rows for rows, _ in chosen))


def patched(rows: DataFrame, others: DataFrame, lost: AbstractSet[int]) -> DataFrame:
    """Rows with some partitions replaced by those of other rows; partitioned as before, and persisted once read."""
    session = rows.sparkSession
    gateway: Any = session.sparkContext._gateway
    jvm = gateway.jvm
    kept, replaced = (each._jdf.queryExecution().toRdd() for each in (rows, others))
    runs = groupby(range(kept.getNumPartitions()), key=lost.__contains__)
    parts = [_pruned(jvm, replaced if is_lost else kept, run) for is_lost, run in runs]
    # Spark's own union would combine them partition by partition, and request all partitions of both.
    united = jvm.org.apache.spark.rdd.UnionRDD(
        session.sparkContext._jsc.sc(), jvm.PythonUtils.toSeq(parts), kept.elementClassTag()
    )
    # The plan of a checkpoint of the rows says how they are partitioned; Spark would not know it otherwise.
    template = rows.localCheckpoint(eager=False)
    plan = template._jdf.queryExecution().logical()
    release(template)
    arguments = gateway.new_array(jvm.java.lang.Object, plan.productArity())
    for place in range(len(arguments)):
        arguments[place] = united if plan.productElementName(place) == "rdd" else plan.productElement(place)
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan.makeCopy(arguments))
    # As a checkpoint: a job on anything else would complete the lazy ones below it, and so compute all of the others.
    return DataFrame(dataset, session).localCheckpoint(eager=False)


def _pruned(jvm: Any, rdd: Any, numbers: Iterable[int]) -> Any:
    # A set is a function in Scala; a Python function would be called from the JVM.
    chosen = jvm.PythonUtils.toSeq(list(numbers)).toSet()
    return jvm.org.apache.spark.rdd.PartitionPruningRDD.create(rdd, chosen)


def _checkpoint(checkpointed: DataFrame) -> Any:
    return checkpointed._jdf.queryExecution().logical().rdd()
