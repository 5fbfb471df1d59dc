"""``python -m tests.differential --seconds 600 --seed 1``: random queries against Spark's batch, for some time."""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interpreting import INTERPRETED
from tests.servers.programs import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> int:
    """Runs until the time is up; the status says whether a query differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None, help="the first one; by default a random one")
    parser.add_argument("--shrink", type=float, default=120, help="seconds to make one difference smaller")
    given = parser.parse_args()
    first = random.SystemRandom().randrange(1_000_000) * 1000 if given.seed is None else given.seed
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from tests.differential.trials import Trials

    trials, start, seed = Trials(_session()), time.monotonic(), first
    while (passed := time.monotonic() - start) < given.seconds:
        _bar(passed / given.seconds, f"seed {seed}, {trials.coverage.queries} equal or not, {trials.failed} differ")
        script = trials.run(seed, shrink=given.shrink)
        if script:
            sys.stderr.write("\r\033[K")
            sys.stdout.write(f"{script}\n")
            sys.stdout.flush()
        seed += 1
    sys.stderr.write("\r\033[K")
    minutes = _cpu(trials.spark) / 60
    sys.stdout.write(f"{trials.coverage.report()}\nseeds {first} to {seed - 1}; {trials.failed} differ\n")
    sys.stdout.write(f"{minutes:.1f} minutes of CPU, {trials.coverage.queries / minutes:.1f} queries in each\n")
    return 1 if trials.failed else 0


def _cpu(session: SparkSession) -> float:
    """Seconds of CPU that this process and its JVM have taken: what a minute is worth depends on who else runs."""
    pids = os.getpid(), session.sparkContext._gateway.proc.pid
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def _bar(share: float, text: str) -> None:
    if not sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")
    else:
        done = min(30, int(share * 30))
        sys.stderr.write(f"\r\033[K[{'#' * done}{'.' * (30 - done)}] {text}")
        sys.stderr.flush()


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "2g")
    builder = builder.config("spark.driver.extraJavaOptions", " ".join(SMALL))
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.python.sql.dataFrameDebugging.enabled", "false")
    for name, value in INTERPRETED.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


if __name__ == "__main__":
    sys.exit(main())
