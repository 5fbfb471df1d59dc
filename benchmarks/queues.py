"""What studies of brokers share: queries that drain queues, in turns with a bare loop."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import sparkjet as sj
from benchmarks.beside import in_turns
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.work import Goal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES = 1, 4
WARM_UP = 1
ROUNDS = 5
GOAL = 0.8


def compared(
    study: str,
    broker: str,
    messages: int,
    queue: Callable[[], str],
    through_spark: Callable[[SparkSession, Sequence[str]], float],
    bare: Callable[[Sequence[str]], float],
    goal: float = GOAL,
) -> list[Ratio]:
    """One ratio for each number of queues, paired by round.

    Args:
        study: Its id.
        broker: The broker's name.
        messages: Number of messages that both ways read.
        queue: Makes a queue.
        through_spark: Seconds of sparkjet's source, from filled queues on.
        bare: Seconds of the bare loop.
        goal: The ratio to reach.
    """
    session = local_session()
    sj.register_sources(session)
    ratios = []
    for count in QUEUES:
        queues = [queue() for _ in range(count)]
        ways = {"source": lambda _, of=queues: through_spark(session, of), "bare": lambda _, of=queues: bare(of)}
        seconds = in_turns(ways, ROUNDS, WARM_UP)
        what = f"messages from {broker}, {count} queue{'s' if count > 1 else ''}"
        against = Goal("bare client loop", goal)
        ratios.append(Ratio.of_seconds(f"{study}-{count}", what, against, seconds["source"], seconds["bare"], messages))
    session.stop()
    return ratios


def drained(df: DataFrame, messages: int) -> float:
    """Seconds from the epoch that lets the receiver read to the last acknowledgement, into ``noop``."""
    ends: list[float] = []

    def listen(phase: sj.EpochPhase, _: int) -> None:
        if phase is sj.EpochPhase.CLEAN:
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as directory:
        writer = sj.stream(df).writeStream.format("noop").option("checkpointLocation", Path(directory) / "home")
        query = writer.onEpochPhase(listen).trigger(availableNow=True).start()
        query.awaitTermination()
    rows = sum(each["numInputRows"] for each in query.recentProgress)
    if rows != messages:
        sys.exit(f"{rows} rows")
    sys.stderr.write(f"{len(ends)} epochs\n")
    return ends[-1] - ends[0]
