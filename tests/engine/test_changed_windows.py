"""A window changed between two runs of a query: what is withheld is counted, and not computed from what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from tests.feed import START, Feed, rows

pytestmark = pytest.mark.spark

OLD, LONGER, FINER = ("30 seconds", "10 seconds"), ("60 seconds", "10 seconds"), ("30 seconds", "15 seconds")
CLOSED, END = 60, 100
"""Up to where the first run has closed windows, and the end of all rows."""


def events(feed: Feed, spark: SparkSession) -> Any:
    return sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")


def counted(rows: Any, shape: tuple[str, str]) -> Any:
    return rows.groupBy(F.window("ts", *shape)).count()


def hourly(rows: Any, shape: tuple[str, str]) -> Any:
    return counted(rows, shape).groupBy(F.window("window", "1 hour")).agg(F.sum("count").alias("count"))


def run(home: Path, results: Any, *, close: bool = False) -> int:
    """One run to the end of what there is; the number of windows that were withheld so far."""
    writer = (
        results.writeStream.format("files").option("path", home / "out").option("checkpointLocation", home / "home")
    )
    query = writer.option("closeWindowsAtEnd", close).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None
    withheld: int = progress["withheldWindows"]
    return withheld


def fed(tmp_path: Path, first: int, end: int) -> Feed:
    feed = Feed(tmp_path / "feed")
    feed.add(*rows(range(first, end, 5), j=0, v=1))
    return feed


def shown(home: Path) -> list[tuple[int, int, int]]:
    """Start, end and count of each window, in seconds after the feed's start."""
    found = sj.read_files(str(home / "out")).collect()
    bounds = [(each.window.start.timestamp(), each.window.end.timestamp(), each["count"]) for each in found]
    return sorted((int(start) - START, int(end) - START, count) for start, end, count in bounds)


@pytest.mark.crash
@pytest.mark.interpreted
def test_windows_that_span_a_change_are_withheld_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    feed = fed(tmp_path, 0, CLOSED + 5)
    assert run(tmp_path, counted(events(feed, spark), OLD)) == 0
    before = shown(tmp_path)
    feed.add(*rows(range(CLOSED + 5, 80, 5), j=0, v=1))
    # The watermark is at 75: of the windows that end by then, one is new, and its first rows are gone.
    assert run(tmp_path, counted(events(feed, spark), LONGER)) == 1
    assert shown(tmp_path) == before
    feed.add(*rows(range(80, END, 5), j=0, v=1))
    # Rows since 40 were still there, and with them the windows that start there.
    assert run(tmp_path, counted(events(feed, spark), LONGER), close=True) == 3
    whole = [(start, start + 60, (END - start) // 5) for start in range(40, END, 10)]
    assert shown(tmp_path) == [*before, *whole]


@pytest.mark.parametrize(
    # In CI, `windows/test_sliding.py` changes shapes, and so do the drivers of `crash/test_changed_windows.py`.
    "shape",
    [pytest.param((length, length), marks=pytest.mark.long) for length in ("10 seconds", "20 seconds")],
)
def test_shorter_windows_that_end_between_two_of_the_old_ones_are_emitted(
    spark: SparkSession, tmp_path: Path, shape: tuple[str, str]
) -> None:
    uneven, length = ("30 seconds", "20 seconds"), int(shape[0].split()[0])
    feed = fed(tmp_path, 0, 85)
    # The watermark is at 81, and the last window that has closed ended at ``closed``.
    run(tmp_path, counted(events(feed, spark), uneven))
    before = shown(tmp_path)
    closed = before[-1][1]
    assert 60 < closed < 80
    feed.add(*rows(range(85, END, 5), j=0, v=1))
    assert run(tmp_path, counted(events(feed, spark), shape), close=True) == 0
    first = -(-(closed + 1) // length) * length - length
    assert shown(tmp_path) == [*before, *((start, start + length, length // 5) for start in range(first, END, length))]


@pytest.mark.crash
@pytest.mark.interpreted
def test_a_window_that_another_stage_reads_is_refused_if_any_would_be_withheld(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = fed(tmp_path, 0, CLOSED + 5)
    run(tmp_path, hourly(events(feed, spark), OLD))
    for shape in (LONGER, FINER):
        with pytest.raises(
            sj.RecoveryError, match=r"window of stage0 has changed .* start before 2023-11-14 22:1\d:\d\d"
        ):
            run(tmp_path, hourly(events(feed, spark), shape))
    feed.add(*rows([CLOSED + 5], j=0, v=1))
    # All that is open of shorter ones is there.
    run(tmp_path, hourly(events(feed, spark), ("20 seconds", "10 seconds")))
