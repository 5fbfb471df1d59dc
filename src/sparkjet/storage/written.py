"""Written files: the driver verifies that it sees the files of all tasks before anything relies on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Observation
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.storage.file_writer import FileWriter

Refuse = Callable[[str], Exception]
"""Creates the error for a message."""

REMEDY = "Use a directory that the driver and every executor see under the same path, such as a shared mount."
ROWS = "rows"
_PARTITION = "_sparkjet_partition"
_PARTITIONS = "partitions"
_SHOWN = 10


@dataclass(frozen=True)
class Written:
    """Number of rows written, and their files, relative to the directory."""

    rows: int
    files: list[str]


def write(rows: DataFrame, writer: FileWriter, refuse: Refuse) -> Written:
    """Write rows as files, and verify that the driver sees one of every task that had rows.

    An executor with a different directory under the same path succeeds in writing files that are never read, which
    neither Spark nor its commit protocol detects.

    Args:
        rows: The rows, partitioned as they are to be written.
        writer: Writes them, into a directory that does not exist yet.
        refuse: Creates the error.

    Raises:
        Exception: Created by ``refuse``: a file is missing, or Spark did not report what was written.
    """
    observation = Observation()
    # As a column, because spark_partition_id() is not initialized inside an observation's aggregate. As a set, because
    # tasks may run more than once.
    observed = (
        rows.withColumn(_PARTITION, F.spark_partition_id())
        .observe(observation, F.count(F.lit(1)).alias(ROWS), F.collect_set(_PARTITION).alias(_PARTITIONS))
        .drop(_PARTITION)
    )
    context = rows.sparkSession.sparkContext
    tag = f"sparkjet-{os.urandom(8).hex()}"
    context.addJobTag(tag)
    try:
        files = writer.save(observed)
    finally:
        context.removeJobTag(tag)
    found = metrics(observation, f"{writer.directory}", refuse)
    seen = {int(PurePosixPath(file).name.split("-")[1]) for file in files}
    unseen = sorted(set(found[_PARTITIONS]) - seen)
    if unseen:
        hosts = _hosts(rows.sparkSession, tag, unseen)
        message = (
            f"The driver does not see the files that {len(unseen)} of {len(found[_PARTITIONS])} tasks have written to "
            f"{writer.directory} (partitions {_listed(unseen)}{f'; hosts {_listed(hosts)}' if hosts else ''}). {REMEDY}"
        )
        raise refuse(message)
    return Written(found[ROWS], files)


def metrics(observation: Observation, what: str, refuse: Refuse) -> dict[str, Any]:
    """The metrics of an observation with ``ROWS``.

    Raises:
        Exception: Created by ``refuse``: missing metrics must not be taken for "no rows".
    """
    message = f"Spark did not report how many rows it wrote ({what}), so none of them are used. Start again."
    try:
        found = observation.get
    except Py4JJavaError as error:
        raise refuse(message) from error
    if ROWS not in found:
        raise refuse(message)
    return found


def _hosts(session: SparkSession, tag: str, partitions: Collection[int]) -> list[str]:
    """The hosts on which partitions were written, as far as Spark still knows."""
    context = session._jsparkSession.sparkContext()
    tracker = context.statusTracker()
    job = tracker.getJobInfo(max(tracker.getJobIdsForTag(tag)))
    if job.isEmpty():
        return []
    # Only the last stage writes; earlier stages have other partitions.
    tasks = context.statusStore().taskList(max(job.get().stageIds()), 0, 1_000_000)
    hosts = {tasks.apply(n).host() for n in range(tasks.size()) if tasks.apply(n).partitionId() in partitions}
    return sorted(hosts)


def _listed(values: Collection[object]) -> str:
    """The first of some values, for a message."""
    shown = ", ".join(str(value) for value in list(values)[:_SHOWN])
    return shown if len(values) <= _SHOWN else f"{shown}, … ({len(values)} in all)"
