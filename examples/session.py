"""The Spark session of the examples: two cores of this machine, and one directory for everything that it writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
"""For a JVM that lives for two minutes on two cores: the optimising compiler took 40 % of its time. Without it there
are only 48 MB for compiled code, which thirty epochs fill."""


def local_session(root: Path, name: str, log: Path | None = None) -> SparkSession:
    """A small Spark on this machine that writes below `root` only; what its JVM prints as errors goes to `log`."""
    # A name that does not resolve (containers, laptops offline) would stop the driver from binding.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Workers run this interpreter, which has the packages, not the first python3 of the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(root / "spark-local"),
        # Of 100, the default, an epoch needs more: each would be compiled again in every epoch.
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    with nullcontext() if log is None else _stderr_to(log):
        spark = SparkSession.builder.master("local[2]").appName(name).config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Let processes that are started inherit a file as their standard error."""
    saved = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
