"""How segments are merged: few of them, each row copied seldom, and never a merge of two small ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from sparkjet.state.partitions import release
from sparkjet.state.segments import FEWEST, LARGE, MANY, Segment, SegmentStatistics, mergeable, overlapping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = st.lists(st.integers(1, 1_000) | st.integers(0, 20).map(lambda power: 2**power), min_size=1, max_size=150)


def segment(rows: int) -> Segment:
    """One of so many rows, which are not looked at."""
    return Segment(cast("DataFrame", None), SegmentStatistics(rows, 0, 0))


@given(SIZES)
def test_segments_stay_few_and_rows_are_copied_seldom(sizes: list[int]) -> None:
    segments: list[Segment] = []
    copied = total = 0
    for rows in sizes:
        segments.append(segment(rows))
        total += rows
        count = mergeable(segments)
        assert count == 0 or FEWEST <= count <= len(segments)
        if count:
            merged = sum(each.statistics.rows for each in segments[-count:])
            segments[-count:] = [segment(merged)]
            copied += merged
        levels = math.log2(total) + 2
        assert len(segments) <= 2 * levels
        assert copied <= total * levels


def test_equal_ones_are_merged_when_there_are_enough() -> None:
    assert [mergeable([segment(10)] * count) for count in range(1, FEWEST + 1)] == [*[0] * (FEWEST - 1), FEWEST]


def test_a_large_one_is_left_until_half_as_much_has_come_after_it() -> None:
    small = [segment(1)] * FEWEST
    assert mergeable([segment(2 * FEWEST + 1), *small]) == FEWEST
    assert mergeable([segment(2 * FEWEST), *small]) == FEWEST + 1


def test_large_ones_whose_rows_replace_none_are_merged_only_when_there_are_many() -> None:
    small, large = segment(LARGE // FEWEST), segment(LARGE // FEWEST + 1)
    assert mergeable([small] * FEWEST, replacing=False) == FEWEST
    assert [mergeable([large] * count, replacing=False) for count in range(FEWEST, MANY + 1)] == [
        *[0] * (MANY - FEWEST),
        MANY,
    ]


def of_frames(low: int, high: int, rows: int = 1) -> Segment:
    """One with so many rows in these frames."""
    return Segment(cast("DataFrame", object()), SegmentStatistics(rows, low, high))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1), st.none() | st.integers(0, 9))
def test_a_segment_is_read_if_and_only_if_its_frames_overlap(bounds: list[tuple[int, int]], floor: int | None) -> None:
    upto = 10
    segments = [of_frames(min(pair), max(pair)) for pair in bounds]
    wanted = set(range(0 if floor is None else floor + 1, upto + 1))
    pairs = zip(segments, bounds, strict=True)
    expected = [each for each, pair in pairs if wanted & set(range(min(pair), max(pair) + 1))]
    found = overlapping(segments, floor, upto)
    assert [rows.table for rows in found] == [each.rows.table for each in expected or segments[:1]]
    assert len(found) == max(len(expected), 1)


def test_the_smallest_is_read_if_none_has_the_frames() -> None:
    segments = [of_frames(1, 2, 30), of_frames(3, 4, 10), of_frames(5, 6, 20)]
    assert [rows.table for rows in overlapping(segments, 6, 9)] == [segments[1].rows.table]


@contextmanager
def warnings_of(spark: SparkSession) -> Iterator[Any]:
    """Spark's log of this block, as a ``java.io.StringWriter``."""
    log4j = spark._jvm.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)
    root = context.getConfiguration().getRootLogger()
    before, heard = root.getLevel(), spark._jvm.java.io.StringWriter()
    appender = log4j.core.appender.WriterAppender.createAppender(None, None, heard, "heard", False, True)
    appender.start()
    root.addAppender(appender, log4j.Level.WARN, None)
    root.setLevel(log4j.Level.WARN)
    context.updateLoggers()
    try:
        yield heard
    finally:
        root.removeAppender("heard")
        root.setLevel(before)
        context.updateLoggers()


def test_a_released_one_has_no_line_in_the_log(spark: SparkSession) -> None:
    truncated = "its lineage has been truncated"
    held = spark.range(3).localCheckpoint(eager=False)
    assert held.count() == 3
    rdd = held._jdf.queryExecution().logical().rdd()
    with warnings_of(spark) as heard:
        before = set(spark.sparkContext._jsc.getPersistentRDDs())
        release(held)
        assert before - set(spark.sparkContext._jsc.getPersistentRDDs()) == {rdd.id()}
        assert truncated not in heard.toString()
        # Spark still warns a user who does it.
        rdd.unpersist(False)
        assert truncated in heard.toString()
