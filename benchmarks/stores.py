"""T20: epochs with the home on a path, on HDFS, on S3 and in a grid, next to Spark's own with its checkpoint there.

``python -m benchmarks.stores [shape…]``. Both read the same local files, one for an epoch, and write into noop; they
take turns in one warm driver. The servers are on this machine, so a request takes a millisecond or two: what a store
further away costs is the number of requests, which is printed for S3. Spark has no checkpoint in a grid: that of three
members with one backup is compared with our own home on a path in memory.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from tests.grid.processes import GridProcesses
from tests.servers.hdfs import HdfsServer
from tests.servers.s3 import S3Server, client
from tests.servers.s3_proxy import S3Proxy

EPOCHS = 20
MEASURED = 10
"""The last ones: in the first ones Java compiles."""
ROUNDS = 5
PARTITIONS = 2
MEMORY = Path("/dev/shm")  # noqa: S108 - Linux' file system in memory
GRID, TMPFS = "grid", "tmpfs"
SPARK = Goal("spark", 1.0)
SCHEMA = "ts timestamp, key long, value long, price double"


@dataclass(frozen=True)
class Shape:
    """An epoch.

    Args:
        what: Its description, for the table.
        rows: Rows of an epoch.
        keys: Number of keys.
        seconds: Event time of an epoch.
        theirs: Length of Spark's windows in seconds, which slide by one; ours are of 60.
    """

    what: str
    rows: int
    keys: int
    seconds: int
    theirs: int


SHAPES = {
    "T5": Shape("epochs of 10,000 rows, 100 keys; Spark's windows are tumbling", 10_000, 100, 1, 1),
    "T1": Shape("epochs of 100,000 rows, 1,000 keys, 60 steps", 100_000, 1_000, 2, 60),
}
"""As the works of these names, with few rows for T1: Spark copies each into 60 windows."""
USUAL = ("T5",)
"""Those that run without a name."""


def feed(session: SparkSession, shape: Shape, home: Path) -> None:
    """Write the input: a file for each epoch."""
    home.mkdir()
    for number in range(EPOCHS):
        ids = session.range(number * shape.rows, (number + 1) * shape.rows, 1, 1)
        rows = ids.select(
            F.timestamp_micros((F.col("id") * shape.seconds * 1_000_000 / shape.rows).cast("long")).alias("ts"),
            (F.col("id") * 7919 % shape.keys).alias("key"),
            F.col("id").alias("value"),
            (F.col("id") % 1000 / 8).alias("price"),
        )
        rows.write.parquet(str(home / "written"), mode="overwrite")
        (written,) = (home / "written").glob("*.parquet")
        file = written.rename(home / f"{number:03}.parquet")
        # Spark's file source reads the oldest first.
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def results(source: DataFrame, shape: Shape, *, ours: bool) -> Any:
    """The query that is measured."""
    rows: Any = sj.stream(source) if ours else source
    length, window = (60, sj.window) if ours else (shape.theirs, F.window)
    steps = window("ts", f"{length} seconds", "1 second")
    grouped = rows.withWatermark("ts", "0 seconds").groupBy(steps, "key")
    return grouped.agg(F.count("*").alias("n"), F.sum("value").alias("total"), F.avg("price").alias("mean"))


def seconds(source: DataFrame, home: str, shape: Shape, *, ours: bool) -> float:
    """Seconds of a measured epoch, from its planning to its end."""
    writer = (
        results(source, shape, ours=ours).writeStream.format("noop").outputMode("append").trigger(availableNow=True)
    )
    query = writer.option("checkpointLocation", home).start()
    query.awaitTermination()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    epochs = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
    return float(statistics.median(epochs[-MEASURED:])) / 1000


@contextmanager
def stores(local: Path) -> Iterator[tuple[SparkSession, dict[str, str], Callable[[], int]]]:
    """A session, the stores by name, and the number of requests that S3 has been asked since the last call."""
    with ExitStack() as servers:
        hdfs = servers.enter_context(HdfsServer())
        s3 = servers.enter_context(S3Server())
        proxy = servers.enter_context(S3Proxy(s3.port))
        settings = {f"spark.hadoop.{name}": value for name, value in s3.settings().items()}
        session = local_session(settings={"spark.jars": ",".join(map(str, client())), **settings})
        servers.callback(session.stop)
        session.conf.set("spark.sql.shuffle.partitions", PARTITIONS)

        members = local.with_name("members")
        members.mkdir()
        grid = servers.enter_context(GridProcesses(members))
        session.conf.set("spark.sparkjet.grid.tokenFile", str(grid.token))

        def asked() -> int:
            found = len(proxy.requests)
            proxy.requests.clear()
            return found

        # Counted through a proxy of Python's, which takes longer than the server: another bucket, not measured.
        counted = s3.bucket()
        session.sparkContext._jsc.hadoopConfiguration().set(f"fs.s3a.bucket.{counted}.endpoint", proxy.endpoint)
        places = {
            "file": f"file:{local}",
            TMPFS: f"file:{servers.enter_context(tempfile.TemporaryDirectory(dir=MEMORY))}",
            GRID: f"grid://{','.join(member.address for member in grid.members)}",
            "hdfs": hdfs.uri,
            "s3": f"s3a://{s3.bucket()}",
            "counted": f"s3a://{counted}",
        }
        yield session, places, asked


def study(names: tuple[str, ...] = ()) -> list[Ratio]:
    """For each shape and store the ratio of both."""
    ratios = []
    with tempfile.TemporaryDirectory(prefix="sparkjet-stores-") as directory:
        local = Path(directory)
        with stores(local / "file") as (session, places, asked):
            counted = places.pop("counted")
            for name in names or USUAL:
                shape, given = SHAPES[name], local / name
                feed(session, shape, given)
                source = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(given))
                requests = {}
                for engine, ours in (("sparkjet", True), ("spark", False)):
                    # The first runs too, in which Java compiles.
                    asked()
                    seconds(source, f"{counted}/{uuid4().hex}", shape, ours=ours)
                    requests[engine] = asked() // EPOCHS
                print(f"{name}: requests of an epoch on S3 {requests}", file=sys.stderr)
                found: dict[tuple[str, bool], list[float]] = {}
                for _ in range(ROUNDS):
                    for store, place in places.items():
                        for ours in (True,) if store == GRID else (True, False):
                            taken = seconds(source, f"{place}/{uuid4().hex}", shape, ours=ours)
                            found.setdefault((store, ours), []).append(taken)
                            print(
                                f"{name} {store:5} {'sparkjet' if ours else 'spark':8} {taken:7.3f} s", file=sys.stderr
                            )
                for store in places:
                    what = f"{shape.what}, state on {store}"
                    goal, peer = (Goal(TMPFS, 1 / 1.2), (TMPFS, True)) if store == GRID else (SPARK, (store, False))
                    pair = found[store, True], found[peer]
                    ratios.append(Ratio.of_seconds(f"T20-{name}-{store}", what, goal, *pair, shape.rows))
    return ratios


if __name__ == "__main__":
    main(lambda: study(tuple(sys.argv[1:])))
