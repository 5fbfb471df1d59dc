from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.errors import AnalysisError
from sparkjet.time import MAX, MIN, FrameGrid, WindowGrid, clamp
from tests.time.laws import law


@st.composite
def frame_grids(draw: st.DrawFn) -> FrameGrid:
    step = draw(st.one_of(st.integers(1, 20), st.integers(1, MAX)))
    return FrameGrid(step, draw(st.integers(0, step - 1)))


@st.composite
def window_grids(draw: st.DrawFn) -> WindowGrid:
    step = draw(st.integers(1, 7))
    return WindowGrid(draw(st.integers(step, 6 * step)), step, draw(st.integers(0, step - 1)))


TIMES = st.one_of(st.integers(-50, 50), st.integers(MIN, MAX), st.sampled_from([MIN, MIN + 1, -1, 0, 1, MAX - 1, MAX]))


def test_f4_clamping() -> None:
    assert FrameGrid(4, 3).floor_frame(MIN + 2) == MIN
    assert FrameGrid(4, 3).floor_frame(MAX) == MAX
    assert FrameGrid(4, 2).higher_frame(MAX - 1) == MAX
    assert FrameGrid(4, 2).higher_frame(MIN) == MIN + 2
    assert FrameGrid(3, 0).floor_frame(MIN) == MIN


@pytest.mark.parametrize("time", [MIN - 1, MIN, 0, MAX, MAX + 1, 10**30])
def test_clamp_keeps_64_bits(time: int) -> None:
    assert MIN <= clamp(time) <= MAX
    assert clamp(time) == time or not MIN <= time <= MAX


@law
@given(frame_grids(), TIMES)
def test_a_time_lies_between_its_frame_ends(grid: FrameGrid, time: int) -> None:
    floor, higher = grid.floor_frame(time), grid.higher_frame(time)
    assert MIN <= floor <= time
    assert time < higher or higher == MAX
    assert higher <= MAX
    if floor > MIN and higher < MAX:
        assert higher - floor == grid.step
        assert (floor - grid.offset) % grid.step == 0


@law
@given(window_grids(), window_grids())
def test_common_ends_are_those_of_both_grids(one: WindowGrid, other: WindowGrid) -> None:
    ends = [{time for time in range(100) if grid.floor_frame(time) == time} for grid in (one.ends, other.ends)]
    common = one.ends.common(other.ends)
    assert ends[0] & ends[1] == {time for time in range(100) if common and common.floor_frame(time) == time}


def test_grids_that_meet_every_million_years_have_no_common_one() -> None:
    assert FrameGrid(MAX).common(FrameGrid(MAX - 1)) is None


@law
@given(frame_grids(), TIMES)
def test_frame_ends_are_fixed_points(grid: FrameGrid, time: int) -> None:
    floor, higher = grid.floor_frame(time), grid.higher_frame(time)
    if floor > MIN:
        assert grid.floor_frame(floor) == floor
        assert grid.higher_frame(floor - 1) == floor
    if higher < MAX:
        assert grid.floor_frame(higher) == higher


@law
@given(frame_grids(), TIMES, TIMES)
def test_frames_are_in_the_order_of_times(grid: FrameGrid, one: int, other: int) -> None:
    early, late = min(one, other), max(one, other)
    assert grid.floor_frame(early) <= grid.floor_frame(late)
    assert grid.higher_frame(early) <= grid.higher_frame(late)


@law
@given(window_grids(), st.integers(-40, 40))
def test_an_event_is_in_exactly_the_windows_of_its_frame(window: WindowGrid, time: int) -> None:
    frame = window.grid.higher_frame(time)
    starts = [start for start in range(-200, 200) if (start - window.offset) % window.step == 0]
    ends = [start + window.size for start in starts if start <= time < start + window.size]
    assert ends == [end for end in range(frame, window.last_end(frame) + 1) if window.ends.floor_frame(end) == end]
    assert all(window.start(end) <= frame - window.frame and frame <= end for end in ends)


@law
@given(window_grids(), st.integers(-40, 40))
def test_a_watermark_closes_the_windows_that_end_by_then(window: WindowGrid, watermark: int) -> None:
    closed, following = window.closed_end(watermark), window.ends.higher_frame(watermark)
    assert closed <= watermark < following
    assert following - closed == window.step
    # A frame begins where the next window starts.
    assert window.grid.floor_frame(window.start(following)) == window.start(following)


@law
@given(window_grids(), st.integers(-40, 40), st.integers(-40, 40))
def test_late_is_a_matter_of_frames(window: WindowGrid, time: int, watermark: int) -> None:
    late = time < window.closed_end(watermark)
    first = next(end for end in range(time + 1, time + window.step + 1) if window.ends.floor_frame(end) == end)
    assert late == (first <= watermark)
    if time >= watermark:
        assert not late
    if late:
        assert window.grid.higher_frame(time) <= window.closed_end(watermark)


@law
@given(window_grids())
def test_nothing_is_late_without_a_watermark(window: WindowGrid) -> None:
    assert window.closed_end(MIN) == MIN


@pytest.mark.parametrize(
    ("size", "step", "words"),
    [
        (1, 2, ["size 1", "at least the slide step 2"]),
        (0, 2, ["size 0"]),
        (-4, 2, ["-4"]),
        (4, 0, ["step 0"]),
        (4, -2, ["step -2"]),
    ],
)
def test_what_is_not_a_window_is_refused(size: int, step: int, words: list[str]) -> None:
    with pytest.raises(AnalysisError) as refused:
        WindowGrid(size, step)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize(("step", "offset", "hint"), [(4, 4, "0 gives"), (4, -1, "3 gives"), (4, 9, "1 gives")])
def test_an_offset_outside_its_frame_is_refused_with_the_one_meant(step: int, offset: int, hint: str) -> None:
    with pytest.raises(AnalysisError, match=hint):
        FrameGrid(step, offset)
    with pytest.raises(AnalysisError, match=hint):
        WindowGrid(step, step, offset)


def test_frames_are_as_long_as_begins_and_ends_of_windows_have_in_common() -> None:
    five_by_two = WindowGrid(5, 2, 1)
    assert (five_by_two.frame, five_by_two.frames) == (1, 5)
    assert (five_by_two.grid, five_by_two.ends) == (FrameGrid(1), FrameGrid(2))
    ninety_by_sixty = WindowGrid(90, 60, 50)
    assert (ninety_by_sixty.frame, ninety_by_sixty.frames) == (30, 3)
    assert (ninety_by_sixty.grid, ninety_by_sixty.ends) == (FrameGrid(30, 20), FrameGrid(60, 20))


def test_windows_of_whole_steps_have_the_frames_that_saved_states_name() -> None:
    window = WindowGrid(6, 2, 1)
    assert window.frame == window.step
    assert window.grid == window.ends == FrameGrid(2, 1)


def test_a_watermark_between_two_ends_closes_the_earlier_window() -> None:
    # Windows of 5, one every 2: 6 is the watermark, [0, 5) is closed, [2, 7) is open.
    assert WindowGrid(5, 2).closed_end(6) == 5


def test_grids_are_values() -> None:
    window = WindowGrid(6, 2, 1)
    assert window.grid is window.grid
    assert window == WindowGrid(6, 2, 1)
    assert hash(window) == hash(WindowGrid(6, 2, 1))
    assert pickle.loads(pickle.dumps(window)) == window  # noqa: S301 - our own bytes
    assert WindowGrid(2, 2).tumbling
    assert not window.tumbling


@st.composite
def changed(draw: st.DrawFn) -> tuple[WindowGrid, WindowGrid]:
    """A window before and after a change."""

    def window() -> WindowGrid:
        step = draw(st.integers(1, 6))
        return WindowGrid(step + draw(st.integers(0, 12)), step, draw(st.integers(0, step - 1)))

    return window(), window()


@given(changed(), st.none() | st.integers(-10, 40), st.lists(st.integers(-20, 50), max_size=8))
def test_windows_of_another_shape_are_whole_from_a_time_on(
    windows: tuple[WindowGrid, WindowGrid], closed: int | None, times: list[int]
) -> None:
    before, after = windows
    closed = None if closed is None else before.closed_end(closed)
    # A frame is all that is known of its rows, and those that no open window needs are gone.
    gone = MIN if closed is None else closed + before.step - before.size
    frames = {time: before.grid.higher_frame(time) for time in times}
    known = {time: frame for time, frame in frames.items() if frame > gone}
    start = after.whole_from(before, closed, max(known.values(), default=None))
    first = min([*times, 0]) - after.size if start is None else after.last_partial(start) + 1
    for end in range(first, max([*times, first]) + after.size + 1):
        if after.ends.floor_frame(end) == end:
            expected = {time for time in times if end - after.size <= time < end}
            assert {time for time, frame in known.items() if end - after.size < frame <= end} == expected
