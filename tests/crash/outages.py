"""Queries of the tests' session that wait at the end of one phase each, while the store of their home goes away."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from tests.cluster.runs import windows_of
from tests.faults.waiting import PATIENCE, until
from tests.feed import START, Feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = 2
"""Epoch in which the store goes away."""
Windows = Counter[tuple[int, str, int, int]]
"""Start, key, count and sum of each window."""


class Held:
    """A query with home, files and outbox in one store, which waits at the end of a phase.

    Args:
        session: Where it runs.
        feed: Its input.
        place: The URI of its own directory.
        phase: The phase.
    """

    def __init__(self, session: SparkSession, feed: Feed, place: str, phase: EpochPhase) -> None:
        self._session, self._feed, self._place, self._phase = session, feed, place, phase
        self._reached, self._go = threading.Event(), threading.Event()
        self._delivered: dict[int, Windows] = {}
        self._query: sj.StreamingQuery

    def start(self) -> None:
        """Start it, or go on after it has ended."""
        stream = sj.stream(self._feed.read(self._session)).withWatermark("ts", "5 seconds")
        grouped = stream.groupBy(sj.window("ts", "30 seconds", "10 seconds"), "k")
        windows = grouped.agg(F.count("*").alias("n"), F.sum("v").alias("total"))
        files = windows.writeStream.format("files").option("path", f"{self._place}/out")
        files = files.option("closeWindowsAtEnd", True)
        files = files.option("statePartitions", 2).trigger(availableNow=True).onEpochPhase(self._told)
        calls = windows.writeStream.foreachBatch(self._collect)
        self._query = sj.start(files, calls, checkpointLocation=f"{self._place}/home")

    def wait_at_phase(self) -> None:
        """Wait until the phase has ended."""
        until(lambda: self._reached.is_set() or not self._query.isActive, f"the end of {self._phase.value}")
        assert self._reached.is_set(), self._query.exception()

    def release(self) -> None:
        """Let it go on."""
        self._go.set()

    def end(self) -> BaseException | None:
        """Wait for its end; returns what it failed with."""
        until(lambda: not self._query.isActive, f"the end of the query held at {self._phase.value}")
        try:
            self._query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - the test judges it
            return error
        return None

    def check(self, rows: list[tuple[int, str, int]]) -> None:
        """Files and calls have the results of the naive reference, nothing was late, and no state is left."""
        expected = windows_of(rows)
        for found in (sj.read_files(f"{self._place}/out"), self._session.read.parquet(f"{self._place}/out")):
            assert _windows(found) == expected
        assert sum(self._delivered.values(), Counter()) == expected
        progress = self._query.lastProgress
        assert progress is not None
        assert progress["lateRows"]["total"] == 0
        assert progress["snapshot"]["entries"] == 0

    def _told(self, phase: EpochPhase, epoch: int) -> None:
        if (phase, epoch) == (self._phase, EPOCH) and not self._go.is_set():
            self._reached.set()
            assert self._go.wait(PATIENCE)

    def _collect(self, rows: DataFrame, epoch: int) -> None:
        found = _windows(rows)
        # A call whose end could not be written down comes again, with the same rows.
        assert self._delivered.setdefault(epoch, found) == found


def _windows(rows: DataFrame) -> Windows:
    start = F.unix_seconds("window.start") - START
    return Counter((row[0], row[1], row[2], row[3]) for row in rows.select(start, "k", "n", "total").collect())
