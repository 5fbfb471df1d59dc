"""The time in which a query drains queues, as studies of brokers measure it."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import sparkjet as sj

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
