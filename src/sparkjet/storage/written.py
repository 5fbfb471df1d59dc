"""Written files: what the tasks of a job have written, found again by the driver before anything relies on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Observation
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Refuse = Callable[[str], Exception]
"""Makes the error for a message."""

REMEDY = "Use a directory that the driver and every executor see under the same path, such as a shared mount."
ROWS = "rows"
_PARTITION = "_sparkjet_partition"
_PARTITIONS = "partitions"
_SHOWN = 10


@dataclass(frozen=True)
class Written:
    """Rows of a write, and the files that hold them, relative to its directory."""

    rows: int
    files: list[Path]


def write(rows: DataFrame, directory: Path, save: Callable[[DataFrame], None], refuse: Refuse) -> Written:
    """Write rows with one of Spark's writers, and see that the driver has a file of every task that had rows.

    An executor with another directory under the same path writes, and succeeds, where nobody will ever look: neither
    Spark nor its commit protocol notices.

    Args:
        rows: The rows, with the partitions they are to be written in.
        directory: Where ``save`` writes to; it must not exist yet.
        save: Writes a DataFrame of the same rows.
        refuse: Makes the error.

    Raises:
        Exception: Made by ``refuse``: a file is missing, or Spark did not say what was written.
    """
    observation = Observation()
    # A column of its own: in an aggregate of an observation spark_partition_id() is not initialized. A set, as the
    # tasks of a job may run more than once.
    observed = (
        rows.withColumn(_PARTITION, F.spark_partition_id())
        .observe(observation, F.count(F.lit(1)).alias(ROWS), F.collect_set(_PARTITION).alias(_PARTITIONS))
        .drop(_PARTITION)
    )
    context = rows.sparkSession.sparkContext
    tag = f"sparkjet-{os.urandom(8).hex()}"
    context.addJobTag(tag)
    try:
        save(observed)
    finally:
        context.removeJobTag(tag)
    found = metrics(observation, f"{directory}", refuse)
    files = sorted(_files(directory))
    seen = {int(file.name.split("-")[1]) for file in files}
    unseen = sorted(set(found[_PARTITIONS]) - seen)
    if unseen:
        hosts = _hosts(rows.sparkSession, tag, unseen)
        message = (
            f"The driver does not see the files that {len(unseen)} of {len(found[_PARTITIONS])} tasks have written to "
            f"{directory} (partitions {_listed(unseen)}{f'; hosts {_listed(hosts)}' if hosts else ''}). {REMEDY}"
        )
        raise refuse(message)
    return Written(found[ROWS], files)


def metrics(observation: Observation, what: str, refuse: Refuse) -> dict[str, Any]:
    """What an observation with ``ROWS`` has counted.

    Raises:
        Exception: Made by ``refuse``: without metrics nothing is known, which must not pass for "no rows".
    """
    message = f"Spark did not report how many rows it wrote ({what}), so none of them are relied on. Start again."
    try:
        found = observation.get
    except Py4JJavaError as error:
        raise refuse(message) from error
    if ROWS not in found:
        raise refuse(message)
    return found


def _files(directory: Path) -> Iterable[Path]:
    """The files of committed tasks; what a late or speculative task attempt left in ``_temporary`` never counts."""
    paths = (path.relative_to(directory) for path in directory.rglob("part-*") if path.is_file())
    return (path for path in paths if path.parts[0] != "_temporary")


def _hosts(session: SparkSession, tag: str, partitions: Collection[int]) -> list[str]:
    """Where partitions were written, as far as Spark still knows."""
    context = session._jsparkSession.sparkContext()
    tracker = context.statusTracker()
    job = tracker.getJobInfo(max(tracker.getJobIdsForTag(tag)))
    if job.isEmpty():
        return []
    # The stages before the last one have partitions of their own.
    tasks = context.statusStore().taskList(max(job.get().stageIds()), 0, 1_000_000)
    hosts = {tasks.apply(n).host() for n in range(tasks.size()) if tasks.apply(n).partitionId() in partitions}
    return sorted(hosts)


def _listed(values: Collection[object]) -> str:
    """The first of some values, for a message."""
    shown = ", ".join(str(value) for value in list(values)[:_SHOWN])
    return shown if len(values) <= _SHOWN else f"{shown}, … ({len(values)} in all)"
