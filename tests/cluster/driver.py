"""A driver on a cluster of processes: the window laws, then a query that loses an executor or its driver."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.postgres.settings import PostgresSettings
from sparkjet.connectors.postgres.sink import PostgresSink
from sparkjet.options import Options
from sparkjet.testing.sink_contract import QUERY, SCHEMA, SinkContract, SinkUnderTest
from sparkjet.time import MIN
from tests.feed import Feed
from tests.interpreting import INTERPRETED
from tests.servers.programs import SMALL
from tests.windows.test_sliding import EXAMPLE, PATHS, WINDOW, check_modes

EPOCH = 3


def session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session on two executors of one core each."""
    return (
        SparkSession.builder.config(map={**INTERPRETED, **(settings or {})})
        .master("local-cluster[2,1,1024]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.executor.memory", "600m")
        .config("spark.executor.extraJavaOptions", " ".join(SMALL))
        .config("spark.driver.extraJavaOptions", " ".join(SMALL))
        .getOrCreate()
    )


def windows(spark: SparkSession) -> None:
    """Every strategy of the window operator, with a restart after each batch."""
    with tempfile.TemporaryDirectory() as home:
        for path in PATHS:
            check_modes(spark, path, WINDOW, EXAMPLE.batches, Path(home) / path, modes=("restarts",))


def contract(spark: SparkSession, home: Path) -> None:
    """The contract of sinks with separate executors: PostgreSQL, prepared."""
    sink = PostgresSink(PostgresSettings.of(Options({"dsn": (home / "dsn").read_text(), "dbtable": "contract"})))
    sink.attach(home / "outbox", spark)
    suite = SinkContract()
    for name in [name for name in dir(suite) if name.startswith("test_") and "cut_short" not in name]:
        with psycopg.connect((home / "dsn").read_text(), autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS contract, _sparkjet_commits")
            sink.check(spark.createDataFrame([], SCHEMA).schema)
            sink.create()

            def read(connection: psycopg.Connection[Any] = connection) -> list[Any]:
                return connection.execute("SELECT k, n FROM contract").fetchall()

            def dangling(connection: psycopg.Connection[Any] = connection) -> int:
                listing = "SELECT FROM pg_prepared_xacts WHERE database = current_database()"
                return min(1, connection.execute(listing).rowcount)

            getattr(suite, name)(spark, SinkUnderTest(sink, read, dangling))
            sink.abort_orphans(QUERY, 99, [])


def executors() -> list[int]:
    """Pids of the executors: the grandchildren of this driver's JVM that run an executor backend."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                command = (process / "cmdline").read_bytes()
                environment = (process / "environ").read_bytes()
            except OSError:
                continue
            if b"CoarseGrainedExecutorBackend" in command and _MARK.encode() in environment:
                found.append(int(process.name))
    return found


_MARK = f"SPARKJET_TEST_DRIVER={os.getpid()}"


def query(spark: SparkSession, home: Path, fault: str) -> None:
    """Run the query over the feed; at one epoch, kill an executor, or this driver and its JVM."""
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()

    struck: list[int] = []

    def strike(step: sj.EpochPhase, epoch: int) -> None:
        if epoch != EPOCH or fault == "none":
            return
        if fault == "executor" and step is sj.EpochPhase.SAVE and not struck:
            struck.append(executors()[0])
            os.kill(struck[0], signal.SIGKILL)
        if fault == "driver" and step is sj.EpochPhase.DECIDE:
            os.kill(jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    stream = sj.stream(Feed(home / "in").read(spark)).withWatermark("ts", Counting(), by="p", substreams=["a", "b"])
    grouped = stream.groupBy(sj.window("ts", "30 seconds", "10 seconds"), "k")
    result = grouped.agg(F.count("*").alias("n"), F.avg(F.col("v").cast("double")).alias("mean"))
    visits = stream.groupBy(sj.session_window("ts", "15 seconds"), "k").agg(F.count("*").alias("n"))
    table = []
    if (home / "dsn").exists():
        rows = result.select("window.start", "k", "n", "mean")
        options = {"dsn": (home / "dsn").read_text(), "dbtable": "out", "prepared": "always"}
        table.append(rows.writeStream.format("postgres").options(**options))
    sj.start(
        result.writeStream.format("files")
        .option("path", home / "out")
        .option("lateRowsPath", home / "late")
        .option("closeWindowsAtEnd", True)
        .trigger(availableNow=True)
        .clock(sj.ManualClock(1))
        .onEpochPhase(strike),
        visits.writeStream.format("files").option("path", home / "visits"),
        *table,
        checkpointLocation=str(home / "ck"),
    ).awaitTermination()


@dataclass(frozen=True)
class Counting:
    """A policy with a lag of ten seconds that also counts its reports."""

    def create(self) -> sj.WatermarkPolicy:
        """A policy that has seen nothing yet."""
        return CountingPolicy()


class CountingPolicy:
    """State of :class:`Counting`."""

    def __init__(self) -> None:
        self._state = {"watermark": MIN, "reports": 0, "polls": 0}

    def report(self, timestamp: int, now: int) -> None:
        """Count the report."""
        self._state["reports"] += 1
        self._state["watermark"] = max(self._state["watermark"], timestamp - 10_000_000)

    def current(self, now: int) -> int:
        """Count the poll."""
        self._state["polls"] += 1
        return self._state["watermark"]

    def snapshot(self) -> dict[str, int]:
        """All state."""
        return dict(self._state)

    def restore(self, snapshot: dict[str, int]) -> None:
        """Restore a snapshot."""
        self._state = dict(snapshot)


if __name__ == "__main__":
    # Executors inherit the mark, so that only this driver's are killed.
    os.environ["SPARKJET_TEST_DRIVER"] = str(os.getpid())
    cluster = session()
    for task in sys.argv[1:]:
        kind, _, where = task.partition("=")
        if kind == "windows":
            windows(cluster)
        elif kind == "contract":
            contract(cluster, Path(where))
        else:
            query(cluster, Path(where), kind)
    cluster.stop()
