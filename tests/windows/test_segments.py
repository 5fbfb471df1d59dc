"""How segments are merged: few of them, each row copied seldom, and never a merge of two small ones."""

from __future__ import annotations

import math
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from sparkjet.windows.segments import FEWEST, Segment, SegmentStatistics, mergeable

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
