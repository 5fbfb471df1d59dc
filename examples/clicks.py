"""Clicks from Kafka, by user into visits, into PostgreSQL: one partition lags by hours, and every row is written once.

    make clicks         or: .venv/bin/python examples/clicks.py

`visits` is the part to copy. The rest starts a broker and a database of its own (`clicks_servers.py`), fills the first
(`clicks_feed.py`), and compares what psql finds in the second with visits computed from the clicks
(`clicks_check.py`).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

# Started as a file, Python looks for modules in the file's directory only.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    from pyspark.sql import functions as F
    from rich.console import Console

    import sparkjet as sj
    from examples.clicks_check import differences, read_back, shown
    from examples.clicks_feed import BEHIND, GAP, clicks, expected, produce
    from examples.clicks_servers import NoServersError, Servers, servers
    from examples.session import local_session
except ModuleNotFoundError as missing:
    sys.exit(f"clicks: the package {missing.name} is not installed. Run `make setup`, which needs a network.")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.writer import StreamWriter

TOPIC, TABLE, LOG = "clicks", "visits", "spark.log"


def visits(spark: SparkSession, brokers: str, database: str, checkpoint: Path) -> StreamWriter:
    """What each user did without a pause of half an hour, from the topic into the table."""
    sj.register_sources(spark)
    source = spark.readStream.format("sparkjet-kafka").option("kafka.bootstrap.servers", brokers)
    source = source.option("subscribe", TOPIC).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 500)
    given = source.load().selectExpr(
        "CAST(key AS string) AS visitor", "CAST(value AS string) AS page", "timestamp", "topic", "partition"
    )
    return (
        sj.stream(given)
        .withWatermark("timestamp", "1 minute")
        .groupBy(sj.session_window("timestamp", GAP), "visitor")
        .agg(
            F.count("*").alias("clicks"),
            F.max("timestamp").alias("last_click"),
            F.max_by("page", "timestamp").alias("exit"),
        )
        .select("visitor", F.col("session_window.start").alias("first_click"), "last_click", "clicks", "exit")
        .writeStream.format("postgres")
        .option("dsn", database)
        .option("dbtable", TABLE)
        .option("checkpointLocation", checkpoint)
        .option("closeWindowsAtEnd", True)
        .trigger(availableNow=True)
    )


def main(start: Callable[[], AbstractContextManager[Servers]] = servers) -> int:
    """Start the servers and run the job; the exit status is 0 if every check passed."""
    console = Console(soft_wrap=True)
    root = Path(tempfile.mkdtemp(prefix="sparkjet-clicks-"))
    good = False
    try:
        console.print("Starting a Kafka broker (Maven downloads it the first time, 43 MB) and a PostgreSQL server …")
        with start() as running:
            console.print(f"Starting Spark; its log is {root / LOG} …")
            spark = local_session(root, "clicks", log=root / LOG)
            try:
                good = job(spark, running, root / "checkpoint", console)
            finally:
                spark.stop()
    except NoServersError as error:
        complain(f"clicks: {error}")
    except KeyboardInterrupt:
        complain("clicks: stopped.")
    finally:
        # A failed run is kept for inspection, unless nothing has been written.
        if not good and any(root.iterdir()):
            complain(f"clicks: the log and the checkpoint are in {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    return 0 if good else 1


def job(spark: SparkSession, running: Servers, checkpoint: Path, console: Console) -> bool:
    """Clicks into Kafka, visits into PostgreSQL, and the check; whether every check passed."""
    began = time.monotonic()
    given = clicks()
    produce(running.brokers, TOPIC, given)
    behind = f"{TOPIC}/1 is {BEHIND // timedelta(hours=1)} hours behind {TOPIC}/0"
    console.print(f"{len(given):,} clicks are in two partitions of Kafka, and {behind}.")
    query = visits(spark, running.brokers, running.database, checkpoint).start()
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None  # noqa: S101 - there were clicks
    late = {name: each["lateRows"] for name, each in progress["substreams"].items()}

    rows = read_back(running.psql, TABLE)
    console.print(shown(rows))
    problems = differences(rows, expected(given))
    if late != {f"{TOPIC}/0": 0, f"{TOPIC}/1": 0}:
        problems.append(f"late clicks by partition: {late}")
    for problem in problems:
        complain(f"✗ {problem}")
    if not problems:
        what = f"✓ {len(rows)} visits, each once and equal to those computed from the clicks; no click was late."
        console.print(f"{what} {time.monotonic() - began:.0f} seconds.", style="green")
    return not problems


def complain(text: str) -> None:
    """Print an error verbatim: no markup, no wrapping in the middle of a path."""
    Console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
