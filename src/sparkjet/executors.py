"""Executors: which ones there are, whether more will come, and how many tasks they run; only this module asks Spark."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from sparkjet.java import scala_context
from sparkjet.platforms import Platform
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

FEWEST = 8
"""Minimum number of tasks that look at all executors: at a start, only a few of these may have registered."""
MISSED = 60.0
"""Seconds without any executor before this is logged; longer than a cluster takes to replace one."""
PATIENCE = 30.0
"""How long to wait for a first executor, in seconds; Spark's default for ``maxRegisteredResourcesWaitingTime``."""
QUIET = 3.0
"""Seconds without a new executor, after which no more are waited for."""
PAUSE = 0.1
"""Seconds between two looks."""
_UNBOUNDED = 2**31 - 1
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]")
_LOCAL = re.compile(r"local(\[.*\])?")


def is_local(session: SparkSession) -> bool:
    """Whether the executor is the driver's own process: with a ``local`` master."""
    return _LOCAL.fullmatch(str(session.sparkContext.master)) is not None


def platform_of(session: SparkSession) -> Platform:
    """Where a session's driver runs; costs nothing after the first time."""
    settings, release = _application(session.sparkContext)
    return Platform(settings, os.environ, release)


def slots(session: SparkSession) -> int:
    """The number of tasks that the registered executors run at once."""
    context = session._jsparkSession.sparkContext()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def probing_tasks(session: SparkSession) -> int:
    """A number of small tasks large enough for each executor to get some."""
    return max(FEWEST, 2 * slots(session))


def cores(session: SparkSession) -> int:
    """Spark's notion of a good number of tasks: the cores of the registered executors, at least 2."""
    return int(scala_context(session).defaultParallelism())


class Executors:
    """The executors known to Spark, on the driver.

    Args:
        session: The query's session.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._known = self._addresses()

    def lost(self) -> bool:
        """Whether any executor of the last call has gone since; a single question to the driver's own JVM."""
        before, self._known = self._known, self._addresses()
        return not before <= self._known

    def _addresses(self) -> frozenset[str]:
        if is_local(self._session):
            return frozenset()
        # With their ports: a replacement on the same machine is not the same executor.
        known = self._session.sparkContext._jsc.sc().getExecutorMemoryStatus().keySet()
        return frozenset(known.mkString(" ").split())


class AwaitedExecutors:
    """Checks whether a running epoch has executors; not thread-safe.

    Args:
        slots: Returns the number of tasks that the registered executors run at once.
        patience: Seconds without any executor before this is logged.
    """

    def __init__(self, slots: Callable[[], int], patience: float = MISSED) -> None:
        self._slots, self._patience = slots, patience
        self._since: float | None = None
        self._said = False

    def look(self) -> None:
        """Call it now and then during an epoch: between epochs, dynamic allocation may have released all executors."""
        if self._slots():
            self._since, self._said = None, False
            return
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since >= self._patience and not self._said:
            self._said = True
            logger.warning(
                "The application has had no executor for %.0f seconds, and the running epoch waits for one. If the "
                "cluster has resources, its master may not know the application: one of a standalone cluster that was "
                "started again without spark.deploy.recoveryMode does not, and no longer gives it any. Then start the "
                "driver again; nothing is lost.",
                self._patience,
            )


def state_partitions(session: SparkSession) -> int:
    """The number of state partitions if the user sets none; on the driver, and logged there.

    Spark's ``defaultParallelism`` counts the executors that have registered, and is 2 before the first has: a query
    would keep two partitions for its whole run. So the settings are read first, and if they do not say how many
    executors will come (a standalone cluster gives all it has), this waits until no more do.
    """
    context = session.sparkContext
    settings, master = dict(context.getConf().getAll()), str(context.master)
    if "spark.default.parallelism" in settings or is_local(session):
        number, source = 0, "spark.default.parallelism, or the cores of the local master"
    else:
        configured = configured_cores(settings, master)
        source = "the configured executors" if configured is not None else "the executors that have registered"
        number = configured if configured is not None else _registered_cores(session)
    partitions = max(number, cores(session))
    logger.info("statePartitions: %d, from %s", partitions, source)
    return partitions


def configured_cores(settings: Mapping[str, str], master: str) -> int | None:
    """The cores of all executors that Spark's settings ask for; None if only the cluster manager decides.

    With dynamic allocation this is the maximum, or the initial number if there is no maximum.

    >>> configured_cores({"spark.executor.instances": "4", "spark.executor.cores": "3"}, "yarn")
    12
    >>> configured_cores({}, "spark://host:7077")
    """
    local = _LOCAL_CLUSTER.fullmatch(master)
    if local is not None:
        return int(local[1]) * int(local[2])
    standalone = master.startswith("spark://")
    most = settings.get("spark.cores.max") if standalone else None
    # On a standalone cluster, an executor gets all cores of its worker; elsewhere, one.
    each = settings.get("spark.executor.cores", None if standalone else "1")
    executors = _executors(settings, standalone=standalone)
    asked = None if each is None or executors is None else int(each) * executors
    return min((int(limit) for limit in (most, asked) if limit is not None), default=None)


def is_dynamic(settings: Mapping[str, str]) -> bool:
    """Whether executors come and go with the tasks."""
    return settings.get("spark.dynamicAllocation.enabled", "false").lower() == "true"


def settled(count: Callable[[], int], patience: float = PATIENCE, quiet: float = QUIET) -> int:
    """Wait until a number is no longer 0 and has been stable for some time; returns it, or 0 when patience ends."""
    pause, started = threading.Event(), time.monotonic()
    found, since = count(), started
    while time.monotonic() - started < patience and (not found or time.monotonic() - since < quiet):
        pause.wait(PAUSE)
        now = count()
        if now != found:
            found, since = now, time.monotonic()
    return found


@lru_cache(4)
def _application(context: SparkContext) -> tuple[Mapping[str, str], str]:
    """The constant settings and release of an application; each setting takes two JVM calls."""
    return dict(context.getConf().getAll()), context.version


def _executors(settings: Mapping[str, str], *, standalone: bool) -> int | None:
    instances = int(settings.get("spark.executor.instances", "0"))
    if not is_dynamic(settings):
        # Two is Spark's default for YARN and Kubernetes; a standalone master knows no number of executors.
        return None if standalone else instances or 2
    most = int(settings.get("spark.dynamicAllocation.maxExecutors", _UNBOUNDED))
    if most < _UNBOUNDED:
        return most
    names = ("spark.dynamicAllocation.initialExecutors", "spark.dynamicAllocation.minExecutors")
    return max(instances, *(int(settings.get(name, "0")) for name in names)) or None


def _registered_cores(session: SparkSession) -> int:
    if is_dynamic(dict(session.sparkContext.getConf().getAll())) and not slots(session):
        # No executor comes before there is a task, so one would be waited for in vain.
        session.range(1).count()
    age = time.time() - session.sparkContext.startTime / 1000
    # Later, whatever was to come with the application has come.
    found = settled(lambda: slots(session), quiet=QUIET if age < PATIENCE else 0.0)
    if not found:
        logger.warning(
            "statePartitions: no executor has registered in %d seconds. The state gets few partitions until the query "
            "is started again; set the option where that matters.",
            PATIENCE,
        )
    return found
