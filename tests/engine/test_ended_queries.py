"""Nothing of an ended query stays: neither what executors hold, nor threads, connections, plans and functions."""

from __future__ import annotations

import gc
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.api.launch import Launch
from sparkjet.clock import ManualClock
from sparkjet.engine.engine import Engine
from sparkjet.errors import FencedError
from sparkjet.sinks.protocol import Guarantee
from sparkjet.storage.posix_directory import as_directory
from tests.feed import Feed, rows
from tests.persisted import persisted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.writer import StreamWriter

TRIES = 40
HEAP = 2.0
"""Megabytes that the JVM's heap may grow by for each query; Spark keeps about one of its own queries for its UI."""

SLACK = 8.0
"""Megabytes that two looks differ by, of a heap that other tests have filled as well."""

LOOKS = 4
"""Looks at what has grown: what is loaded once grows it once, what queries leave grows it each time."""


def measure(spark: SparkSession) -> dict[str, int]:
    """Everything that ended queries could leave in this process, its JVM and the executors."""
    gateway = spark.sparkContext._gateway
    jvm = gateway.jvm
    return {
        "engines": sum(isinstance(each, Engine) for each in gc.get_objects()),
        "proxies": len(gateway.gateway_property.pool),
        "RDDs": len(persisted(spark)),
        "bytes in executors": sum(each.memSize() for each in spark.sparkContext._jsc.sc().getRDDStorageInfo()),
        "threads": threading.active_count(),
        "connections": len(gateway._gateway_client.deque),
        "files": files("self"),
        "the JVM's files": files(jvm.java.lang.ProcessHandle.current().pid()),
    }


def files(process: str) -> int:
    """How many files and sockets a process has open."""
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())


def heap(spark: SparkSession) -> float:
    """Megabytes of the JVM's heap that are used; to be asked after its garbage has been collected."""
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def left(spark: SparkSession, expected: dict[str, int] | None = None) -> dict[str, int]:
    """The remainder when both garbage collectors have run; it soon drops to the expected one, if it ever does."""
    numbers: dict[str, int] = {}
    for _ in range(TRIES if expected else 3):
        gc.collect()
        # Each collects what the one before has let go of; Spark's cleaner and py4j's run in their own threads.
        spark.sparkContext._jvm.java.lang.System.gc()
        numbers = measure(spark)
        if expected and all(numbers[name] <= expected[name] for name in numbers):
            break
    return numbers


class Jobs:
    """Queries that are started again and again in one session, as a scheduler does it."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self._spark, self._home = spark, home
        self._feed = Feed(home / "in")
        self._time = 0

    def round(self) -> None:
        """One query of each kind; nobody keeps their handles."""
        self._feed_on()
        self._sums().trigger(availableNow=True).start().awaitTermination()
        self._sums().start().stop()
        query = self._windows().start()
        query.processAllAvailable()
        query.stop()
        self._feed_on()
        with pytest.raises(OSError, match="no room"):
            self._sums().trigger(availableNow=True).onEpochPhase(self._fail).start().awaitTermination()

    def _fail(self, phase: sj.EpochPhase, epoch: int) -> None:
        raise OSError("no room")

    def _feed_on(self) -> None:
        self._feed.add(*rows([self._time, self._time + 3], k="a", v=1), *rows([self._time + 7], k="b", v=1))
        self._time += 10

    def _sums(self) -> StreamWriter:
        """Sums of all, which refer to their own query."""
        held: list[object] = [self]

        def take(found: DataFrame, epoch: int) -> None:
            held.append(found)

        result = sj.stream(self._feed.read(self._spark)).groupBy("k").agg(F.sum("v").alias("s"))
        writer = result.writeStream.outputMode("update").foreachBatch(take)
        return writer.option("checkpointLocation", self._home / "sums").option("statePartitions", 1)

    def _windows(self) -> StreamWriter:
        """Windows with early rows, whose time goes on by a ticker's thread."""
        stream = sj.stream(self._feed.read(self._spark)).withWatermark("ts", "5 seconds")
        result = stream.groupBy(sj.window("ts", "60 seconds", "10 seconds"), "k").agg(F.sum("v").alias("s"))
        writer = result.writeStream.outputMode("update").option("earlyResultsPeriod", "1 hour")
        writer.format("files").option("path", self._home / "out").option("isEarly", True).option("statePartitions", 1)
        return writer.option("checkpointLocation", self._home / "windows")


# Spark keeps the classes that it compiles, in the heap that is measured.
@pytest.mark.interpreted
@pytest.mark.parametrize("rounds", [pytest.param(1, marks=pytest.mark.crash), pytest.param(5, marks=pytest.mark.long)])
def test_queries_leave_nothing(spark: SparkSession, tmp_path: Path, rounds: int) -> None:
    jobs = Jobs(spark, tmp_path)
    # Of four queries each; what the first one loads stays.
    jobs.round()
    before, used, more = left(spark), [heap(spark)], dict[str, int]()
    for _ in range(LOOKS):
        for _ in range(rounds):
            jobs.round()
        after = left(spark, before)
        more = {name: number - before[name] for name, number in after.items() if number > before[name]}
        used.append(heap(spark))
        if not more and used[-1] - used[-2] < SLACK + 4 * rounds * HEAP:
            return
        # A thread of Spark's, or of another test's, may have connected to the JVM meanwhile: it does so once.
        before = {name: max(number, after[name]) for name, number in before.items()}
    pytest.fail(f"something is left each time: {more or used}")


def test_a_stopped_query_frees_its_state_though_its_handle_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2], k="a", v=1))
    before, threads = persisted(spark), {each.name for each in threading.enumerate()}
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
    windows = stream.groupBy(sj.window("ts", "60 seconds", "10 seconds"), "k").agg(F.sum("v").alias("s"))
    sums = stream.groupBy("k").agg(F.sum("v").alias("s"))
    query = sj.start(
        windows.writeStream.outputMode("update").option("earlyResultsPeriod", "1 hour").format("noop"),
        sums.writeStream.outputMode("update").format("noop"),
        checkpointLocation=str(tmp_path / "home"),
    )
    query.processAllAvailable()
    assert persisted(spark) - before
    query.stop()
    # Spark's cleaner may take what earlier tests have left.
    assert not persisted(spark) - before
    assert not {each.name for each in threading.enumerate() if each.name.startswith("sparkjet-epoch")} - threads
    progress = query.lastProgress
    assert progress is not None
    assert progress["epoch"]["number"] == 1


def test_a_start_that_was_taken_over_at_last_leaves_nothing(tmp_path: Path) -> None:
    ended: list[str] = []
    taken, writer = FencedError("another driver has taken over"), SimpleNamespace(option=lambda *_: writer)
    engine: Any = SimpleNamespace(fenced=lambda: taken, close=lambda: ended.append("engine"))
    receivers: Any = SimpleNamespace(stop=lambda: ended.append("receivers"))
    feed: Any = SimpleNamespace(end=lambda _: ended.append("feed"))
    source = SimpleNamespace(writeStream=SimpleNamespace(foreachBatch=lambda _: writer))
    launch = Launch(
        plan=SimpleNamespace(source=source, outputs=[]),  # type: ignore[arg-type]
        home=as_directory(tmp_path),
        guarantee=Guarantee.EXACTLY_ONCE,
        partitions=1,
        overlap=False,
        trigger={},
        close_at_end=False,
        name=None,
        clock=ManualClock(),
        listener=lambda *_: None,
    )
    checkpoint: Any = SimpleNamespace(directory=tmp_path)
    nothing: Any = None
    with pytest.raises(FencedError) as error:
        launch._run(receivers, engine, checkpoint, deque(), nothing, feed)
    assert error.value.__cause__ is None
    assert ended == ["feed", "engine", "receivers"]
