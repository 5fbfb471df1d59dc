"""Sharing: a look before the start whether the executors write where the driver reads."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from sparkjet.errors import AnalysisError
from sparkjet.storage.full_disk import full_disk
from sparkjet.storage.paths import WRITING, spark_uri
from sparkjet.storage.written import REMEDY, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("sparkjet")

FEWEST = 8
"""Tasks that write at least: executors that come late are few at a start."""
_PREFIX = ".sparkjet-probe-"
_LOCAL = re.compile(r"local(\[.*\])?")
_OWNER = "If executors and driver run as different users, run them as the same one."


def check_shared(session: SparkSession, directories: Mapping[Path, str]) -> None:
    """Have the executors write into directories, and the driver read, rename and remove what they wrote.

    Twice as many tasks as can run at once, so that each executor has its part. Where a directory is missing, the
    nearest one above it is tried. Nothing is left behind. With ``local`` executors are the driver's own process, and
    nothing is tried.

    Args:
        session: The session; its executors are those of the query.
        directories: Each with the beginning of a message: the option that names it.

    Raises:
        AnalysisError: Naming directory and option, and the hosts that have another directory there.
        StorageError: A disk is full or read-only.
    """
    if _LOCAL.fullmatch(str(session.sparkContext.master)):
        return
    tried: dict[Path, str] = {}
    for directory, option in directories.items():
        tried.setdefault(next(path for path in (directory, *directory.parents) if path.is_dir()), option)
    context = session._jsparkSession.sparkContext()
    slots = context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())
    for directory, option in tried.items():
        for left in directory.glob(f"{_PREFIX}*"):
            # By a start that was killed.
            shutil.rmtree(left, ignore_errors=True)
        probe = partial(_try, session, directory, max(FEWEST, 2 * slots), option)
        try:
            probe()
        except AnalysisError as error:
            # Another driver that starts may have taken our probe for one that was left.
            logger.warning("%s Trying once more.", error)
            probe()


def _try(session: SparkSession, directory: Path, tasks: int, option: str) -> None:
    probe = directory / f"{_PREFIX}{os.urandom(4).hex()}"

    def refuse(why: str) -> AnalysisError:
        return AnalysisError(f"{option}: {why}")

    def save(observed: DataFrame) -> None:
        observed.write.options(**WRITING).csv(spark_uri(probe))

    try:
        # By Spark's own writer: workers that have no Python, or another one, are no reason to refuse.
        for file in write(session.range(0, tasks, 1, tasks), probe, save, refuse).files:
            (probe / file).read_bytes()
            (probe / file).rename(probe / f"seen-{file}")
        shutil.rmtree(probe)
    except (OSError, PySparkException, Py4JJavaError) as error:
        _sweep(session, probe, tasks)
        full = full_disk(error, [probe.parent])
        if full is not None:
            raise full from error
        message = (
            f'"{probe.parent}" cannot be written by executors and driver alike: {_reason(error)} {REMEDY} {_OWNER}'
        )
        raise refuse(message) from error
    except AnalysisError:
        _sweep(session, probe, tasks)
        raise


def _reason(error: Exception) -> str:
    """What went wrong, on one line: Spark's messages have stack traces in them."""
    if isinstance(error, Py4JJavaError):
        error = Exception(error.java_exception.getMessage())
    return f"{str(error).strip().splitlines()[0][:300].rstrip('.')}."


def _sweep(session: SparkSession, probe: Path, tasks: int) -> None:
    """Remove what the executors have left where the driver cannot see it."""
    shutil.rmtree(probe, ignore_errors=True)
    remove = partial(shutil.rmtree, probe.as_posix(), ignore_errors=True)
    try:
        session.sparkContext.parallelize(range(tasks), tasks).foreach(lambda _: remove())
    except (PySparkException, Py4JJavaError) as error:
        # The start is refused for another reason, which is what the user has to hear of.
        logger.warning("%s could not be removed from the executors' machines: %s", probe, _reason(error))
