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
    return WindowGrid(step * draw(st.integers(1, 6)), step, draw(st.integers(0, step - 1)))


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
    ends = list(range(frame, window.last_end(frame) + 1, window.step))
    on_grid = [end for end in range(-200, 200) if (end - window.offset) % window.step == 0]
    assert ends == [end for end in on_grid if window.start(end) <= time < end]
    assert len(ends) == window.frames


@law
@given(window_grids(), st.integers(-40, 40))
def test_a_watermark_closes_the_windows_that_end_by_then(window: WindowGrid, watermark: int) -> None:
    closed, following = window.closed_end(watermark), window.next_end(watermark)
    assert closed <= watermark < following
    assert following - closed == window.step
    # What the next window needs begins where it starts.
    assert window.oldest_frame_needed(following) - window.step == window.start(following)


@law
@given(window_grids(), st.integers(-40, 40), st.integers(-40, 40))
def test_late_is_a_matter_of_frames(window: WindowGrid, time: int, watermark: int) -> None:
    late = window.is_late(time, watermark)
    assert late == (window.grid.floor_frame(time) < window.grid.floor_frame(watermark))
    if time >= watermark:
        assert not late
    if late:
        assert window.grid.higher_frame(time) <= window.closed_end(watermark)


@given(window_grids(), TIMES)
@law
def test_nothing_is_late_without_a_watermark(window: WindowGrid, time: int) -> None:
    assert not window.is_late(time, MIN)
    assert window.next_end(MIN) == window.oldest_frame_needed(MIN) == MIN


@pytest.mark.parametrize(
    ("size", "step", "words"),
    [
        (5, 2, ["5", "2", "4 or 6"]),
        (1, 2, ["1", "2", "is 2"]),
        (0, 2, ["0"]),
        (-4, 2, ["-4"]),
        (4, 0, ["step 0"]),
        (4, -2, ["step -2"]),
    ],
)
def test_what_is_no_window_is_refused(size: int, step: int, words: list[str]) -> None:
    with pytest.raises(AnalysisError) as refused:
        WindowGrid(size, step)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize(("step", "offset", "hint"), [(4, 4, "0 gives"), (4, -1, "3 gives"), (4, 9, "1 gives")])
def test_an_offset_outside_its_frame_is_refused_with_the_one_meant(step: int, offset: int, hint: str) -> None:
    with pytest.raises(AnalysisError, match=hint):
        FrameGrid(step, offset)
    with pytest.raises(AnalysisError, match=hint):
        WindowGrid(step, step, offset)


def test_grids_are_values() -> None:
    window = WindowGrid(6, 2, 1)
    assert window.grid is window.grid
    assert window == WindowGrid(6, 2, 1)
    assert hash(window) == hash(WindowGrid(6, 2, 1))
    assert pickle.loads(pickle.dumps(window)) == window  # noqa: S301 - our own bytes
    assert WindowGrid(2, 2).tumbling
    assert not window.tumbling
