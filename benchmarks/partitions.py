"""C1: the driver's processor time for an epoch, by the number of partitions of the state.

``python -m benchmarks.partitions``. On a ``local-cluster``, whose executors are other processes. The rounds of each
number are stretches of one query: processor time depends little on what else the machine does.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from pyspark import SparkContext

from benchmarks.local import local_session
from benchmarks.peers.micro_batches import Epochs, results
from benchmarks.peers.sparkjet import dialect
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal, work_of

COUNTS = (2, 8, 32, 128)
WARM_UP, MEASURED = 60, 12
"""Epochs, those of each round."""
ROUNDS = 5
GOAL = 1.2
"""Times as long as with the fewest partitions."""
TICK = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """What a process has used so far, without its children."""
    _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / TICK


def driver_seconds() -> float:
    """What Python and the JVM of the driver have used so far."""
    gateway = SparkContext._gateway
    assert gateway is not None  # noqa: S101 - there is a session
    java = int(gateway.jvm.java.lang.ProcessHandle.current().pid())
    return processor_seconds(os.getpid()) + processor_seconds(java)


def measure(
    partitions: int,
    home: Path,
    *,
    substreams: int = 1,
    executors: int = 2,
    warm_up: int = WARM_UP,
    rounds: int = ROUNDS,
) -> list[float]:
    """The driver's processor seconds for an epoch of T5, by round."""
    session = local_session(master=f"local-cluster[{executors},1,1024]")
    work = dataclasses.replace(work_of("T5"), substreams=substreams)
    query = results(session, work, dialect(work))
    writer = query.writeStream.format("files").option("path", home / "results").option("statePartitions", partitions)
    running = writer.option("checkpointLocation", home / "checkpoint").start()
    epochs = Epochs(running)
    marks: list[tuple[int, float]] = []
    while len(marks) <= rounds:
        # From the mark before, which may have come late.
        least = marks[-1][0] + MEASURED if marks else warm_up
        while epochs.newest() < least:
            # What polling takes counts too.
            time.sleep(3.0)
        marks.append((epochs.newest(), driver_seconds()))
    running.stop()
    session.stop()
    return [(after - before) / (last - first) for (first, before), (last, after) in pairwise(marks)]


def study() -> list[Ratio]:
    """One ratio for each number of partitions: the processor time with the fewest by that with so many."""
    seconds: dict[int, list[float]] = {}
    # The first number once more, and first: the driver's JVM goes on from one to the next, and is compiled by then.
    for count in (COUNTS[0], *COUNTS):
        with tempfile.TemporaryDirectory(prefix="sparkjet-partitions-") as home:
            seconds[count] = measure(count, Path(home))
        shown = ", ".join(f"{each:.3f}" for each in seconds[count])
        print(f"{count:4} partitions: {shown} s of the driver an epoch", file=sys.stderr, flush=True)
    fewest, *others = COUNTS
    return [
        Ratio.of_seconds(
            f"C1-{count}",
            f"epochs with {count} partitions, by the driver's processor time",
            Goal(f"{fewest} partitions", 1 / GOAL),
            seconds[count],
            seconds[fewest],
        )
        for count in others
    ]


if __name__ == "__main__":
    main(study)
