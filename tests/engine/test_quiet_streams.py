"""Streams on which nothing arrives: ticks, idle and retired substreams, discovery, early rows by the clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from sparkjet.testing import CollectingSink
from tests.feed import START, Feed, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SECOND = 1_000_000


@dataclass
class Quiet:
    """A running query on its own clock."""

    spark: SparkSession
    feed: Feed
    clock: sj.ManualClock
    home: Path
    sink: CollectingSink = field(default_factory=CollectingSink)
    query: sj.StreamingQuery | None = None

    def start(self, **settings: Any) -> sj.StreamingQuery:
        """Count by windows of ten seconds."""
        policy = settings.pop("policy", "0 seconds")
        mode, period = settings.pop("mode", "append"), settings.pop("period", None)
        stream = sj.stream(self.feed.read(self.spark)).withWatermark("ts", policy, **settings)
        writer = stream.groupBy(sj.window("ts", "10 seconds")).count().writeStream.format(self.sink)
        writer.option("checkpointLocation", self.home / "ck").clock(self.clock)
        writer.option("lateRowsPath", self.home / "late").outputMode(mode).option("earlyResultsPeriod", period)
        writer.option("isEarly", True if mode == "update" else None)
        self.query = writer.option("statePartitions", 2).start()
        return self.query

    def counts(self) -> list[tuple[Any, ...]]:
        """Published rows: start of the window after the feed's, count, and whether it is early if that is known."""
        published = [row for rows in self.sink.committed.values() for row in rows]
        return sorted((int(row.window.start.timestamp()) - START, *row[1:]) for row in published)

    def pass_time(self, seconds: float) -> None:
        """Let the clock go on, and the query notice it."""
        assert self.query is not None
        self.clock.advance(int(seconds * SECOND))
        self.query.processAllAvailable()

    def watermark(self) -> float | None:
        """The watermark in seconds after the feed's start."""
        assert self.query is not None
        progress = self.query.lastProgress
        assert progress is not None
        return None if progress["watermark"] is None else progress["watermark"] / SECOND - START


@pytest.fixture
def quiet(spark: SparkSession, tmp_path: Path) -> Iterator[Quiet]:
    running = Quiet(spark, Feed(tmp_path / "in"), sj.ManualClock((START + 1000) * SECOND), tmp_path)
    yield running
    if running.query is not None:
        running.query.stop()


def test_a_lull_closes_windows_without_a_batch_and_a_restart_repeats_nothing(quiet: Quiet) -> None:
    quiet.feed.add(*rows([1, 2], v=1))
    query = quiet.start(policy=sj.limiting_lag_and_lull("5 seconds", "3 seconds"))
    query.processAllAvailable()
    quiet.pass_time(10)
    assert quiet.counts() == []
    quiet.pass_time(7)
    assert quiet.counts() == [(0, 2)]
    progress = query.lastProgress
    assert progress is not None
    assert progress["batchId"] is None
    query.stop()
    again = quiet.start(policy=sj.limiting_lag_and_lull("5 seconds", "3 seconds"))
    quiet.feed.add(*rows([8, 30], v=1))
    again.processAllAvailable()
    assert quiet.counts() == [(0, 2)]
    quiet.pass_time(20)
    assert quiet.counts() == [(0, 2), (30, 1)]
    assert again.exception() is None


# In CI, `time/test_policies.py` has the policies, and other tests here let the clock close windows.
@pytest.mark.long
def test_clock_driven_policies(quiet: Quiet) -> None:
    quiet.feed.add(*rows([1, 1005], v=1))
    quiet.start(policy=sj.limiting_timestamp_and_wall_clock_lag("20 seconds", "30 seconds"))
    assert quiet.query is not None
    quiet.query.processAllAvailable()
    assert quiet.counts() == [(0, 1)]
    quiet.pass_time(39)
    assert quiet.counts() == [(0, 1)]
    quiet.pass_time(1)
    assert quiet.counts() == [(0, 1), (1000, 1)]


@pytest.mark.crash
def test_an_idle_substream_does_not_hold_the_others_and_revived_never_lowers_the_watermark(quiet: Quiet) -> None:
    quiet.feed.add(*rows([1, 25], p="a", v=1), *rows([3], p="b", v=1))
    query = quiet.start(by="p", substreams=["a", "b"], idleTimeout="1 minute")
    query.processAllAvailable()
    assert quiet.watermark() == 0
    quiet.pass_time(59)
    assert quiet.counts() == []
    quiet.feed.add(*rows([26], p="a", v=1))
    quiet.pass_time(1)
    assert quiet.counts() == [(0, 2)]
    progress = query.lastProgress
    assert progress is not None
    assert progress["substreams"]["b"]["idle"]
    assert not progress["substreams"]["a"]["idle"]
    quiet.feed.add(*rows([15, 21, 29], p="b", v=1))
    query.processAllAvailable()
    assert quiet.watermark() == 20
    quiet.feed.add(*rows([41], p="b", v=1), *rows([35], p="a", v=1))
    query.processAllAvailable()
    # The row at 15 came too late; nothing else did.
    assert quiet.counts() == [(0, 2), (20, 4)]


# In CI, `time/test_coalescing.py`.
@pytest.mark.long
def test_all_idle_flushes_the_highest_watermark(quiet: Quiet) -> None:
    quiet.feed.add(*rows([1, 31], p="a", v=1), *rows([3], p="b", v=1))
    query = quiet.start(by="p", substreams=["a", "b"], idleTimeout="1 minute")
    query.processAllAvailable()
    quiet.pass_time(60)
    assert quiet.watermark() == 30
    assert quiet.counts() == [(0, 2)]


@pytest.mark.crash
def test_a_laggard_that_comes_in_batch_20_loses_nothing_while_it_is_waited_for(quiet: Quiet) -> None:
    query = quiet.start(by="p", discover="2 minutes")
    for batch in range(19):
        quiet.feed.add(*rows([batch * 10], p="ahead", v=1))
    quiet.pass_time(60)
    assert quiet.counts() == []
    quiet.feed.add(*rows([0, 10, 20], p="laggard", v=1))
    quiet.pass_time(59)
    assert quiet.counts() == []
    quiet.pass_time(1)
    assert quiet.counts() == [(0, 2), (10, 2)]
    progress = query.lastProgress
    assert progress is not None
    assert progress["lateRows"]["total"] == 0


@pytest.mark.crash
def test_a_retired_substream_holds_nothing_even_after_a_restart(quiet: Quiet) -> None:
    quiet.feed.add(*rows([1, 25], p="a", v=1), *rows([3], p="b", v=1))
    query = quiet.start(by="p", substreams=["a", "b", "c"])
    query.processAllAvailable()
    with pytest.raises(sj.AnalysisError, match=r"'cc'.*\"c\""):
        query.retireSubstream("cc")
    query.retireSubstream("c")
    query.retireSubstream("b")
    assert quiet.counts() == [(0, 2)]
    query.stop()
    query = quiet.start(by="p", substreams=["a", "b", "c"])
    quiet.feed.add(*rows([35], p="a", v=1))
    query.processAllAvailable()
    assert quiet.counts() == [(0, 2), (20, 1)]


# In CI, `time/test_retirement.py`; that the engine retires one is above.
@pytest.mark.long
def test_a_substream_is_retired_by_timeout(quiet: Quiet) -> None:
    quiet.feed.add(*rows([1, 25], p="a", v=1), *rows([3], p="b", v=1))
    query = quiet.start(by="p", substreams=["a", "b"], substreamTimeout="10 minutes")
    query.processAllAvailable()
    quiet.clock.advance(599 * SECOND)
    quiet.feed.add(*rows([26], p="a", v=1))
    query.processAllAvailable()
    assert quiet.counts() == []
    quiet.pass_time(1)
    assert quiet.counts() == [(0, 2)]
    progress = query.lastProgress
    assert progress is not None
    assert sorted(progress["substreams"]) == ["a"]


# In CI, `test_changes.py` sends rows by the clock, and at last those of windows that close.
@pytest.mark.long
def test_early_rows_come_by_the_clock_and_then_the_final_row(quiet: Quiet) -> None:
    quiet.feed.add(*rows([1, 2], v=1))
    query = quiet.start(policy="0 seconds", mode="update", period="30 seconds")
    query.processAllAvailable()
    quiet.pass_time(29)
    assert quiet.counts() == []
    quiet.pass_time(1)
    assert quiet.counts() == [(0, 2, True)]
    quiet.pass_time(15)
    quiet.feed.add(*rows([4], v=1))
    query.processAllAvailable()
    assert quiet.counts() == [(0, 2, True)]
    quiet.pass_time(15)
    assert quiet.counts() == [(0, 2, True), (0, 3, True)]
    quiet.pass_time(30)
    assert quiet.counts() == [(0, 2, True), (0, 3, True)], "nothing has changed"
    quiet.feed.add(*rows([3, 30], v=1))
    query.processAllAvailable()
    assert quiet.counts() == [(0, 2, True), (0, 3, True), (0, 4, False), (30, 1, True)]


@pytest.mark.crash
def test_after_a_clock_has_jumped_and_was_set_back_early_rows_come_by_it_again(quiet: Quiet) -> None:
    quiet.feed.add(*rows([1, 2], v=1))
    query = quiet.start(policy="0 seconds", mode="update", period="30 seconds")
    query.processAllAvailable()
    quiet.pass_time(3600)
    assert quiet.counts() == [(0, 2, True)]
    quiet.pass_time(-3600)
    quiet.feed.add(*rows([3], v=1))
    query.processAllAvailable()
    quiet.pass_time(29)
    assert quiet.counts() == [(0, 2, True)]
    quiet.pass_time(1)
    assert quiet.counts() == [(0, 2, True), (0, 3, True)]


@dataclass(frozen=True)
class EveryThird:
    """A policy of a user's: the watermark follows every third report only."""

    uses_clock = False

    def create(self) -> sj.WatermarkPolicy:
        return _EveryThird()


class _EveryThird:
    def __init__(self) -> None:
        self.reports = 0
        self.watermark = -(2**63)

    def report(self, timestamp: int, now: int) -> None:
        self.reports += 1
        if self.reports % 3 == 0:
            self.watermark = max(self.watermark, timestamp)

    def current(self, now: int) -> int:
        return self.watermark

    def snapshot(self) -> dict[str, int]:
        return {"reports": self.reports, "watermark": self.watermark}

    def restore(self, snapshot: dict[str, int]) -> None:
        self.reports, self.watermark = snapshot["reports"], snapshot["watermark"]


def test_a_policy_of_the_users_keeps_its_state_over_a_restart(quiet: Quiet) -> None:
    quiet.feed.add(*rows([1], v=1))
    quiet.feed.add(*rows([12], v=1))
    query = quiet.start(policy=EveryThird())
    query.processAllAvailable()
    assert quiet.counts() == []
    query.stop()
    query = quiet.start(policy=EveryThird())
    quiet.feed.add(*rows([15], v=1))
    query.processAllAvailable()
    assert quiet.counts() == [(0, 1)]
