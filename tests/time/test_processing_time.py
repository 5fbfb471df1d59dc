from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sparkjet.time import MIN, ProcessingTime
from sparkjet.time.processing_time import TOLERANCE, moved
from tests.time.laws import law

READINGS = st.lists(st.integers(-100, 100), max_size=20)
TOLERANCES = st.integers(0, 30)


@law
@given(READINGS, TOLERANCES)
def test_it_is_never_behind_the_clock_and_ahead_by_no_more_than_is_tolerated(
    readings: list[int], tolerance: int
) -> None:
    time = ProcessingTime(MIN, tolerance)
    for reading in readings:
        assert reading <= time.take(reading) <= reading + tolerance


@law
@given(READINGS, TOLERANCES)
def test_it_goes_back_only_when_it_says_so_and_then_to_the_reading(readings: list[int], tolerance: int) -> None:
    time = ProcessingTime(MIN, tolerance)
    for reading in readings:
        before, set_back, after = time.now, time.is_set_back(reading), time.after(reading)
        assert time.take(reading) == after
        assert set_back == (after < before)
        assert not set_back or after == reading


@law
@given(READINGS, TOLERANCES)
def test_a_clock_that_goes_forward_is_followed(readings: list[int], tolerance: int) -> None:
    time = ProcessingTime(MIN, tolerance)
    for reading in sorted(readings):
        assert time.take(reading) == reading


@law
@given(st.integers(-100, 100), st.integers(-100, 100), st.lists(st.integers(0, 200), min_size=2))
def test_stamps_that_are_moved_lie_in_the_past_in_their_order_and_no_older_than_they_were(
    before: int, now: int, ages: list[int]
) -> None:
    before, now = max(before, now), min(before, now)
    stamps = sorted(before - age for age in ages)
    after = [moved(stamp, before, now) for stamp in stamps]
    for stamp, each in zip(stamps, after, strict=True):
        assert each <= min(stamp, now)
        assert now - each <= before - stamp
    assert [moved(stamp, now, now) for stamp in stamps if stamp <= now] == [s for s in stamps if s <= now]
    of_the_future = [each for stamp, each in zip(stamps, after, strict=True) if stamp > now]
    assert all(one <= other for one, other in pairwise(of_the_future))


def test_ten_seconds_are_tolerated() -> None:
    time = ProcessingTime(60 * TOLERANCE)
    assert time.take(59 * TOLERANCE) == 60 * TOLERANCE
    assert time.take(59 * TOLERANCE - 1) == 59 * TOLERANCE - 1
    assert TOLERANCE == 10_000_000
