"""The default of ``statePartitions``: the cores that the application is going to have."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sparkjet.query_log import logger
from sparkjet.storage.sharing import is_local, slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PATIENCE = 30.0
"""How long to wait for a first executor, in seconds; Spark's default for ``maxRegisteredResourcesWaitingTime``."""
QUIET = 3.0
"""Seconds without another executor, after which no more are waited for."""
PAUSE = 0.1
"""Seconds between two looks."""
_UNBOUNDED = 2**31 - 1
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]")


def state_partitions(session: SparkSession) -> int:
    """The number of partitions of the state where the user sets none; on the driver, and logged there.

    Spark's ``defaultParallelism`` counts the executors that have registered, and is 2 before the first has: a query
    would keep two partitions for its whole run. So the settings are read first, and where they do not say how many
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
    partitions = max(number, int(context.defaultParallelism))
    logger.info("statePartitions: %d, from %s", partitions, source)
    return partitions


def configured_cores(settings: Mapping[str, str], master: str) -> int | None:
    """The cores of all executors that Spark's settings ask for; None if the cluster manager alone decides.

    With dynamic allocation these are the most that may come, or those it begins with if it has no limit.

    >>> configured_cores({"spark.executor.instances": "4", "spark.executor.cores": "3"}, "yarn")
    12
    >>> configured_cores({}, "spark://host:7077")
    """
    local = _LOCAL_CLUSTER.fullmatch(master)
    if local is not None:
        return int(local[1]) * int(local[2])
    standalone = master.startswith("spark://")
    most = settings.get("spark.cores.max") if standalone else None
    # An executor of a standalone cluster gets all cores of its worker, elsewhere one.
    each = settings.get("spark.executor.cores", None if standalone else "1")
    executors = _executors(settings, standalone=standalone)
    asked = None if each is None or executors is None else int(each) * executors
    return min((int(limit) for limit in (most, asked) if limit is not None), default=None)


def is_dynamic(settings: Mapping[str, str]) -> bool:
    """Whether executors come and go with the tasks."""
    return settings.get("spark.dynamicAllocation.enabled", "false").lower() == "true"


def settled(count: Callable[[], int], patience: float = PATIENCE, quiet: float = QUIET) -> int:
    """Wait until a number is no longer 0 and has not changed for some time; returns it, or 0 when patience ends."""
    pause, started = threading.Event(), time.monotonic()
    found, since = count(), started
    while time.monotonic() - started < patience and (not found or time.monotonic() - since < quiet):
        pause.wait(PAUSE)
        now = count()
        if now != found:
            found, since = now, time.monotonic()
    return found


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
