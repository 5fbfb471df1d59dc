"""The Spark session of the measurements."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession


def local_session(
    cores: int = 2, memory: str = "4g", settings: Mapping[str, str] | None = None, master: str | None = None
) -> SparkSession:
    """A session with so many cores and so much heap, on the loopback address, and further settings."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Workers run this interpreter, which has the packages, not the first python3 on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.config(map=dict(settings or {}))
        .master(master or f"local[{cores}]")
        .appName("sparkjet-benchmark")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", memory)
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.ui.enabled", "false")
        # Benchmarks suspend it for minutes, after which it must not consider its executor lost.
        .config("spark.network.timeout", "1h")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session
