"""A check, before the start, that the executors' Python has what the query needs there."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from sparkjet.errors import AnalysisError, drivers_python, lacking
from sparkjet.executors import is_local, probing_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\][^\n]*|Cannot run program [^\n]*")


def check_workers(session: SparkSession, packages: Mapping[str, str]) -> None:
    """Import packages in the Python workers of the executors.

    Does nothing if the workers run the driver's own Python: with a ``local`` master, unless PYSPARK_PYTHON names
    another one. On executors that join later, the first task that misses a package fails.

    Args:
        session: The session of the query.
        packages: The name to install, by the name to import.

    Raises:
        AnalysisError: Names the Python, its machine and what it lacks; or there is no Python like the driver's.
    """
    context = session.sparkContext
    local = is_local(session)
    if not packages or (local and context.pythonExec == sys.executable):
        return
    tasks = 1 if local else probing_tasks(session)
    try:
        found = dict(context.parallelize(range(tasks), tasks).mapPartitions(_look(tuple(packages))).collect())
    except Py4JJavaError as error:
        reason = _NO_PYTHON.search(str(error.java_exception))
        if reason is None:
            raise
        message = f"The executors need a Python of the driver's version for {', '.join(packages)}: {reason[0].strip()}"
        raise AnalysisError(message) from error
    for python, missing in sorted(found.items()):
        if missing:
            drivers = drivers_python(context.pythonExec, missing)
            raise AnalysisError(lacking(f"start: the executors' {python}", missing, packages, drivers))


def _look(names: tuple[str, ...]) -> Callable[[Iterable[int]], Iterable[tuple[str, list[str]]]]:
    def look(_: Iterable[int]) -> Iterable[tuple[str, list[str]]]:
        # Imported here, so that nothing of this module is needed there.
        import importlib  # noqa: PLC0415
        import platform  # noqa: PLC0415
        import sys  # noqa: PLC0415

        missing = []
        for name in names:
            try:
                # Not only searched for: the C library may lack others, or be for another machine.
                importlib.import_module(name)
            except ImportError:
                missing.append(name)
        yield f"{sys.executable} on {platform.node()}", missing

    return look
