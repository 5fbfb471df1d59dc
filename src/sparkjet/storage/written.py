"""Written files: the driver verifies that it sees the files of all tasks before anything relies on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

    from sparkjet.storage.file_writer import FileWriter

Refuse = Callable[[str], Exception]
"""Creates the error for a message."""

REMEDY = "Use a directory that the driver and every executor see under the same path, such as a shared mount."
ROWS = "rows"
_SHOWN = 10


@dataclass(frozen=True)
class Written:
    """Number of rows written, and their files, relative to the directory, with their sizes."""

    rows: int
    files: dict[str, int]


def write(rows: DataFrame, writer: FileWriter, refuse: Refuse) -> Written:
    """Write rows as files, and verify that the driver sees everything that tasks have written.

    An executor with a different directory under the same path succeeds in writing files that are never read, which
    neither Spark nor its commit protocol detects.
    """
    context = rows.sparkSession.sparkContext
    tag = f"sparkjet-{os.urandom(8).hex()}"
    context.addJobTag(tag)
    try:
        saved = writer.save(rows)
    finally:
        context.removeJobTag(tag)
    unseen = saved.written - len(saved.files)
    if unseen:
        seen = {int(PurePosixPath(file).name.split("-")[1]) for file in saved.files}
        message = (
            f"The driver does not see {unseen} of {saved.written} files that tasks have written to {writer.directory}"
            f"{_writers(rows.sparkSession, tag, seen)}. {REMEDY}"
        )
        raise refuse(message)
    return Written(saved.rows, saved.files)


def metrics(observation: Observation, what: str, refuse: Refuse) -> dict[str, Any]:
    """The metrics of an observation with ``ROWS``."""
    message = f"Spark did not report how many rows it wrote ({what}), so none of them are used. Start again."
    try:
        found = observation.get
    except Py4JJavaError as error:
        raise refuse(message) from error
    if ROWS not in found:
        raise refuse(message)
    return found


def _writers(session: SparkSession, tag: str, seen: Collection[int]) -> str:
    """The tasks that wrote files that are not seen, and their hosts, as far as Spark still knows."""
    context = session._jsparkSession.sparkContext()
    tracker = context.statusTracker()
    job = tracker.getJobInfo(max(tracker.getJobIdsForTag(tag)))
    if job.isEmpty():
        return ""
    # Only the last stage writes; earlier stages have other partitions.
    tasks = context.statusStore().taskList(max(job.get().stageIds()), 0, 1_000_000)
    hosts = {tasks.apply(n).partitionId(): tasks.apply(n).host() for n in range(tasks.size()) if _wrote(tasks.apply(n))}
    unseen = sorted(set(hosts) - set(seen))
    named = sorted({hosts[partition] for partition in unseen})
    return f" (partitions {_listed(unseen)}; hosts {_listed(named)})" if unseen else ""


def _wrote(task: Any) -> bool:
    metrics = task.taskMetrics()
    return metrics.isDefined() and bool(metrics.get().outputMetrics().recordsWritten())


def _listed(values: Collection[object]) -> str:
    """The first of some values, for a message."""
    shown = ", ".join(str(value) for value in list(values)[:_SHOWN])
    return shown if len(values) <= _SHOWN else f"{shown}, … ({len(values)} in all)"
