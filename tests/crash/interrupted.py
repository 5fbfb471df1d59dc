"""A script whose query counts numbers, for Ctrl-C: ``python -m tests.crash.interrupted <directory> <where>``.

It says ``ready`` while its first epoch runs and waits there for the pipe ``go`` (``epoch``), or when it has nothing to
do (``idle``).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import sparkjet as sj
from tests.crash.driver import session
from tests.feed import Feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main(root: Path, where: str) -> None:
    def keep(rows: DataFrame, epoch: int) -> None:
        counts = [row["count"] for row in rows.collect()]
        if where == "epoch":
            say_ready()
            # A pipe: until the test opens it.
            (root / "go").read_text()
        with (root / "counts").open("a") as file:
            file.write(f"{epoch} {counts}\n")

    stream = sj.stream(Feed(root / "in").read(session("local[1]", {}))).withWatermark("ts", "0 seconds")
    counts = stream.groupBy(sj.window("ts", "10 seconds")).count()
    writer = counts.writeStream.foreachBatch(keep).option("checkpointLocation", root / "home")
    query = writer.queryName("clicks").start()
    if where == "idle":
        query.processAllAvailable()
        say_ready()
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
