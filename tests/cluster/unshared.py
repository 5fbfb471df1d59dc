"""A driver whose executors have different directories under some paths, like machines without a shared disk."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.sinks.console import ConsoleSink
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.foreach_batch import ForeachBatchSink
from sparkjet.sinks.memory import MemorySink
from sparkjet.sinks.outbox import Outbox
from sparkjet.snapshots import DirectoryStore
from sparkjet.testing.sink_contract import transaction
from tests.cluster.driver import executors, session
from tests.feed import Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream
    from sparkjet.api.writer import StreamWriter
    from sparkjet.sinks.protocol import Sink

PLACES = ("shared", "one", "both")
"""Directories below the root: a shared one, and those that one or both executors do not share."""
LATER = "later"
"""The same, for the executor that joins last."""
ROWS = 40
SHORT = {("files", "path", "one"), ("files", "lateRowsPath", "both"), ("memory", "checkpointLocation", "one")}
"""Starts that every run of the tests tries: format, option, place."""
FORMATS = ("files", "json", "foreachBatch", "memory", "console")


def outcome(act: Callable[[], object]) -> list[str]:
    """The error that a call ends with, or its result."""
    try:
        return ["", str(act())]
    except sj.SparkjetError as error:
        return [type(error).__name__, str(error)]


def writers(spark: SparkSession, root: Path, place: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """The write function of every epoch, called directly, without the check before the start."""
    rows = spark.range(0, ROWS, 1, 8).selectExpr("id", "id % 3 AS k")
    home = root / place / "direct"
    sinks: dict[str, Sink] = {
        "parquet": FilesSink(home / "parquet"),
        "json": FilesSink(home / "json", "json", ("k",), option="lateRowsPath"),
        "foreachBatch": ForeachBatchSink(lambda rows, epoch: None),
        "memory": MemorySink("rows", spark),
        "console": ConsoleSink(),
    }
    for name, sink in sinks.items():
        if isinstance(sink, Outbox):
            sink.attach(home / name, spark)
        yield name, partial(_prepared, sink, rows)
    store = DirectoryStore(home / "snapshots")
    store.open("checkpointLocation")
    yield "delta", lambda: len(store.write_delta("000000-000000001-0-stage-0", rows))


def _prepared(sink: Sink, rows: Any) -> int:
    handle = sink.prepare(rows, transaction(1))
    assert handle is not None
    return len(handle["files"])


def counted(spark: SparkSession, feed: Path) -> WindowedStream:
    """The query to start."""
    stream = sj.stream(Feed(feed).read(spark)).withWatermark("ts", "5 seconds")
    return stream.groupBy(sj.window("ts", "10 seconds"), "k").agg(F.count("*").alias("n"))


def writer(spark: SparkSession, root: Path, name: str, option: str, place: str) -> StreamWriter:
    """A query with one directory in a place, and all others in shared ones."""
    where = {
        each: root / (place if each == option else "shared") / f"{name}-{option}-{place}" / each for each in OPTIONS
    }
    chosen = counted(spark, root / "shared" / "in").writeStream
    if name == "foreachBatch":
        chosen = chosen.foreachBatch(lambda rows, epoch: None)
    elif name in ("files", "json"):
        kind = "parquet" if name == "files" else "json"
        chosen = chosen.format("files").option("fileFormat", kind).option("path", where["path"])
    else:
        chosen = chosen.format(name).queryName("counted")
    if option == "lateRowsPath":
        chosen = chosen.option("lateRowsPath", where["lateRowsPath"])
    return chosen.option("checkpointLocation", where["checkpointLocation"]).trigger(availableNow=True)


OPTIONS = ("checkpointLocation", "path", "lateRowsPath")


def starts(spark: SparkSession, root: Path, *, every: bool) -> Iterator[tuple[str, list[str]]]:
    """Queries that are refused before they start."""
    for name, option, place in product(FORMATS, OPTIONS, ("one", "both")):
        if option == "path" and name not in ("files", "json"):
            continue
        if every or (name, option, place) in SHORT:
            start = writer(spark, root, name, option, place).start
            yield f"{name} {option} {place}", outcome(lambda start=start: start().awaitTermination())
    tempfile.tempdir = str(root / "both")
    without = counted(spark, root / "shared" / "in").writeStream.format("memory").queryName("counted")
    yield "memory nowhere both", outcome(without.trigger(availableNow=True).start)
    tempfile.tempdir = None


def left(spark: SparkSession, root: Path) -> list[str]:
    """The current content of the places, on the driver and on the executors."""
    paths = [str(root / place) for place in ("one", "both")]

    def look(_: int) -> list[str]:
        return [str(found) for path in paths for found in Path(path).iterdir() if found.name != "direct"]

    found = spark.sparkContext.parallelize(range(16), 16).flatMap(look).collect()
    return sorted({*found, *look(0)})


def joined(spark: SparkSession, root: Path) -> dict[str, Any]:
    """A query that loses an executor, whose successor first does not share the output directory, and then does."""
    out, home = root / LATER / "out", root / "shared" / "joined"
    struck: list[int] = []

    def strike(step: sj.EpochPhase, epoch: int) -> None:
        if step is sj.EpochPhase.CLEAN and epoch == 2 and not struck:
            struck.append(end_one(spark))

    def start() -> sj.StreamingQuery:
        results = counted(spark, root / "shared" / "in").writeStream.format("files").option("path", out)
        results = results.option("checkpointLocation", home).option("closeWindowsAtEnd", value=True)
        return results.trigger(availableNow=True).onEpochPhase(strike).start()

    ended = outcome(lambda: start().awaitTermination())
    before = len(list(out.glob("part-*")))
    # The executor that joined last has the highest number and pid.
    end_one(spark)
    start().awaitTermination()
    found = sj.read_files(str(out)).groupBy().sum("n").first()
    assert found is not None
    return {"ended": ended, "before": before, "after": found[0]}


def end_one(spark: SparkSession) -> int:
    """Kill the youngest executor and wait until another one has come."""
    before = executors()
    victim = max(before, key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]))
    known = {info.port() for info in _infos(spark)}
    os.kill(victim, signal.SIGKILL)
    pause = threading.Event()
    while len({info.port() for info in _infos(spark)} - known) < 1:
        pause.wait(0.1)
    return victim


def _infos(spark: SparkSession) -> list[Any]:
    return list(spark._jsparkSession.sparkContext().statusTracker().getExecutorInfos())


if __name__ == "__main__":
    os.environ["SPARKJET_TEST_DRIVER"] = str(os.getpid())
    top, wanted = Path(sys.argv[1]), sys.argv[2]
    cluster = session({"spark.executorEnv.JAVA_HOME": str(top / "java")})
    report: dict[str, Any] = {}
    if wanted == "short":
        report["writers"] = {
            f"{name} {place}": outcome(act) for place in PLACES for name, act in writers(cluster, top, place)
        }
    if wanted == "joined":
        report["joined"] = joined(cluster, top)
    else:
        report["starts"] = dict(starts(cluster, top, every=wanted == "long"))
        report["left"] = left(cluster, top)
    (top / "report.json").write_text(json.dumps(report))
    cluster.stop()
