"""Sharing: a check before the start that the executors write where the driver reads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from sparkjet.errors import AnalysisError
from sparkjet.executors import is_local, probing_tasks
from sparkjet.query_log import logger
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.full_disk import full_disk
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.storage.written import REMEDY, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.storage.directory import Directory


_PREFIX = ".sparkjet-probe-"
_OWNER = "If executors and driver run as different users, run them as the same one."


def check_shared(session: SparkSession, directories: Mapping[Path, str]) -> None:
    """Have the executors write to directories, and the driver read, rename and remove the files.

    Runs twice as many tasks as there are slots, so that each executor gets some. If a directory is missing, its nearest
    existing parent is tested. Nothing is left behind. Does nothing with a ``local`` master, where the executor is the
    driver's own process.
    """
    if is_local(session):
        return
    tried: dict[Path, str] = {}
    for directory, option in directories.items():
        tried.setdefault(next(path for path in (directory, *directory.parents) if path.is_dir()), option)
    tasks = probing_tasks(session)
    for directory, option in tried.items():
        for left in directory.glob(f"{_PREFIX}*"):
            # Left by a start that was killed.
            shutil.rmtree(left, ignore_errors=True)
        probe = partial(_try, session, directory, tasks, option)
        try:
            probe()
        except AnalysisError as error:
            # Another starting driver may have taken our probe for one left behind.
            logger.warning("%s Trying once more.", error)
            probe()


def check_reached(session: SparkSession, directories: Mapping[Directory, str]) -> None:
    """Have the executors write to stores: they may lack what the driver has, such as a jar, credentials or a route.

    Nothing is left behind. Does nothing with a ``local`` master, where the executor is the driver's own process.
    """
    if is_local(session):
        return
    tasks = probing_tasks(session)
    for directory, option in directories.items():
        name = f"{_PREFIX}{os.urandom(4).hex()}"

        def refuse(why: str, option: str = option) -> AnalysisError:
            return AnalysisError(f"{option}: {why}")

        try:
            write(session.range(0, tasks, 1, tasks), FileWriter(directory.below(name), "csv"), refuse)
        except (OSError, PySparkException, Py4JJavaError) as error:
            message = (
                f'The driver can use "{directory}", but the executors cannot write there: {_reason(error)} Give them '
                "the same jars (spark.jars.packages), credentials and network as the driver."
            )
            raise refuse(message) from error
        finally:
            directory.remove(name)


def _try(session: SparkSession, directory: Path, tasks: int, option: str) -> None:
    probe = directory / f"{_PREFIX}{os.urandom(4).hex()}"

    def refuse(why: str) -> AnalysisError:
        return AnalysisError(f"{option}: {why}")

    try:
        # With Spark's own writer: workers without Python, or with another version, are not a reason to refuse.
        for file in write(session.range(0, tasks, 1, tasks), FileWriter(PosixDirectory(probe), "csv"), refuse).files:
            (probe / file).read_bytes()
            (probe / file).rename(probe / f"seen-{file}")
        shutil.rmtree(probe)
    except (OSError, PySparkException, Py4JJavaError) as error:
        _sweep(session, probe, tasks)
        full = full_disk(error, [probe.parent])
        if full is not None:
            raise full from error
        message = f'"{probe.parent}" cannot be written by both executors and driver: {_reason(error)} {REMEDY} {_OWNER}'
        raise refuse(message) from error
    except AnalysisError:
        _sweep(session, probe, tasks)
        raise


def _reason(error: Exception) -> str:
    """The cause on one line, as Spark's messages contain stack traces."""
    if isinstance(error, Py4JJavaError):
        error = Exception(error.java_exception.getMessage())
    return f"{str(error).strip().splitlines()[0][:300].rstrip('.')}."


def _sweep(session: SparkSession, probe: Path, tasks: int) -> None:
    """Remove files of the executors that the driver cannot see."""
    shutil.rmtree(probe, ignore_errors=True)
    remove = partial(shutil.rmtree, probe.as_posix(), ignore_errors=True)
    try:
        session.sparkContext.parallelize(range(tasks), tasks).foreach(lambda _: remove())
    except (PySparkException, Py4JJavaError) as error:
        # Only logged: the error that refuses the start is the one to raise.
        logger.warning("%s could not be removed from the executors' machines: %s", probe, _reason(error))
