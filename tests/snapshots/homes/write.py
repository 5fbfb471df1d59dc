"""Writes homes of this version's record format: ``python -m tests.snapshots.homes.write``.

Run it once for each format, before there is a next one: later versions are held to what it leaves below ``format-N``.
Each home is written by its own process (the same command with query, kind and a directory): ``stopped`` ends in
good order, ``decided`` like a crash, right after a decision.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from itertools import product
from pathlib import Path
from typing import Any

import sparkjet as sj
from tests.snapshots.homes import operators, queues, shops
from tests.snapshots.homes.archives import HOMES, KINDS, archive, pack
from tests.snapshots.homes.shops import GONE, PAUSE, RECORDED, START

QUERIES = {"shops": shops, "operators": operators, "queues": queues}
FEWEST = {"shops": 3, "operators": 4, "queues": 1}
"""Number of transactions that a home has decided; of every output that has rows in each epoch."""


def write(name: str, kind: str, root: Path) -> None:
    """Run the query into a directory until its home is worth keeping."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
    spark = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    clock = sj.ManualClock(START)
    dies = threading.Event()

    def listen(phase: Any, epoch: int) -> None:
        if dies.is_set() and phase.name == "DECIDE":
            record = newest(root)
            if record["kind"] == "epoch" and len(record["transactions"]) >= FEWEST[name]:
                os._exit(0)

    query_of = QUERIES[name]
    query_of.arrive(root, range(0))
    first, *others = query_of.outputs(spark, root, clock)
    query = sj.start(first.trigger(processingTime="50 milliseconds").onEpochPhase(listen), *others)
    for batch in range(RECORDED):
        if kind == "decided" and batch == RECORDED - 1:
            dies.set()
        query_of.arrive(root, range(batch, batch + 1))
        query.processAllAvailable()
        if batch == 0 and name == "shops":
            query.retireSubstream(GONE)
        clock.advance(PAUSE)
    query.stop()
    if kind == "decided":
        raise RuntimeError("no epoch had as many transactions")


def newest(root: Path) -> dict[str, Any]:
    """The newest record below a directory, as it is on disk."""
    record: dict[str, Any] = json.loads(max((root / "home" / "snapshots" / "log").glob("*.json")).read_text())
    return record


def main() -> None:
    """Write and pack a home of each query and kind."""
    for name, kind in product(QUERIES, KINDS):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory).resolve()
            command = [sys.executable, "-m", "tests.snapshots.homes.write", name, kind, str(root)]
            subprocess.run(command, check=True)
            target = HOMES / f"format-{newest(root)['format']}" / archive(name, kind)
            pack(root, target)
            sys.stdout.write(f"{target}: {target.stat().st_size} bytes\n")


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    # Workers run this interpreter, not the first python3 of the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    time.tzset()
    if len(sys.argv) > 3:
        write(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    else:
        main()
